"""The register and the storage as one process reaches them: late, once, not at all, or too late.

A call is a request that travels, an effect, and an answer. Each of the three may be lost or late,
whatever has become of the caller meanwhile: what a dead process has sent may still arrive.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from tests.sim.hosts import SimProcess
from tests.sim.program import LOOPS, LOOPS_MAX, SLOW, Odds
from understudy.errors import NotFoundError
from understudy.ha.register import Conflict, Entry, Pushed
from understudy.ha.retrieval import LEADER_KEY
from understudy.ha.storage import InlineStorage
from understudy.process import code

if TYPE_CHECKING:
    from tests.sim.world import World

P = ParamSpec("P")
R = TypeVar("R")

FATES = (
    "crash",
    "pause",
    "stale",
    "fails",
    "request_lost",
    "answer_lost",
    "late",
    "slow",
    "repeated",
    "done_in_spite",
    "throttled",
    "contested",
)

SINGLE = ("create", "write", "remove", "publish", "delete", "delete_tree", "prune")
"""Requests that something on the way may send again by itself."""

SLOW_STORAGE_S = (2.0, 6.0)
"""How much longer each call takes for an application whose storage is slow."""

THROTTLED_S = (1.0, 3.0)
"""How long a server asks its clients to stay away."""

LATE_S_MAX = 9.0
SLOW_S = 3.0
"""What a call of a process that has just been woken takes at most."""


class Calls:
    """What becomes of the calls of one process to one service."""

    def __init__(self, world: World, process: SimProcess, service: str) -> None:
        self._world = world
        self._process = process
        self._service = service

    async def make(self, what: str, writes: bool, effect: Callable[[], R], deadline_s: float) -> R:
        """Send a request, have its effect, and wait for the answer."""
        odds, chance = self._odds(), self._process.chance
        latency = odds.latency_s * chance.uniform(0.1, 1.9)
        slow = self._process.all_slow or what.endswith(LEADER_KEY)
        if slow and self._world.time.now < self._process.slow_until:
            slow_s = chance.uniform(0, SLOW_S)
            return await self._travel(what, effect, slow_s / 2, slow_s / 2, deadline_s)
        if not odds.any:
            await asyncio.sleep(latency)
            return effect()
        there_s, back_s = latency / 2, latency / 2
        drawn = chance.random()
        for fate in FATES:
            drawn -= getattr(odds, fate)
            if drawn < 0:
                break
        else:
            fate = ""
        match fate:
            case "fails":
                await asyncio.sleep(latency)
                raise OSError(errno.EIO, f"injected into {what}")
            case "request_lost":
                self._tell(f"loses the request to {what}")
                async with asyncio.timeout(deadline_s):
                    await asyncio.Event().wait()
            case "slow":
                there_s, back_s = chance.uniform(0, 2.4), chance.uniform(0, 2.4)
            case "late" if writes:
                there_s = deadline_s * chance.uniform(0.5, 1.0) + chance.uniform(0, LATE_S_MAX)
                there_s = min(there_s, deadline_s + LATE_S_MAX)
                self._tell(f"wants to {what}, which arrives {there_s:.1f} s later")
            case "stale" if writes and not what.endswith(LEADER_KEY):
                lasts_s = self._world.profile.timing.lease_s * chance.uniform(1.1, 1.8)
                self._world.pause(self._process, f"before it would {what}", lasts_s, guardian=True)
                await asyncio.sleep(0)
                return await self._travel(what, effect, 0.0, 0.0, deadline_s)
            case "repeated" if what.startswith(SINGLE):
                self._again(what, effect, chance.uniform(0, LATE_S_MAX))
            case "throttled":
                there_s += chance.uniform(*THROTTLED_S)
            case "contested" if writes:
                there_s += 2 * latency * chance.randint(1, 5)
            case "done_in_spite":
                self._tell(f"is told of a failure to {what}, which was done")
                await self._travel(what, effect, there_s, back_s, deadline_s)
                raise OSError(errno.EIO, f"injected into {what}, which was done")
            case "crash" | "pause":
                return await self._strike(fate, what, effect, deadline_s)
        if fate == "answer_lost":
            self._tell(f"loses the answer to {what}")
            back_s = -1.0
        return await self._travel(what, effect, there_s, back_s, deadline_s)

    def _again(self, what: str, effect: Callable[[], R], after_s: float) -> None:
        """Let the request arrive once more, whatever has become of its sender."""
        world = self._world
        self._tell(f"wants to {what}, which arrives once more {after_s:.1f} s later")

        def arrive() -> None:
            if self._brings_back(what):
                return
            world.overdue = True
            with contextlib.suppress(Conflict, OSError, NotFoundError):
                effect()
            world.overdue = False

        world.time.after(after_s, arrive)

    async def _strike(self, fate: str, what: str, effect: Callable[[], R], deadline_s: float) -> R:
        """Crash, or be paused, just before or just after the effect."""
        chance, process = self._process.chance, self._process
        before = chance.random() < 0.5
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        if not before:
            _answer(effect, answer)
        when = "before it would" if before else "when it has"
        if fate == "crash":
            if answer.done():
                answer.exception()
            process.crash_now(f"{when} {what}")
            await asyncio.Event().wait()
        lasts_s, guardian = self._world.draw_pause(chance), chance.random() < 0.5
        self._world.pause(process, f"{when} {what}", lasts_s, guardian=guardian)
        await asyncio.sleep(0)
        if before:
            return await self._travel(what, effect, 0.0, 0.0, deadline_s)
        return await answer

    async def _travel(
        self,
        what: str,
        effect: Callable[[], R],
        there_s: float,
        back_s: float,
        deadline_s: float,
    ) -> R:
        machine, world, process = self._process.machine, self._world, self._process
        answer: asyncio.Future[R] = machine.create_future()
        dropped = process.chance.random() < 0.5
        sent_at = world.time.now

        def arrive() -> None:
            if not process.alive and dropped:
                return
            landed: asyncio.Future[R] = machine.create_future()
            # Whoever waits for a register gives up before its own deadline.
            given_up = answer.done() or world.time.now - sent_at > deadline_s
            world.overdue = given_up or not process.alive
            if world.overdue and self._brings_back(what):
                world.overdue = False
                return
            _answer(effect, landed)
            world.overdue = False
            if back_s < 0:
                landed.exception()
                return
            world.time.after(back_s, lambda: _pass_on(process, landed, answer))

        world.time.after(there_s, arrive)
        async with asyncio.timeout(deadline_s):
            return await answer

    def _brings_back(self, what: str) -> bool:
        """Say whether the request would bring back, empty, what a person has deleted.

        A leader that has seen more refuses that (tests/ha/test_documents.py); its successor cannot.
        """
        return what.startswith("create ") and what.split()[1] in self._world.person.spoilt

    def _odds(self) -> Odds:
        return self._world.odds(self._service)

    def _tell(self, text: str) -> None:
        self._world.tell(f"{self._process.name} {text}")


class SimRegister:
    """The shared register, as one process reaches it; see `Register`."""

    def __init__(self, world: World, process: SimProcess) -> None:
        self._world = world
        self._process = process
        self._calls = world.calls(world, process, "register")
        self._deadline_s = 2 * world.profile.register_deadline_s
        self._seen = 0
        """The latest of the leader's records that was read, written or told here."""

    async def load(self, key: str) -> Entry | None:
        """See `Register.load`."""
        entries, world = self._world.entries, self._world
        entry, record = await self._calls.make(
            f"load {key}", False, lambda: (entries.get(key), world.records), 60.0
        )
        self._saw(key, record)
        return entry

    async def keys(self, prefix: str) -> list[str]:
        """See `Register.keys`."""
        entries = self._world.entries
        return await self._calls.make(
            f"list {prefix}",
            False,
            lambda: sorted(key for key in entries if key.startswith(prefix)),
            60.0,
        )

    async def swap(self, key: str, value: bytes | None, expected: str | None) -> str:
        """See `Register.swap`."""
        verb = "remove" if value is None else "create" if expected is None else "write"
        version, record = await self._calls.make(
            f"{verb} {key}", True, lambda: self._swap(key, value, expected), self._deadline_s
        )
        self._saw(key, record)
        return version

    def _saw(self, key: str, record: int) -> None:
        if key == LEADER_KEY:
            self._seen = max(self._seen, record)

    def _swap(self, key: str, value: bytes | None, expected: str | None) -> tuple[str, int]:
        return self._world.swap(self._process, key, value, expected), self._world.records

    async def changes(self, prefix: str) -> AsyncIterator[Pushed | None]:
        """See `Register.changes`: every write wakes every reader, a little later."""
        watcher = Watcher(self._process)
        self._world.watchers.append(watcher)
        try:
            yield None
            while True:
                await watcher.event.wait()
                told = watcher.take()
                if told is None or told[0] < self._seen:
                    yield None
                    continue
                self._seen = told[0]
                yield Pushed(told[1])
        finally:
            self._world.watchers.remove(watcher)


