"""Applications submitted over REST to a cluster that stays, while its leaders are killed."""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.journeys import harness
from tests.journeys.harness import SESSION_LESS, command, lines
from tests.journeys.members import until
from understudy.process.plans import encode_plan

OPTIONS = (*SESSION_LESS, *harness.impatient())
ID = "0123456789abcdef" * 2
OTHER = "f" * 32


@pytest.fixture
def session(place: Path) -> Iterator[Path]:
    """Start a session of two JobManagers and a TaskManager."""
    command(place, "session", "start", *OPTIONS)
    yield place
    harness.kill(harness.processes_of(place))


def status(place: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        command(place, "session", "status", *OPTIONS, "--json", code=None).stdout
    )
    return found


def ask(address: str, path: str, **more: Any) -> httpx.Response:
    """Ask a JobManager until it answers anything but that nobody leads."""
    end = time.monotonic() + harness.PATIENCE_S
    while True:
        answer = httpx.request("POST", f"{address}{path}", timeout=60, **more)
        if answer.status_code != 503 or time.monotonic() > end:
            return answer
        time.sleep(0.2)


@pytest.mark.long  # Units: tests/api/test_runs.py.
def test_what_was_uploaded_to_a_leader_that_is_killed_runs_under_the_next(session: Path) -> None:
    place = session
    until(lambda: bool(status(place)["standbys"]))
    known = status(place)
    (standby,) = (one["rest"] for one in known["standbys"])
    code = io.BytesIO()
    with zipfile.ZipFile(code, "w") as archive:
        archive.writestr("three.py", (Path(__file__).parent / "apps" / "three.py").read_text())
    form = {"file": ("three.zip", code.getvalue())}
    artifact = httpx.post(f"{known['leader']['rest']}/artifacts/upload", files=form).json()["id"]
    os.kill(httpx.get(f"{standby}/ha/status").json()["leader"]["pid"], signal.SIGKILL)
    said = {"applicationId": ID, "entryClass": "three.py", "cwd": str(place)}
    path = f"/artifacts/{artifact}/run-application"
    first = ask(standby, path, json=said)
    again = ask(standby, path, json=said)
    until(lambda: lines(place, "jobs.txt") == ["first 1", "long 1"])
    needed = httpx.delete(f"{standby}/artifacts/{artifact}")
    (place / "go").touch()
    shown = f"{standby}/applications/{ID}"
    until(lambda: httpx.get(shown).json()["status"] == "FINISHED")
    until(lambda: httpx.delete(f"{standby}/artifacts/{artifact}").status_code == 200)
    late = ask(standby, path, json=said)

    assert (202, {"applicationid": ID}) == (first.status_code, first.json())
    assert (202, {"applicationid": ID}) == (again.status_code, again.json())
    assert 409 == needed.status_code
    assert ["first 1", "long 1", "third 1"] == lines(place, "jobs.txt")
    assert (409, "FINISHED") == (late.status_code, late.json()["status"])


@pytest.mark.long  # Units: tests/api/test_runs.py.
def test_one_job_of_an_artifact_and_a_plan_alone_run_under_their_ids(session: Path) -> None:
    place = session
    until(lambda: bool(status(place)["leader"]))
    rest = status(place)["leader"]["rest"]
    form = {"file": ("note.py", b"open('noted.txt', 'w').write('once')\n")}
    artifact = httpx.post(f"{rest}/artifacts/upload", files=form).json()["id"]
    said = {"applicationId": ID, "cwd": str(place)}
    one = ask(rest, f"/artifacts/{artifact}/run", json=said)
    plan = base64.b64encode(encode_plan("answer", lambda _: 42, (), {})).decode()
    alone = ask(rest, "/jobs", json={"plan": plan, "jobId": OTHER})
    result = f"{rest}/jobs/{OTHER}/execution-result"
    until(lambda: httpx.get(result).json()["status"]["id"] == "COMPLETED")
    found = httpx.get(result).json()["job-execution-result"]
    until(lambda: httpx.get(f"{rest}/applications/{ID}").json()["status"] == "FINISHED")
    until(lambda: httpx.get(f"{rest}/applications/{OTHER}").json()["status"] == "FINISHED")
    (job,) = httpx.get(f"{rest}/applications/{ID}").json()["jobs"]

    assert (200, ID, job["jid"]) == (
        one.status_code,
        one.json()["applicationId"],
        one.json()["jobid"],
    )
    assert ["once"] == lines(place, "noted.txt")
    assert (202, f"/jobs/{OTHER}") == (alone.status_code, alone.json()["jobUrl"])
    assert ("SUCCEEDED", 42) == (found["application-status"], found["value"])
