"""SavepointCoordinator: takes the savepoints of one job, and lets the job begin with one.

The leader takes a savepoint from the recorded checkpoints: a running job is not delayed, and a job
that does not run can have savepoints too. A job that ends with its savepoint is known dead before
the first file is copied, so that nothing is committed after the savepoint. A request is durable
before it is answered; the next leader takes the savepoint again, unless its manifest is complete.
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
from understudy.ha.transfer import FileTree, split
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
"""How often a file may vanish during its copy: each time the job has recorded a newer one."""

PAUSE_S = 0.5
"""Pause before another try, after a storage failed or a file vanished during its copy."""

UNDER_WAY_S = 10.0
"""How long a running job's savepoint waits for a write that is being published: publishing takes a
few renames, and a job that always writes has pauses between."""

UNDER_WAY_PAUSE_MAX_S = 2.0
"""Longest pause between two tries of that wait."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class About:
    """The job of a SavepointCoordinator, as manifests name it."""

    job_id: JobId
    job_name: str
    application_name: str
    application_id: str
    run_id: str
    cluster_id: str
    start: StartFrom | None = None
    """The savepoint that the job begins with."""


class CheckpointRecord(Protocol):
    """The job's checkpoint document in the register (`CheckpointCoordinator`)."""

    @property
    def body(self) -> Checkpoints:
        """Return the document, as last seen by this leader."""
        ...

    async def known(self) -> bool:
        """Return True once the document is read; False where it is needed no more."""
        ...

    async def drain(self) -> None:
        """Return once the checkpoints received before are recorded or refused.

        Raises `TimeoutError`.
        """
        ...

    async def change(self, what: str, change: Callable[[Checkpoints], Checkpoints]) -> Checkpoints:
        """Change the document, durably."""
        ...


