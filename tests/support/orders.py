"""The order to run an attempt, for tests of what runs one."""

from __future__ import annotations

from typing import Any

from understudy.model import ApplicationId, Incarnation, JobId, Pointer, RunId
from understudy.rpc.messages import Deploy


def deploy(**given: Any) -> Deploy:
    """Return the order to run the first attempt of ``job``; ``given`` replaces fields."""
    return Deploy(
        **{
            "application_id": ApplicationId("application"),
            "run_id": RunId("run"),
            "job_id": JobId("job"),
            "name": "job",
            "attempt": 1,
            "driver": Incarnation("driver"),
            "plan": Pointer(path="plan", digest="", size=0),
            "staged": "staged",
            "writer": "",
            "result_size_max": 1 << 20,
            **given,
        }
    )
