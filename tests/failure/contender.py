"""A contender: ``python -m tests.failure.contender SPEC``, the shipped election and fenced writes.

While it leads it writes without a pause worth mentioning, as the stores do: tallies that hold each
acknowledged write, and documents that are created, linked, changed, unlinked and deleted. All of it
is told in the history, before it is sent and after its outcome is known. When a term is over it
goes on for a while with writes that are late: no stopping in time is to hide that they are refused.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import signal
import sys
import uuid
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from tests.failure.history import Pen, now
from understudy.clock import SystemClock
from understudy.config import Configuration, options
from understudy.config.backends import factory
from understudy.core import liveness
from understudy.core.lease import Timing
from understudy.errors import ConfigurationError, DataError, LeadershipLost, NotFoundError
from understudy.ha.backends.zookeeper import options as zk
from understudy.ha.documents import Document
from understudy.ha.election import Election, Leadership
from understudy.ha.register import HasLatch, Register, Releasable, status_of
from understudy.ha.registry import APPLICATION_PREFIX, Registry, application_document, nonce
from understudy.ha.services import BoundedRegister
from understudy.ha.turns import NoProofs, open_turns
from understudy.model import (
    ApplicationDocument,
    ApplicationId,
    ApplicationStatus,
    Incarnation,
    LeaderRecord,
    Pointer,
    RegistryLink,
    RunId,
)
from understudy.process.worker import GuardianLink, Holder

CLUSTER = "failures"
TALLIES = 3
PAUSE_S = 0.03
"""Between two writes, for the sake of the machine."""

TICK_S, LAG_S = 0.05, 0.15
"""How often the event loop is looked at, and what is told when it was late."""

LATE_S = 2.0
"""So long a leader that has lost its term goes on writing."""

APPLICATIONS_MAX = 8
DENIED = 77
"""The exit code of one who was not let in: nothing that trying again would help."""

Told = Callable[[], Awaitable[Any]]


class Tally(msgspec.Struct, frozen=True):
    """What a document holds: for each term, the number of its last write."""

    counts: dict[str, int] = {}


class Contender:
    """One process that would lead."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._clock = SystemClock()
        self._me = LeaderRecord(
            holder=Incarnation(uuid.uuid4().hex[:12]), term=0, session="", name=spec["host"]
        )
        self._pen = Pen(Path(spec["history"]), self._me.holder)
        self._guardian = GuardianLink.from_environment()
        self._holder = Holder()
        self._backend = open_cluster(spec["settings"])
        assert isinstance(self._backend, Releasable)
        self._backend.on_release(self._granted)
        self._register = BoundedRegister(self._backend)
        self._registry = Registry(self._register, CLUSTER)
        self._timing = Timing.of(Configuration(spec["settings"]))
        self._me = replace(self._me, lease_s=self._timing.lease_s)
        turns = open_turns(
            self._backend.latch(self._me.holder, b"{}")
            if isinstance(self._backend, HasLatch)
            else None,
            self._register,
            self._timing,
            self._clock,
            NoProofs(),
            random.Random(),
        )
        self._election = Election(
            self._register, self._me, turns, self._clock, self._registry.highest_term, self._hold
        )
        self._chance = random.Random()
        self._tallies: list[Document[Tally]] = []
        self._late: asyncio.Task[None] | None = None
        self._applications: dict[str, Document[ApplicationDocument]] = {}
        self._sequence = 0
        self._idle = bool(spec.get("idle"))
        self._pen.note("start", pid=os.getpid(), host=spec["host"], guarded=spec["guarded"])

    async def run(self) -> None:
        """Contend until told to stop."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stop)
        self._work = asyncio.ensure_future(self._election.run(self._lead))
        beside = [
            asyncio.ensure_future(
                self._guardian.beat(self._clock, self._timing.lease_s, self._holder)
            ),
            asyncio.ensure_future(self._look_around()),
        ]
        try:
            await asyncio.wait({self._work})
        finally:
            for task in beside:
                task.cancel()
        if not self._work.cancelled():
            self._work.result()
        assert isinstance(self._backend, Releasable)
        await asyncio.to_thread(self._backend.release)
        self._guardian.released()

    def _stop(self) -> None:
        self._work.cancel()

    def _granted(self, release: Any) -> None:
        """Note which session this is, and let the guardian close it after our death."""
        self._guardian.release_by(release.argv, release.input)
        self._pen.note("session", release=release.input)

    def _hold(self, deadline: float | None) -> None:
        """Do as a JobManager does: let the guardian hold this process to its deadline."""
        if deadline is None:
            self._holder.deadline = None
            return
        timing = self._election.timing
        until = liveness.leader_hold(deadline, timing.lease_s, timing.renew_deadline_s)
        self._pen.note("hold", until=until)
        self._holder.deadline = until
        self._guardian.until(until)

    async def _look_around(self) -> None:
        """Note to which server we speak, and when this process was held up."""
        server, last = "", now()
        while True:
            await asyncio.sleep(TICK_S)
            late = now() - last - TICK_S
            if late > LAG_S:
                self._pen.note("lag", seconds=round(late, 3))
            last = now()
            found = str(status_of(self._backend)["server"])
            if found != server:
                server = found
                self._pen.note("server", server=server)

    async def _lead(self, leadership: Leadership) -> None:
        term = leadership.term
        self._pen.note("grant", term=term, reason=leadership.reason)
        why = "cancelled"
        try:
            await self._recover(term)
            await leadership.publish("rest", f"rpc-{self._me.holder}-{term}")
            self._pen.note("serves", term=term)
            while not self._idle:
                await self._write_something(term)
                await asyncio.sleep(PAUSE_S)
            await asyncio.Event().wait()
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise
        finally:
            self._pen.note("revoked", term=term, why=why)
            self._late = asyncio.ensure_future(self._write_late(term, [*self._tallies]))

    async def _write_late(self, term: int, tallies: list[Document[Tally]]) -> None:
        """Write as one who does not know that the term is over: the fence alone can refuse it."""
        until = now() + LATE_S
        while tallies and now() < until:
            tally = tallies.pop(0)
            try:
                await self._count(term, tally, "late")
                tallies.append(tally)
            except (LeadershipLost, NotFoundError):
                continue
            except (OSError, TimeoutError):
                tallies.append(tally)
            await asyncio.sleep(PAUSE_S)

    async def _recover(self, term: int) -> None:
        """Claim everything, and note what is found."""
        body = await self._told(
            term,
            "registry",
            "claim",
            lambda: self._registry.claim(term, ephemeral=False, anew=True),
        )
        self._pen.note("linked", term=term, keys=sorted(link.document for link in links(body)))
        self._tallies = [self._tally(n) for n in range(TALLIES)]
        for tally in self._tallies:
            try:
                found = await self._told(term, tally.key, "claim", partial(tally.claim, term))
            except NotFoundError:
                await self._told(term, tally.key, "create", partial(tally.create, term, Tally()))
                found = Tally()
            self._pen.note("found", term=term, key=tally.key, counts=found.counts)
        self._applications = {}
        for link in links(body):
            document = application_document(self._register, link.document)
            try:
                await self._told(
                    term, link.document, "claim", partial(document.claim, term, anew=True)
                )
            except (NotFoundError, DataError) as error:
                self._pen.note("missing", term=term, key=link.document, why=str(error))
                continue
            self._applications[link.document] = document
        await self._told(term, "registry", "sweep", lambda: self._registry.sweep(term))

    def _tally(self, number: int) -> Document[Tally]:
        return Document(self._register, f"tally-{number}", "tally", Tally)

    async def _write_something(self, term: int) -> None:
        """Write once, as often a tally as anything else."""
        applications = self._applications
        if self._chance.random() < 0.6 or not applications:
            await self._count(term, self._chance.choice(self._tallies))
        if len(applications) < APPLICATIONS_MAX and self._chance.random() < 0.2:
            await self._add(term)
        elif applications and self._chance.random() < 0.2:
            await self._remove(term, self._chance.choice(sorted(applications)))
        elif applications:
            document = applications[self._chance.choice(sorted(applications))]
            await self._told(
                term,
                document.key,
                "update",
                lambda: document.update(
                    term, lambda body: replace(body, executions=body.executions + 1)
                ),
            )

    async def _count(self, term: int, tally: Document[Tally], verb: str = "count") -> None:
        self._sequence += 1
        number = self._sequence

        def change(body: Tally) -> Tally:
            return Tally({**body.counts, str(term): number})

        await self._told(term, tally.key, verb, lambda: tally.update(term, change), n=number)

    async def _add(self, term: int) -> None:
        name = nonce()
        key = f"{APPLICATION_PREFIX}{name}"
        document = application_document(self._register, key)
        body = ApplicationDocument(
            application_id=ApplicationId(name),
            run_id=RunId(name),
            name=name,
            directory=name,
            record=Pointer(path=name, size=0, digest=""),
            status=ApplicationStatus.RUNNING,
            created_at=0.0,
        )
        link = RegistryLink(document=key, run_id=RunId(name))
        await self._told(term, key, "create", lambda: document.create(term, body))
        await self._told(
            term,
            "registry",
            "link",
            lambda: self._registry.link(term, body.application_id, link),
            key,
        )
        self._applications[key] = document

    async def _remove(self, term: int, key: str) -> None:
        name = ApplicationId(key.removeprefix(APPLICATION_PREFIX))
        document = self._applications[key]
        await self._told(
            term, "registry", "unlink", lambda: self._registry.bury(term, name, None), key
        )
        del self._applications[key]
        # As a cleanup does it: again, until it is done.
        while not await self._deleted(term, document):
            await asyncio.sleep(PAUSE_S)

    async def _deleted(self, term: int, document: Document[ApplicationDocument]) -> bool:
        try:
            await self._told(term, document.key, "delete", partial(document.delete, term))
        except (OSError, TimeoutError):
            return False
        return True

    async def _told(
        self, term: int, key: str, verb: str, write: Told, about: str = "", n: int = 0
    ) -> Any:
        """Do a write, and tell the history of its beginning and of its outcome."""
        number = f"{self._me.holder}-{uuid.uuid4().hex[:8]}"
        said = {"term": term, "key": key, "verb": verb, "id": number, "about": about, "n": n}
        self._pen.note("begin", **said)
        outcome = "unknown"
        try:
            result = await write()
            outcome = "done"
        except LeadershipLost:
            outcome = "stale"
            raise
        except NotFoundError:
            outcome = "absent"
            raise
        finally:
            self._pen.note("end", id=number, outcome=outcome)
        return result


def on_zookeeper(quorum: str, session_s: float) -> dict[str, str]:
    """Return the settings of all that takes part, on an ensemble."""
    return {
        options.HA_TYPE.key: "zookeeper",
        zk.ZK_QUORUM.key: quorum,
        zk.ZK_SESSION_TIMEOUT.key: f"{int(session_s * 1000)} ms",
    }


def open_cluster(settings: Mapping[str, str]) -> Register:
    """Open the register of all that takes part."""
    configuration = Configuration(settings)
    kind = configuration.get(options.HA_TYPE)
    register: Register = factory(kind, configuration.backend)(CLUSTER, settings)
    return register


def links(body: Any) -> list[RegistryLink]:
    """Return what a registry holds to be real."""
    return [*body.applications.values()]


def main() -> int:
    """Run; the exit code says whether it was let in."""
    logging.basicConfig(format="%(asctime)s %(name)s %(message)s", level=logging.INFO)
    contender = Contender(json.loads(sys.argv[1]))
    try:
        asyncio.run(contender.run())
    except ConfigurationError as error:
        logging.error("%s", error)
        return DENIED
    return 0


if __name__ == "__main__":
    sys.exit(main())
