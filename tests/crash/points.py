"""A quiet cluster whose writes are counted, and struck at.

A write is what changes the register or the storage, whoever does it: a JobManager, the process of
``main`` or a driver. What changes nothing (a swap that is refused, a file deleted that is gone) is
none.
"""

from __future__ import annotations

import asyncio
import enum
import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from tests.crash.quiet import SUBMISSION, Combination, profile_of
from tests.sim import blows
from tests.sim.effects import Calls
from tests.sim.hosts import SimProcess
from tests.sim.world import WatchedStorage, World
from tests.support.memory_storage import MemoryStorage
from understudy.model import ApplicationDocument, JobStatus

if TYPE_CHECKING:
    from understudy.model import ApplicationStatus
    from understudy.rpc.messages import Deploy

R = TypeVar("R")

LATENCY_S = 0.001
ASKS_S = 0.5
"""How often a person looks whether the time to cancel has come."""

DRAFT = ".draft-"


class Manner(enum.Enum):
    """What becomes of a write, and of the process that makes it."""

    NOT_DONE = "crash before it is done"
    HALF_DONE = "crash when half of it is done"
    UNANSWERED = "crash when it is done, before the answer"
    DONE = "crash when it is done and answered"
    ANSWER_LOST = "done, and the answer is lost"
    REFUSED = "not done, and an error is answered"


class Victim(enum.Enum):
    """Who crashes."""

    PROCESS = "the process"
    HOST = "its host, of which nobody else knows that it is dead"
    ALL = "the whole cluster"


@dataclass(frozen=True)
class Strike:
    """What happens at one write."""

    manner: Manner
    victim: Victim = Victim.PROCESS

    def __str__(self) -> str:
        """Say what happens, for people."""
        return f"{self.manner.name}/{self.victim.name}".lower()


@dataclass(frozen=True)
class Write:
    """One write of a world."""

    number: int
    who: str
    kind: str
    verb: str
    subject: str
    divisible: bool

    def __str__(self) -> str:
        """Say which write it is, for people."""
        return f"write {self.number} ({self.who}: {self.verb} {self.subject})"


class Died(BaseException):
    """The process that makes this call is dead."""


class AnswerLost(BaseException):
    """The call was carried out; its sender never learns it."""


class PointCalls(Calls):
    """The calls of one process, none of which goes wrong by chance."""

    async def make(self, what: str, writes: bool, effect: Callable[[], R], deadline_s: float) -> R:
        """See `Calls.make`."""
        await asyncio.sleep(LATENCY_S)
        world, process = self._world, self._process
        assert isinstance(world, PointWorld)
        try:
            answer = effect()
        except Died:
            await asyncio.Event().wait()
            raise
        except AnswerLost:
            async with asyncio.timeout(deadline_s):
                await asyncio.Event().wait()
            raise
        if world.doomed is not None:
            victim, world.doomed = world.doomed, None
            # What it does at once with the answer, it still does.
            world.time.after(0, lambda: world.crash(process, victim, "after"))
        return answer