class Watcher:
    """One follower of the leader's record, and what it has been told."""

    def __init__(self, process: SimProcess) -> None:
        self.process = process
        self.event = asyncio.Event()
        self._told: tuple[int, Entry | None] | None = None
        self._silent_until = 0.0

    def take(self) -> tuple[int, Entry | None] | None:
        """Return number and record of the last change; None if it has to be read."""
        self.event.clear()
        told, self._told = self._told, None
        return told

    def changed(self, world: World, number: int, entry: Entry | None) -> None:
        """Hear of a change of the record, sooner or later."""
        chance, watching = self.process.chance, world.profile.watching
        if watching is None or not world.faulty:
            world.time.after(chance.uniform(0, 0.02), self.event.set)
            return
        if world.time.now < self._silent_until:
            return
        drawn = chance.random()
        if drawn < watching.silent:
            lasts_s = world.profile.timing.lease_s
            self._silent_until = world.time.now + lasts_s
            world.time.after(lasts_s, lambda: self._tell(None))
        elif drawn < watching.silent + watching.closed:
            world.time.after(chance.uniform(0, 1.0), lambda: self._tell(None))
        else:
            told = (number, entry)
            world.time.after(chance.uniform(0, watching.late_s), lambda: self._tell(told))

    def _tell(self, told: tuple[int, Entry | None] | None) -> None:
        # A watch tells changes in their order.
        if told is None or self._told is None or told[0] > self._told[0]:
            self._told = told
        self.event.set()


