"""SavepointCoordinator: takes the savepoints of one job, and lets it begin with one.

The leader takes them itself, from what is recorded: a job that runs is not held up, one that does
not run has them all the same, and one that is to end with its savepoint is known dead before the
first file is copied, so that nothing is committed after it. What was asked for is durable before it
is answered; the next leader takes it anew, unless its manifest says that it is whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import platform
import secrets
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from understudy.clock import Clock
from understudy.core import checkpoints as core
from understudy.core import job
from understudy.core.checkpoints import SAVEPOINTS_MAX
from understudy.errors import (
    CheckpointError,
    LeadershipLost,
    NotFoundError,
    StorageError,
    UsageError,
)
from understudy.ha import savepoints
from understudy.ha.savepoints import Manifest
from understudy.ha.storage import prove
from understudy.ha.transfer import Place, split
from understudy.jobmanager import savepoint_files
from understudy.jobmanager.savepoint_files import Directories, HaltError, UnderWayError
from understudy.model import (
    Checkpoints,
    Failure,
    JobId,
    JobStatus,
    Savepoint,
    StartFrom,
)
from understudy.process.persist import PATIENCE_S, persist
from understudy.spark.installed import pyspark_version
from understudy.version import VERSION

PROBE = "savepoint-probe"

MISSED_MAX = 5
"""So often a file may go while it is copied: the job has recorded something newer each time."""

PAUSE_S = 0.5
"""Before another try after a storage has failed, or a file went while it was copied."""

UNDER_WAY_S = 10.0
"""So long a savepoint of a job that goes on waits for a write that is being published: it takes a
few renames, and a job that always writes has pauses between."""

UNDER_WAY_PAUSE_MAX_S = 2.0
"""The pauses between its tries grow up to here."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class About:
    """What a savepoint says of where it comes from."""

    job_name: str
    application_name: str
    application_id: str
    run_id: str
    cluster_id: str


class Recorded(Protocol):
    """What the register holds of the job; see `CheckpointCoordinator`."""

    @property
    def body(self) -> Checkpoints:
        """Return it, as far as this leader has seen it."""
        ...

    async def known(self) -> bool:
        """Return once it is known; False where nobody needs it any more."""
        ...

    async def change(self, what: str, change: Callable[[Checkpoints], Checkpoints]) -> Checkpoints:
        """Change it, durably."""
        ...


