"""What an id or a name on the command line means: exact before begun, and never both for cancel."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from understudy.api.client import ClusterClient
from understudy.api.directory import find_application
from understudy.cli.commands.ask import application_or_job
from understudy.errors import NotFoundError, UsageError
from understudy.model import ApplicationId, ApplicationStatus, Pointer, RunId, Tombstone


def stone(run_id: str, number: int) -> Tombstone:
    return Tombstone(
        application_id=ApplicationId(f"{number:032}"),
        run_id=RunId(run_id),
        name="load",
        status=ApplicationStatus.FINISHED,
        started_at=0.0,
        ended_at=1.0,
        file=Pointer(path="", digest="", size=0),
    )


class Leader:
    """Answers for one application, as `ClusterClient.get` does."""

    def __init__(self, run_id: str, job: str, *, status: str = "RUNNING") -> None:
        self._application = {"id": "a" * 32, "run-id": run_id, "status": status, "name": "app"}
        self._jobs = [{"jid": "b" * 32, "name": job, "state": "RUNNING"}]

    async def get(self, path: str) -> Any:
        """See `ClusterClient.get`."""
        if path == "/jobs/overview":
            return {"jobs": self._jobs}
        wanted = path.rpartition("/")[2]
        if not self._application["run-id"].startswith(wanted):
            raise NotFoundError("there is none")
        return self._application


def named(wanted: str, leader: Leader, *, strict: bool = False) -> str:
    """Return the kind of what is found."""

    async def look() -> dict[str, Any]:
        found = await application_or_job(wanted, strict=strict)(cast("ClusterClient", leader))
        return cast("dict[str, Any]", found)

    return "job" if "jid" in asyncio.run(look()) else "application"


def test_an_exact_run_id_can_be_named_though_another_begins_with_it() -> None:
    stones = [stone("daily", 1), stone("daily-2", 2)]

    assert stones[0] is find_application("daily", [], stones)
    assert stones[1] is find_application("daily-", [], stones)
    with pytest.raises(NotFoundError, match="begins the ids of 2"):
        find_application("dail", [], stones)


@pytest.mark.parametrize("strict", [False, True])
def test_the_name_of_a_job_is_not_taken_for_the_beginning_of_a_run_id(strict: bool) -> None:
    leader = Leader("load-monday", "load")

    assert "job" == named("load", leader, strict=strict)
    assert "application" == named("load-monday", leader, strict=strict)
    assert "application" == named("load-mon", leader, strict=strict)


def test_cancel_refuses_a_word_that_is_a_run_and_a_job_of_it() -> None:
    assert "application" == named("load", Leader("load", "load"))
    assert "application" == named("load", Leader("load", "load", status="INTERRUPTED"), strict=True)
    with pytest.raises(UsageError, match="is run load"):
        named("load", Leader("load", "load"), strict=True)
    with pytest.raises(UsageError, match="is run bbbbb"):
        named("bbbb", Leader("bbbbb", "load"), strict=True)