class SavepointCoordinator:
    """The savepoints of one job in one term."""

    def __init__(
        self,
        about: About,
        directories: Directories,
        checkpoints: CheckpointRecord,
        clock: Clock,
        enqueue: Callable[[job.Event], None],
        note: Callable[[JobStatus | None], Awaitable[None]],
    ) -> None:
        """``enqueue`` enqueues the job's stop, and the end of that savepoint, for the JobMaster.

        ``note`` stores the final status of a stop before the attempt is stopped: the next leader
        must know why the attempt ended. None revokes the stop.
        """
        self._job_id = about.job_id
        self._about = about
        self._directories = directories
        self._checkpoints = checkpoints
        self._clock = clock
        self._enqueue = enqueue
        self._note = note
        self._wanted: asyncio.Queue[Savepoint | None] = asyncio.Queue()
        self._still = asyncio.Event()
        """Set once the attempt of a job that ends with its savepoint is dead."""
        self._halt = threading.Event()
        self._over = ""
        """Why no more savepoints are taken; empty while the job lives."""
        self._left = False
        """True once another leader takes the pending savepoints."""
        self._recovered = asyncio.Event()
        self._triggering = asyncio.Lock()

    # --- requests ---------------------------------------------------------------------------------

    def find(self, trigger: str) -> Savepoint | None:
        """Return the savepoint with this trigger id; None without one."""
        for one in self._checkpoints.body.savepoints:
            if one.trigger == trigger:
                return self._failed(one, self._over) if one.is_pending and self._over else one
        return None

    @property
    def last(self) -> str:
        """Return the location of the last complete savepoint; empty without one."""
        taken = [one for one in self._checkpoints.body.savepoints if one.completed_at]
        return max(taken, key=lambda one: one.number).location if taken else ""

    def manifest(self) -> Manifest:
        """Return the manifest of a savepoint taken now, without its files."""
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
        """Store a request for a savepoint; a repeated trigger id returns the same savepoint.

        Raises `UsageError` for an unwritable directory, `CheckpointError` for a job without
        checkpoints, or with checkpoints outside of its directory, `NotFoundError` for an ended job.
        """
        await self._recovered.wait()
        async with self._triggering:
            if found := self.find(trigger):
                return found
            if self._over:
                raise NotFoundError(f"job {self._about.job_name!r} has ended")
            if self._left:
                raise LeadershipLost(f"another leader continues job {self._about.job_name!r}")
            if not self._checkpoints.body.completed:
                raise CheckpointError(
                    f"job {self._about.job_name!r} has nothing to go on from yet: no streaming "
                    "query at ctx.checkpoint_location has committed a batch, and nothing was kept "
                    "with ctx.checkpoint or ctx.save"
                )
            if any(one.is_pending and one.then for one in self._checkpoints.body.savepoints):
                raise CheckpointError(f"job {self._about.job_name!r} is being stopped already")
            # Checked early: later it would fail after a job with a final status is stopped.
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
            self._enqueue(job.Stop(wanted.then))
        self._wanted.put_nowait(wanted)

    # --- taking savepoints ------------------------------------------------------------------------

    async def _recover(self) -> None:
        """Begin the pending savepoints that an earlier leader left."""
        for one in self._checkpoints.body.savepoints:
            if one.is_pending:
                await self._begin(one)
        self._recovered.set()

    def stands_still(self) -> None:
        """The job's attempt is known dead: its last savepoint can be copied."""
        self._still.set()

    def close(self, why: str) -> None:
        """Let `run` return: the job has ended."""
        self._over = self._over or why
        self._end()

    def leave(self) -> None:
        """Let `run` return: the next leader takes the pending savepoints."""
        self._left = True
        self._end()

    def _end(self) -> None:
        self._recovered.set()
        self._halt.set()
        self._still.set()
        self._wanted.put_nowait(None)

    async def run(self) -> None:
        """Take the requested savepoints one by one, until closed. Raises `LeadershipLost`."""
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
                    self._enqueue(job.Saved(durable))
        finally:
            self._halt.set()

    async def _take(self, wanted: Savepoint) -> bool:
        began, wall = self._clock.now(), self._clock.wall
        try:
            wanted, manifest_file = await self._written(wanted)
        except HaltError:
            return False
        except LeadershipLost:
            raise
        except Exception as error:  # No error of a store ends the job.
            why = str(error) or "there was no answer in time"
            _log.error("job %r: savepoint %s failed: %s", self._about.job_name, wanted.trigger, why)
            if wanted.then:
                await self._note(None)
            await self._keep(self._failed(wanted, why))
            return False
        done = replace(
            wanted,
            digest=manifest_file[0],
            size=manifest_file[1],
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
                # These files are an earlier leader's, which may still be writing.
                wanted = await self._elsewhere(wanted)
            try:
                return wanted, await self._write(wanted)
            except UnderWayError as error:
                # After the attempt's death, nobody publishes the write.
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
        await self._checkpoints.drain()  # An attempt's end does not wait for its last checkpoints.
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
            # The directory was empty before, and nobody can dispose of an incomplete savepoint.
            with contextlib.suppress(OSError):
                await asyncio.to_thread(_remove_tree, wanted.location)
            raise

    def _free(self, directory: str, trigger: str) -> str:
        """Return an address without files, or that of this very savepoint. Blocking."""
        address = _in(directory, name_of(self._job_id, trigger))
        if not _half(address):
            return address
        found = _whole(address)
        return address if found and self._is_own(found) else _again(address)

    def _is_own(self, found: savepoints.FoundSavepoint) -> bool:
        manifest = found.manifest
        return (manifest.job_id, manifest.run_id) == (self._job_id, self._about.run_id)

    async def _elsewhere(self, wanted: Savepoint) -> Savepoint:
        """Choose another name, and remove the incomplete files under the previous one."""
        before = wanted.location
        address = _in(wanted.directory, name_of(self._job_id, wanted.trigger))
        wanted = replace(wanted, location=_again(address))
        await self._keep(wanted)
        if not await asyncio.to_thread(_whole, before):
            with contextlib.suppress(OSError):
                await asyncio.to_thread(_remove_tree, before)
        return wanted

    # --- beginning with a savepoint ---------------------------------------------------------------

    async def begin(self) -> None:
        """Lay out the savepoint that the job begins with, if any, unless that is done.

        Raises `CheckpointError` or `ConfigurationError`. May be called in every term: the document
        records the progress.
        """
        start = self._about.start
        if start is None or not await self._checkpoints.known():
            return
        if not self._checkpoints.body.started_from:
            _log.info("job %r begins with savepoint %s", self._about.job_name, start.path)
            await persist("lay out a savepoint", lambda: self._lay_out(start))
        await self._release()

    async def _release(self) -> None:
        """Remove a claimed savepoint, now that the job has copied it."""
        start = self._about.start
        if start is None or not start.claim:
            return
        try:
            await asyncio.to_thread(_remove_claimed, start)
        except (OSError, CheckpointError) as error:
            _log.warning("savepoint %s cannot be removed: %s", start.path, error)

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
    """Return the first part of the name of a savepoint's directory."""
    return f"savepoint-{job_id[:6]}-{trigger[:12]}"


def _again(address: str) -> str:
    """Return another address for a savepoint whose own is taken."""
    return f"{address}-{secrets.token_hex(3)}"


def _in(directory: str, name: str) -> str:
    return f"{directory.rstrip('/')}/{name}"


def _added(wanted: Savepoint, body: Checkpoints) -> Checkpoints:
    """Return the body with one more savepoint; at the limit, without the oldest ended one."""
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


def _whole(address: str) -> savepoints.FoundSavepoint | None:
    """Return the complete savepoint at an address; None without one."""
    try:
        found = savepoints.read(address)
        savepoints.check(found)
    except CheckpointError:
        return None
    return found


def _refuse_unwritable(directory: str) -> None:
    """Raise `UsageError` for a directory in which no savepoint can be written."""
    try:
        storage = FileTree(directory).storage
        prove(storage, PROBE)
        storage.prune(PROBE)
    except (StorageError, OSError) as error:
        raise UsageError(f"no savepoint can be written to {directory}: {error}") from error


def _half(address: str) -> dict[str, int]:
    return FileTree(address).files()


def _remove_claimed(start: StartFrom) -> None:
    try:
        found = savepoints.read(start.path)
    except CheckpointError:
        return  # The savepoint is gone already.
    if found.digest == start.digest:
        savepoints.remove(found)


def _remove_tree(address: str) -> None:
    parent, name = split(address)
    FileTree(parent).storage.delete_tree(name)


def _versions() -> tuple[tuple[str, str], ...]:
    found = [("understudy", VERSION), ("python", platform.python_version())]
    if pyspark := pyspark_version():
        found.append(("pyspark", pyspark))
    return tuple(found)