class SavepointCoordinator:
    """The savepoints of one job in one term."""

    def __init__(
        self,
        job_id: JobId,
        about: About,
        directories: Directories,
        checkpoints: Recorded,
        clock: Clock,
        tell: Callable[[job.Event], None],
        note: Callable[[JobStatus | None], Awaitable[None]],
        start: StartFrom | None,
    ) -> None:
        """``tell`` is how the job hears that it is to end, and that its savepoint is taken.

        ``note`` makes durable that it is to end so, before its attempt is touched: the next leader
        must know why that has ended. None where it goes on after all.
        ``start`` is what the job is to begin with.
        """
        self._start = start
        self._job_id = job_id
        self._about = about
        self._directories = directories
        self._checkpoints = checkpoints
        self._clock = clock
        self._tell = tell
        self._note = note
        self._wanted: asyncio.Queue[Savepoint | None] = asyncio.Queue()
        self._still = asyncio.Event()
        """Set while no attempt lives, since the job is to end with its savepoint."""
        self._halt = threading.Event()
        self._over = ""
        """Why no more savepoints are taken; empty while they are."""
        self._left = False
        """Another leader goes on with those that are pending."""
        self._recovered = asyncio.Event()
        self._triggering = asyncio.Lock()

    # --- asking -----------------------------------------------------------------------------------

    def find(self, trigger: str) -> Savepoint | None:
        """Return the savepoint that was asked for under this id."""
        for one in self._checkpoints.body.savepoints:
            if one.trigger == trigger:
                return self._failed(one, self._over) if one.is_pending and self._over else one
        return None

    @property
    def last(self) -> str:
        """Return where the last savepoint lies that is whole; empty without one."""
        taken = [one for one in self._checkpoints.body.savepoints if one.completed_at]
        return max(taken, key=lambda one: one.number).location if taken else ""

    def manifest(self) -> Manifest:
        """Return what a savepoint of now says of where it comes from."""
        return Manifest(
            job_name=self._about.job_name,
            job_id=self._job_id,
            application_name=self._about.application_name,
            application_id=self._about.application_id,
            run_id=self._about.run_id,
            cluster_id=self._about.cluster_id,
            counter=self._checkpoints.body.counter,
            checkpoints=(),
            taken_at=self._clock.wall(),
            versions=_versions(),
        )

    async def trigger(
        self, trigger: str, directory: str, then: JobStatus | None = None
    ) -> Savepoint:
        """Note durably that a savepoint is wanted; the same id again answers the same one.

        Raises `UsageError` for a directory that cannot be written to, `CheckpointError` where the
        job keeps nothing, or keeps it where no savepoint has it, `NotFoundError` where it has
        ended.
        """
        await self._recovered.wait()
        async with self._triggering:
            if found := self.find(trigger):
                return found
            if self._over:
                raise NotFoundError(f"job {self._about.job_name!r} has ended")
            if self._left:
                raise LeadershipLost(f"another leader goes on with job {self._about.job_name!r}")
            if not self._checkpoints.body.completed:
                raise CheckpointError(
                    f"job {self._about.job_name!r} has nothing to go on from yet: no streaming "
                    "query at ctx.checkpoint_location has committed a batch, and nothing was kept "
                    "with ctx.checkpoint or ctx.save"
                )
            if any(one.is_pending and one.then for one in self._checkpoints.body.savepoints):
                raise CheckpointError(f"job {self._about.job_name!r} is being stopped already")
            # It would fail with this later, when a job that is to end is stopped already.
            savepoint_files.located(core.latest(self._checkpoints.body), self._directories)
            await asyncio.to_thread(_refuse_unwritable, directory)
            location = await asyncio.to_thread(self._free, directory, trigger)
            wanted = Savepoint(trigger=trigger, location=location, directory=directory, then=then)
            body = await self._change("note a savepoint that is wanted", partial(_added, wanted))
            wanted = next(one for one in body.savepoints if one.trigger == trigger)
            await self._begin(wanted)
            return wanted

    async def _begin(self, wanted: Savepoint) -> None:
        if wanted.then:
            await self._note(wanted.then)
            self._tell(job.Stop(wanted.then))
        self._wanted.put_nowait(wanted)

    # --- taking -----------------------------------------------------------------------------------

    async def _recover(self) -> None:
        """Go on with what an earlier leader was asked for."""
        for one in self._checkpoints.body.savepoints:
            if one.is_pending:
                await self._begin(one)
        self._recovered.set()

    def stands_still(self) -> None:
        """The job's attempt is known dead: what it is to end with can be copied."""
        self._still.set()

    def close(self, why: str) -> None:
        """Let `run` return: the job has ended."""
        self._over = self._over or why
        self._end()

    def leave(self) -> None:
        """Let `run` return: what is pending is for the next leader."""
        self._left = True
        self._end()

    def _end(self) -> None:
        self._recovered.set()
        self._halt.set()
        self._still.set()
        self._wanted.put_nowait(None)

    async def run(self) -> None:
        """Take what is wanted, one after the other, until closed. Raises `LeadershipLost`."""
        try:
            if await self._checkpoints.known():
                await self._recover()
                if self._checkpoints.body.started_from:
                    await self._release()
            while wanted := await self._wanted.get():
                if wanted.then:
                    await self._still.wait()
                    self._still.clear()
                if self._over or self._left:
                    return
                durable = await self._take(wanted)
                if wanted.then:
                    self._tell(job.Saved(durable))
        finally:
            self._halt.set()

    async def _take(self, wanted: Savepoint) -> bool:
        began, wall = self._clock.now(), self._clock.wall
        try:
            wanted, told = await self._written(wanted)
        except HaltError:
            return False
        except LeadershipLost:
            raise
        except Exception as error:  # Whatever a store may raise: the job goes on.
            why = str(error) or "there was no answer in time"
            _log.error("job %r: savepoint %s failed: %s", self._about.job_name, wanted.trigger, why)
            if wanted.then:
                await self._note(None)
            await self._keep(self._failed(wanted, why))
            return False
        done = replace(
            wanted,
            digest=told[0],
            size=told[1],
            completed_at=wall(),
            duration_s=self._clock.now() - began,
        )
        await self._keep(done)
        _log.info("job %r: savepoint %s is complete", self._about.job_name, done.location)
        return True

    async def _written(self, wanted: Savepoint) -> tuple[Savepoint, tuple[str, int]]:
        """Write a savepoint; return it with its place, digest and size."""
        began, missed, pause_s = self._clock.now(), 0, PAUSE_S
        while True:
            found = await asyncio.to_thread(_whole, wanted.location)
            if found and self._is_own(found):
                size = sum(file.size for file in found.manifest.files)
                return wanted, (found.digest, size)
            half = await asyncio.to_thread(_half, wanted.location)
            if half:
                # Half of it is of an earlier leader, which may write on for a while.
                wanted = await self._elsewhere(wanted)
            try:
                return wanted, await self._write(wanted)
            except UnderWayError as error:
                # Of an attempt that is dead, nobody publishes it.
                over = wanted.then or self._over
                if over or self._clock.now() + pause_s > began + UNDER_WAY_S:
                    raise CheckpointError(f"{error}: ask again once it is through") from error
                pause_s = min(pause_s * 2, UNDER_WAY_PAUSE_MAX_S)
            except (NotFoundError, OSError, TimeoutError, StorageError) as error:
                missed += isinstance(error, NotFoundError)
                late = self._clock.now() + PAUSE_S > began + PATIENCE_S
                if late or missed > MISSED_MAX or self._over:
                    raise
                _log.warning("a savepoint is tried again: %s", str(error) or "timeout")
            await asyncio.sleep(pause_s)

    async def _write(self, wanted: Savepoint) -> tuple[str, int]:
        try:
            return await asyncio.to_thread(
                savepoint_files.write,
                core.latest(self._checkpoints.body),
                self._directories,
                self.manifest(),
                wanted.location,
                self._halt,
            )
        except Exception:
            # Nothing lay there before, and what is no savepoint nobody can dispose of.
            with contextlib.suppress(OSError):
                await asyncio.to_thread(_remove_tree, wanted.location)
            raise

    def _free(self, directory: str, trigger: str) -> str:
        """Return where nothing lies yet, unless it is this very savepoint. Blocking."""
        address = _in(directory, name_of(self._job_id, trigger))
        if not _half(address):
            return address
        found = _whole(address)
        return address if found and self._is_own(found) else _again(address)

    def _is_own(self, found: savepoints.Found) -> bool:
        manifest = found.manifest
        return (manifest.job_id, manifest.run_id) == (self._job_id, self._about.run_id)

    async def _elsewhere(self, wanted: Savepoint) -> Savepoint:
        """Choose another name, and remove what is half-written under the one before."""
        before = wanted.location
        address = _in(wanted.directory, name_of(self._job_id, wanted.trigger))
        wanted = replace(wanted, location=_again(address))
        await self._keep(wanted)
        if not await asyncio.to_thread(_whole, before):
            with contextlib.suppress(OSError):
                await asyncio.to_thread(_remove_tree, before)
        return wanted

    # --- beginning with one -----------------------------------------------------------------------

    async def begin(self) -> None:
        """Lay out what the job is to begin with, if anything, unless that was done.

        Raises `CheckpointError` or `ConfigurationError`. May be called in every term: what is
        recorded says how far it has come.
        """
        start = self._start
        if start is None or not await self._checkpoints.known():
            return
        if not self._checkpoints.body.started_from:
            _log.info("job %r begins with savepoint %s", self._about.job_name, start.path)
            await persist("lay out a savepoint", lambda: self._lay_out(start))
        await self._release()

    async def _release(self) -> None:
        """Remove a savepoint that the job owns, now that it has taken it over."""
        if self._start is None or not self._start.claim:
            return
        try:
            await asyncio.to_thread(_remove_claimed, self._start)
        except (OSError, CheckpointError) as error:
            _log.warning("savepoint %s cannot be removed: %s", self._start.path, error)

    async def _lay_out(self, start: StartFrom) -> None:
        found = await asyncio.to_thread(savepoints.read, start.path)
        if found.digest != start.digest:
            raise CheckpointError(
                f"{start.path}: another savepoint lies there than when the application was started"
            )
        laid_out = await asyncio.to_thread(savepoint_files.lay_out, found, self._directories)

        def change(body: Checkpoints) -> Checkpoints:
            return replace(
                body,
                counter=found.manifest.counter,
                completed=laid_out,
                started_from=start.path,
                directory=self._directories.checkpoints,
            )

        await self._change("note what a job begins with", change)

    # --- recording --------------------------------------------------------------------------------

    async def _keep(self, changed: Savepoint) -> None:
        await self._change("note how a savepoint is", partial(_replaced, changed))

    async def _change(self, what: str, change: Callable[[Checkpoints], Checkpoints]) -> Checkpoints:
        return await self._checkpoints.change(what, change)

    def _failed(self, one: Savepoint, why: str) -> Savepoint:
        failure = Failure(type="CheckpointError", message=why, time=self._clock.wall())
        return replace(one, failure=failure)


