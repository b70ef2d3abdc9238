"""The rehearsal of a job's process: an attempt of nothing, before the job comes.

A forked process shares its memory with the one that has forked it. Where it writes first, the
kernel copies the page, and Python writes to each object that it looks at, as it counts references.
An attempt writes to some hundred pages; without a rehearsal it would wait for each of them while
``main`` waits for the job.

Nothing of a rehearsal is stored or reported: its plan is in memory, and nobody reads what it says.
"""

from __future__ import annotations

import socket
from pathlib import Path

from understudy.clock import SystemClock
from understudy.driver.driver import JobProcess
from understudy.driver.job_line import line_over
from understudy.driver.job_session import NoJobSession
from understudy.ha.format import digest
from understudy.ha.storage import LocalStorage
from understudy.model import ApplicationId, Incarnation, JobId, Pointer, RunId
from understudy.process import plans
from understudy.rpc.messages import Deploy, RunAttempt

NAME = "rehearsal"

OFTEN = 10
"""Python changes code that has run eight times for faster code; it does so where it is shared."""


class Rehearsal:
    """Made in the driver, before it forks; repeated in each process that it forks."""

    def __init__(self) -> None:
        # Of no module, so that its code is in the plan, as that of most jobs.
        self._plan = plans.encode_plan(NAME, lambda _: None, (), {})
        for _ in range(OFTEN):
            self.run()

    def run(self) -> None:
        """Run an attempt of nothing."""
        mine, theirs = socket.socketpair()
        with mine, theirs:
            line_over(theirs, NAME).send(RunAttempt(deploy=self._deploy(), term=0))
            storage = _Nowhere(self._plan)
            process = JobProcess(line_over(mine, NAME), NoJobSession(), storage, SystemClock())
            process.run(process.await_order())

    def _deploy(self) -> Deploy:
        return Deploy(
            application_id=ApplicationId(NAME),
            run_id=RunId(NAME),
            job_id=JobId(NAME),
            name=NAME,
            attempt=1,
            driver=Incarnation(NAME),
            plan=Pointer(path=NAME, digest=digest(self._plan), size=len(self._plan)),
            staged=NAME,
            writer=NAME,
            result_size_max=1 << 10,
        )


class _Nowhere(LocalStorage):
    """Has the plan, and keeps nothing."""

    def __init__(self, plan: bytes) -> None:
        super().__init__(Path(NAME))
        self._plan = plan

    def read(self, path: str) -> bytes:
        """Return the plan."""
        return self._plan

    def publish(self, path: str, data: bytes) -> None:
        """Keep nothing."""
