"""What an application may use: it is told which limit it has met, and the others do not notice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from tests.jobmanager.test_dispatcher import Grant
from tests.support.faulty_register import Durable
from tests.support.virtual_time import run_virtual, virtual_clock
from understudy.core import matching
from understudy.core.matching import Assignment
from understudy.jobmanager.application import EXCEEDED
from understudy.jobmanager.dispatcher import Binding
from understudy.jobmanager.main_process import MainProcess, MainProcesses
from understudy.jobmanager.submission import Submission
from understudy.model import ApplicationId, ApplicationStatus, Incarnation, Pointer, RunId
from understudy.process.processes import Death
from understudy.rpc import messages
from understudy.rpc.local import LocalLink, link_pair
from understudy.rpc.messages import MainMessage

Main = Callable[["FakeMain"], Awaitable[None]]


class FakeMain:
    """A process of ``main``: what it does is given."""

    incarnation, guardian_pid, pid = Incarnation("main"), 0, 0

    def __init__(self, mains: Mains) -> None:
        self.death: asyncio.Future[Death] = asyncio.get_running_loop().create_future()
        self.answers: list[MainMessage] = []
        ours: LocalLink[MainMessage]
        ours, self.link = link_pair(Incarnation("jobmanager"), self.incarnation)
        self.process = MainProcess(cast("Any", self), ours)
        self._work = asyncio.ensure_future(mains.does(self))

    async def receive(self) -> Any:
        """Return the next message."""
        envelope = await self.link.receive()
        return envelope.message if envelope else None

    def end(self, *, exceeded: str = "", reason: str = "ended") -> None:
        """Be dead."""
        if not self.death.done():
            self.link.close()
            self.death.set_result(Death(0, 0, virtual_clock().now(), reason, exceeded))

    def until(self, deadline: float) -> None:
        """See `Process.until`."""

    def stop(self, grace_s: float) -> None:
        """See `Process.stop`."""
        self.end(reason="stopped")

    def kill(self, reason: str) -> None:
        """See `Process.kill`."""
        self.end(reason=reason)


class Mains:
    """Where each execution does the same; see `MainProcesses`."""

    ready = True

    def __init__(self, does: Main) -> None:
        self.does = does
        self.taken = 0

    def hold(self, deadline: float) -> None:
        """See `MainProcesses.hold`."""

    async def take(self, python: str) -> MainProcess:
        """See `MainProcesses.take`."""
        self.taken += 1
        return FakeMain(self).process


def session(
    durable: Durable, does: Main, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> tuple[Grant, Mains]:
    """Return a session in which each ``main`` does this."""

    async def lay_out(*_: object) -> str:
        return ""

    monkeypatch.setattr("understudy.process.code.lay_out", lambda *_: "")
    grant = Grant(durable, 1, Binding(None, False, None, session=True), settings)
    mains = Mains(does)
    grant.dispatcher._queue.mains = cast("MainProcesses", mains)
    return grant, mains


async def submitted(grant: Grant, run: str, **configuration: str) -> ApplicationId:
    """Submit an application."""
    settings = {key.replace("__", "."): value for key, value in configuration.items()}
    submission = Submission("flights", "app.py", "/app.py", (), "", (), configuration=settings)
    return await grant.dispatcher.submit(submission, RunId(run))


async def ended(grant: Grant, run: str) -> Any:
    """Return how a run has ended."""
    for _ in range(600):
        registry = await grant.stores.registry.read()
        if registry and (stone := registry.tombstones.get(RunId(run))):
            return stone
        await asyncio.sleep(0.1)
    raise AssertionError(f"{run} does not end: {grant.dispatcher.attention}")


async def submits_three(main: FakeMain) -> None:
    """Submit three jobs, and hold on."""
    order = await main.receive()
    assignment = Assignment(order.application_id)
    plan = Pointer(path="plan", digest="sha256:0", size=1)
    for number in range(3):
        assignment, job = matching.assign(assignment, str(number))
        request = messages.Submit(
            request=number, job_id=job.job_id, name=job.name, occurrence=0, plan=plan
        )
        main.link.send(request)
        main.answers.append(await main.receive())
    heard.setdefault(order.run_id, main.answers)


heard: dict[str, list[MainMessage]] = {}


@pytest.mark.parametrize(
    ("cluster", "own", "most"),
    [("2", None, 2), ("2", "9", 2), ("9", "1", 1), ("9", None, 9)],
)
def test_main_gets_an_error_for_one_job_too_many(
    cluster: str, own: str | None, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        heard.clear()
        key = "application.max-jobs"
        grant, _ = session(Durable(), submits_three, {key: cluster}, monkeypatch)
        leading = asyncio.create_task(grant.dispatcher.run(grant.publish))
        await grant.serves.wait()
        await submitted(grant, "one", **({"application__max-jobs": own} if own else {}))
        await asyncio.sleep(30)
        refused = [one for one in heard["one"] if isinstance(one, messages.Refusal)]

        assert 3 - min(most, 3) == len(refused)
        assert {"submission"} >= {one.code for one in refused}
        assert all(f"has {most} jobs, and {key}" in one.message for one in refused)
        leading.cancel()

    run_virtual(main())


def test_a_main_that_exceeds_a_limit_is_not_executed_again_and_others_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def does(main: FakeMain) -> None:
        order = await main.receive()
        if order.run_id == "greedy":
            main.end(reason="it used 5 GB, more than max-memory allows", exceeded="max-memory")
            return
        main.link.send(messages.MainEnded(failure=None))
        main.end()

    async def main() -> None:
        grant, mains = session(Durable(), does, {}, monkeypatch)
        leading = asyncio.create_task(grant.dispatcher.run(grant.publish))
        await grant.serves.wait()
        for run in ("greedy", "modest"):
            await submitted(grant, run)
        greedy, modest = await ended(grant, "greedy"), await ended(grant, "modest")
        told = await grant.stores.storage.read(greedy.file.path)

        assert ApplicationStatus.FAILED is greedy.status
        assert ApplicationStatus.FINISHED is modest.status
        assert EXCEEDED.encode() in told
        assert b"the process of main was killed: it used 5 GB" in told
        assert 2 == mains.taken
        leading.cancel()

    run_virtual(main())