class SimStorage(InlineStorage):
    """The shared storage, as one process reaches it."""

    def __init__(self, world: World, process: SimProcess) -> None:
        super().__init__(world.storage, world.profile.storage_deadline_s)
        self._world = world
        self._process = process
        self._calls = world.calls(world, process, "storage")

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """See `Storage.run`; code is laid out nowhere, as nothing here imports it."""
        trouble, run = self._world.trouble(" ".join(one for one in args if isinstance(one, str)))
        if trouble == SLOW:
            await asyncio.sleep(self._process.chance.uniform(*SLOW_STORAGE_S))
        if function is code.lay_out and trouble == LOOPS:
            self._world.loops[run] += 1
            if self._world.loops[run] <= LOOPS_MAX:
                raise RuntimeError(LOOPS)
        if function is code.lay_out or function is code.remove_layouts:
            return Path("/code")  # type: ignore[return-value]
        verb = getattr(function, "__name__", "run")
        writes = verb not in {"read", "names", "exists"}
        subject = args[0] if args and isinstance(args[0], str) else ""

        def effect() -> R:
            self._world.watch.writer = self._process
            return function(*args, **kwargs)

        return await self._calls.make(f"{verb} {subject}", writes, effect, self._deadline_s)


def _answer(effect: Callable[[], R], future: asyncio.Future[R]) -> None:
    try:
        result = effect()
    except (Conflict, OSError, LookupError, ValueError) as error:
        future.set_exception(error)
    except Exception as error:
        if isinstance(error, AssertionError):
            raise
        future.set_exception(error)
    else:
        future.set_result(result)


def _pass_on(process: SimProcess, landed: asyncio.Future[R], answer: asyncio.Future[R]) -> None:
    error = landed.exception()
    if not process.alive or answer.done():
        return
    if error:
        answer.set_exception(error)
    else:
        answer.set_result(landed.result())