def name_of(job_id: str, trigger: str) -> str:
    """Return the name with which a savepoint's directory begins."""
    return f"savepoint-{job_id[:6]}-{trigger[:12]}"


def _again(address: str) -> str:
    """Return another address for a savepoint whose own is taken."""
    return f"{address}-{secrets.token_hex(3)}"


def _in(directory: str, name: str) -> str:
    return f"{directory.rstrip('/')}/{name}"


def _added(wanted: Savepoint, body: Checkpoints) -> Checkpoints:
    """Return the body with one more; of those that are over, the oldest is forgotten."""
    if any(one.trigger == wanted.trigger for one in body.savepoints):
        return body
    kept = list(body.savepoints)
    while len(kept) >= SAVEPOINTS_MAX:
        over = next((one for one in kept if not one.is_pending), None)
        if over is None:
            raise CheckpointError(f"{len(kept)} savepoints of the job are being taken already")
        kept.remove(over)
    number = body.counter + 1
    kept.append(replace(wanted, number=number))
    return replace(body, counter=number, savepoints=tuple(kept))


def _replaced(changed: Savepoint, body: Checkpoints) -> Checkpoints:
    return replace(
        body,
        savepoints=tuple(
            changed if one.trigger == changed.trigger else one for one in body.savepoints
        ),
    )


def _whole(address: str) -> savepoints.Found | None:
    """Return the savepoint at an address, None where there is none that is whole."""
    try:
        found = savepoints.read(address)
        savepoints.check(found)
    except CheckpointError:
        return None
    return found


def _refuse_unwritable(directory: str) -> None:
    """Raise `UsageError` where no savepoint could be written."""
    try:
        storage = Place(directory).storage
        prove(storage, PROBE)
        storage.prune(PROBE)
    except (StorageError, OSError) as error:
        raise UsageError(f"no savepoint can be written to {directory}: {error}") from error


def _half(address: str) -> dict[str, int]:
    return Place(address).files()


def _remove_claimed(start: StartFrom) -> None:
    try:
        found = savepoints.read(start.path)
    except CheckpointError:
        return  # It is gone already.
    if found.digest == start.digest:
        savepoints.remove(found)


def _remove_tree(address: str) -> None:
    parent, name = split(address)
    Place(parent).storage.delete_tree(name)


def _versions() -> tuple[tuple[str, str], ...]:
    found = [("understudy", VERSION), ("python", platform.python_version())]
    if pyspark := pyspark_version():
        found.append(("pyspark", pyspark))
    return tuple(found)
