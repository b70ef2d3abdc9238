"""A world of contenders: each on a machine of its own, all before one register.

`Contender` is one process. What its ``hold`` was told is until when it may act: `Electorate` fails
the test as soon as somebody is granted a term while somebody else still may.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from tests.support.virtual_time import Machine, VirtualTime
from understudy.core.lease import Timing
from understudy.errors import LeadershipLost
from understudy.ha.backends.embedded import EmbeddedRegister
from understudy.ha.election import Election, Leadership
from understudy.ha.register import Entry
from understudy.ha.registry import Registry
from understudy.ha.retrieval import decode_leader
from understudy.ha.turns import LeaseTurns, Turns
from understudy.model import Incarnation, LeaderRecord

TIMING = Timing()
ANSWER_S = 0.02
"""How long the register takes to answer, each way."""


class Line:
    """The register as one machine reaches it."""

    def __init__(self, register: EmbeddedRegister, machine: Machine) -> None:
        self._register = register
        self._machine = machine
        self.cut = False
        """Nothing arrives, and nothing answers."""
        self.deaf = False
        """What is written arrives, but no answer to it."""
        self.writes = 0

    async def load(self, key: str) -> Entry | None:
        """See `Register.load`."""
        await self._travel()
        entry = await self._register.load(key)
        await self._travel()
        return entry

    async def keys(self, prefix: str) -> list[str]:
        """See `Register.keys`."""
        await self._travel()
        return await self._register.keys(prefix)

    async def swap(self, key: str, value: bytes | None, expected: str | None) -> str:
        """See `Register.swap`."""
        await self._travel()
        version = await self._register.swap(key, value, expected)
        self.writes += 1
        if self.deaf:
            await asyncio.Event().wait()
        await self._travel()
        return version

    def changes(self, key: str) -> AsyncIterator[None]:
        """See `Register.changes`."""
        return self._register.changes(key)

    async def _travel(self) -> None:
        await asyncio.sleep(ANSWER_S)
        if self.cut or self._machine.crashed:
            await asyncio.Event().wait()


@dataclass
class Tenure:
    """One grant, in true time."""

    leadership: Leadership
    granted_at: float
    ended_at: float | None = None


class Contender:
    """One process that contends on a machine of its own."""

    def __init__(self, electorate: Electorate, name: str, rate: float = 1.0) -> None:
        self.electorate = electorate
        self.name = name
        self.machine = electorate.world.machine(
            name, rate=rate, offset=random.Random(name).random()
        )
        self.rate = rate
        self.line = Line(electorate.register, self.machine)
        self.tenures: list[Tenure] = []
        self.holds: list[float | None] = []
        self.held_until: float | None = None
        """True time until which it may act."""
        self.killed_at: float | None = None
        self.killed = asyncio.Event()
        self.publishes = True
        self.ends: Callable[[Leadership], Awaitable[None]] | None = None
        """What its body does once it serves; by default it serves until it is cancelled."""
        registry = Registry(self.line, "flights")
        self.election = Election(
            self.line,
            LeaderRecord(
                holder=Incarnation(name),
                term=0,
                session="",
                name=name,
                rest=f"http://{name}",
                rpc=f"@{name}",
            ),
            electorate.turns(self, random.Random(name)),
            self.machine.clock,
            registry.highest_term,
            self._hold,
        )
        self.task = self.machine.spawn(self.election.run(self._body))
        electorate.contenders.append(self)

    @property
    def leads(self) -> bool:
        """Say whether its body runs, and the lease has not run out."""
        running = bool(self.tenures) and self.tenures[-1].ended_at is None
        return running and self.held_until is not None and not self.machine.crashed

    @property
    def term(self) -> int:
        """Return the term it was granted last."""
        return self.tenures[-1].leadership.term

    def crash(self, *, proof: bool) -> None:
        """Die as by SIGKILL; with ``proof``, those who ask learn of it."""
        self.machine.crash()
        if proof:
            self.killed_at = self.electorate.world.now
            self.killed.set()

    def _hold(self, deadline: float | None) -> None:
        self.holds.append(deadline)
        if deadline is None:
            self.held_until = None
        else:
            left_s = (deadline - self.machine.time()) / self.rate
            self.held_until = self.electorate.world.now + left_s

    async def _body(self, leadership: Leadership) -> None:
        try:
            self.electorate.granted(self, leadership)
        except AssertionError as error:
            self.electorate.broken.append(str(error))
        tenure = Tenure(leadership, self.electorate.world.now)
        self.tenures.append(tenure)
        try:
            await Registry(self.line, "flights").claim(leadership.term, ephemeral=False)
            if self.publishes:
                await leadership.publish(f"http://{self.name}", f"tcp://{self.name}")
            if self.ends:
                await self.ends(leadership)
            else:
                await asyncio.Event().wait()
        finally:
            tenure.ended_at = self.electorate.world.now


@dataclass
class Electorate:
    """The world, its register, and who contends."""

    world: VirtualTime = field(default_factory=VirtualTime)
    register: EmbeddedRegister = field(default_factory=EmbeddedRegister)
    timing: Timing = TIMING
    contenders: list[Contender] = field(default_factory=list)
    terms: dict[int, str] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    """Promises that were not kept."""

    def contender(self, name: str, rate: float = 1.0) -> Contender:
        """Add one."""
        return Contender(self, name, rate)

    def turns(self, contender: Contender, jitter: random.Random) -> Turns:
        """Return how it waits for its turn."""
        return LeaseTurns(contender.line, self.timing, contender.machine.clock, self, jitter)

    def granted(self, winner: Contender, leadership: Leadership) -> None:
        """Hold a grant to the two promises: one holder a term, no two leases at once."""
        now, term = self.world.now, leadership.term
        assert term > max(self.terms, default=0), f"term {term} after {self.terms}"
        self.terms[term] = winner.name
        for other in self.contenders:
            alive = other is not winner and not other.machine.crashed
            if alive and other.held_until is not None:
                assert other.held_until <= now, (
                    f"{winner.name} was granted term {term} at {now:.3f}, but {other.name} may act "
                    f"until {other.held_until:.3f}"
                )

    def leader(self) -> Contender | None:
        """Return who leads just now."""
        leaders = [contender for contender in self.contenders if contender.leads]
        assert len(leaders) <= 1 or any(contender.machine.paused for contender in leaders)
        return leaders[0] if len(leaders) == 1 else None

    def until_led(self, by: Contender | None = None, limit_s: float = 120.0) -> float:
        """Let the world go on until somebody leads; return when."""
        self.world.run(lambda: self.leader() is not None and by in {None, self.leader()}, limit_s)
        return self.world.now

    def later(self, seconds: float) -> None:
        """Let the world go on for so long."""
        reached: list[bool] = []
        self.world.after(seconds, lambda: reached.append(True))
        self.world.run(lambda: bool(reached), seconds + 1)

    def record(self) -> LeaderRecord | None:
        """Return what the register says."""
        entry = self.register._entries.get("leader")
        return decode_leader(entry) if entry else None

    def end(self) -> None:
        """End every machine, and tell whether all promises were kept."""
        for machine in self.world.machines:
            machine.end()
        assert [] == self.broken

    async def proof(self, holder: LeaderRecord) -> float | None:
        """See `Deaths.proof`: known a moment after a death that can be proved."""
        contender = next(one for one in self.contenders if one.name == holder.holder)
        await contender.killed.wait()
        assert contender.killed_at is not None
        return asyncio.get_running_loop().time() - (self.world.now - contender.killed_at)


def lost() -> LeadershipLost:
    """Return what a fenced write raises."""
    return LeadershipLost("term 9 is newer")


def two(them: Electorate) -> tuple[Contender, Contender]:
    """Return a leader that serves and a standby that has seen it."""
    leader = them.contender("leader")
    them.until_led(leader)
    standby = them.contender("standby")
    them.later(5)
    return leader, standby