class PointStorage(WatchedStorage):
    """The storage of a world, with the drafts that killed writers leave in it."""

    def __init__(self, world: PointWorld) -> None:
        super().__init__(world.watch)
        self._world = world
        self._drafts: dict[str, SimProcess] = {}

    def publish(self, path: str, data: bytes) -> None:
        """See `BlockingStorage.publish`."""
        self._at(
            "publish", path, lambda: super(PointStorage, self).publish(path, data), self._draft
        )

    def delete(self, path: str) -> None:
        """See `BlockingStorage.delete`."""
        if path in self.files:
            self._at("delete", path, lambda: super(PointStorage, self).delete(path))

    def delete_tree(self, path: str) -> None:
        """See `BlockingStorage.delete_tree`."""
        if self.exists(path):
            self._at(
                "delete-tree",
                path,
                lambda: super(PointStorage, self).delete_tree(path),
                self._delete_half,
            )

    def prune(self, path: str) -> None:
        """See `BlockingStorage.prune`."""
        below = f"{path}/"
        for draft, writer in list(self._drafts.items()):
            if draft.rpartition("/")[0] == path and not writer.alive:
                del self._drafts[draft]
                self.files.pop(draft, None)
        if path in self.directories and not any(
            name.startswith(below) for name in (*self.files, *self.directories)
        ):
            self._at(
                "prune",
                path,
                lambda: super(PointStorage, self).prune(path),
                self.directories.discard,
            )
        else:
            super().prune(path)

    def names(self, path: str) -> list[str]:
        """See `BlockingStorage.names`."""
        return [name for name in super().names(path) if not name.startswith(DRAFT)]

    def _at(
        self,
        verb: str,
        path: str,
        whole: Callable[[], None],
        half: Callable[[str], None] | None = None,
    ) -> None:
        writer = self._watch.writer
        assert writer is not None
        self._world.at(writer, verb, path, whole, half and (lambda: half(path)))

    def _draft(self, path: str) -> None:
        """Leave what a writer leaves that is killed before it has renamed its draft."""
        writer = self._watch.writer
        assert writer is not None
        draft = f"{path.rpartition('/')[0]}/{DRAFT}{self._world.time.now:.6f}"
        MemoryStorage.publish(self, draft, b"half")
        self._drafts[draft] = writer

    def _delete_half(self, path: str) -> None:
        below = sorted(file for file in self.files if file.startswith(f"{path}/"))
        for file in below[: (len(below) + 1) // 2]:
            del self.files[file]
        self._watch.deleted(path)


@dataclass(frozen=True)
class End:
    """What a run came to."""

    status: ApplicationStatus
    jobs: Mapping[str, JobStatus]
    kept: frozenset[str]
    """Which result files are left."""


class PointWorld(World):
    """A cluster whose writes are counted."""

    calls = PointCalls
    submission = SUBMISSION
    start_s = (0.002, 0.003)
    restart_s = (0.5, 0.5)

    def __init__(
        self, combination: Combination, strikes: Mapping[int, Strike], *, one_host: bool = True
    ) -> None:
        super().__init__(0, profile_of(combination, one_host=one_host))
        self.combination = combination
        self.storage = PointStorage(self)
        self.writes: list[Write] = []
        self.doomed: Victim | None = None
        self.crashed: list[str] = []
        """The kinds of the processes that were struck."""
        self.entered: dict[str, int] = {}
        self.mains = 0
        self._strikes = strikes
        self._waiting = False
        self._anew_by = 0.0
        self._watch_work()
        if combination.end == "cancelled":
            self.time.after(ASKS_S, self._cancel_in_time)

    # --- writes -----------------------------------------------------------------------------------

    def swap(self, process: SimProcess, key: str, value: bytes | None, expected: str | None) -> str:
        """See `World.swap`."""

        def whole() -> str:
            return super(PointWorld, self).swap(process, key, value, expected)

        entry = self.entries.get(key)
        if (entry.version if entry else None) != expected or (value is None and entry is None):
            return whole()
        verb = "remove" if value is None else "create" if expected is None else "write"
        return self.at(process, verb, key, whole)

    def at(
        self,
        process: SimProcess,
        verb: str,
        subject: str,
        whole: Callable[[], R],
        half: Callable[[], None] | None = None,
    ) -> R:
        """Count a write, and do to it what was ordered."""
        write = Write(
            len(self.writes) + 1, process.name, process.kind, verb, subject, half is not None
        )
        self.writes.append(write)
        strike = self._strikes.get(write.number)
        if strike is None:
            return whole()
        self.tell(f"--- {write}: {strike.manner.value} ({strike.victim.value}) ---")
        self.crashed.append(process.kind)
        match strike.manner:
            case Manner.NOT_DONE:
                pass
            case Manner.HALF_DONE:
                assert half is not None, "only what is divisible can be done by half"
                half()
            case Manner.UNANSWERED:
                whole()
            case Manner.DONE:
                self.doomed = strike.victim
                return whole()
            case Manner.ANSWER_LOST:
                whole()
                raise AnswerLost
            case Manner.REFUSED:
                raise OSError(errno.EIO, f"injected into {verb} {subject}")
        self.crash(process, strike.victim, "at")
        raise Died

    def crash(self, process: SimProcess, victim: Victim, when: str) -> None:
        """Let a process, or more than it, die."""
        dying = [process]
        if victim is not Victim.PROCESS:
            hosts = {process.host} if victim is Victim.HOST else set(self.hosts)
            roots = [root for root in self.roots if root.host in hosts]
            dying = [one for root in roots for one in (*root.children, root)]
        for one in dying:
            if one.alive:
                one.crash_now(f"{when} a write")

    # --- the run ----------------------------------------------------------------------------------

    def end(self) -> End:
        """Return what the run came to."""
        names = {entry.name: entry.result for entry in self.watch.jobs.values()}
        here = self.locations
        kept = frozenset(
            path
            for path in self.storage.files
            if path.startswith((here.job_results, here.application_results))
        )
        return End(
            self.ended[-1].status,
            {name: result.status for name, result in names.items() if result is not None},
            kept,
        )

    def reaped(self, process: SimProcess) -> None:
        """See `World.reaped`: the run is not over before who died was started anew, and is done."""
        super().reaped(process)
        if process.kind == "jm" and self.managers.get(process.incarnation) not in self._done:
            self._anew_by = self.time.now + 2 * self.restart_s[1]

    def _is_over(self) -> bool:
        return self.broken is not None or (self.time.now > self._anew_by and super()._is_over())

    def _watch_work(self) -> None:
        """Count how often functions of jobs, and ``main``, are entered."""
        watch = self.watch
        entered, main_began = watch.entered, watch.main_began

        def count_entered(process: SimProcess, deploy: Deploy, *rest: Any) -> None:
            self.entered[deploy.name] = self.entered.get(deploy.name, 0) + 1
            entered(process, deploy, *rest)

        def count_main(*arguments: Any) -> None:
            self.mains += 1
            main_began(*arguments)

        watch.entered = count_entered  # type: ignore[method-assign, assignment]
        watch.main_began = count_main  # type: ignore[method-assign, assignment]

    def _cancel_in_time(self) -> None:
        """Cancel once each job has run; a person asks until the wish is noted."""
        jobs = [job.name for job in self.profile.program.jobs()]
        begun = all(map(self.entered.get, jobs)) if jobs else self.mains
        self._waiting = self._waiting or bool(begun)
        if self._waiting:
            for known in self.watch.documents.values():
                body = known.body
                if isinstance(body, ApplicationDocument) and (body.cancel_requested or body.result):
                    return
            blows.cancel(self)
        if not self.ended:
            self.time.after(ASKS_S, self._cancel_in_time)
