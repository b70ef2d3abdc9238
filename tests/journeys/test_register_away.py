"""REST of a leader whose ZooKeeper does not answer: what is known, and its age, at once."""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.journeys import harness
from tests.journeys.conftest import Start
from tests.journeys.test_links import given
from tests.support.zookeeper import Server

pytestmark = pytest.mark.filesystem  # With a server of its own, which stands still.

ASKED = 8


def timed(url: str) -> tuple[float, Any]:
    began = time.monotonic()
    with urllib.request.urlopen(url, timeout=harness.PATIENCE_S) as answer:
        return time.monotonic() - began, json.load(answer)


def test_status_is_told_within_a_second_while_zookeeper_is_away(start: Start, place: Path) -> None:
    with Server(place / "zookeeper") as server:
        options = given(
            "high-availability.type=zookeeper",
            f"high-availability.zookeeper.quorum={server.connect_string}",
            "high-availability.zookeeper.client.session-timeout=40s",
        )
        run = start("three.py", options=options, standbys=1)
        run.at_work()
        before = run.get("/ha/status")
        url = f"{run.rest}/ha/status"
        server.freeze()
        told = [timed(url) for _ in range(ASKED)]
        server.thaw()
        after = run.until("/ha/status", lambda answer: answer["age_seconds"] == 0)
        run.release()

        assert run.finish() == 0
    seconds = sorted(took for took, _ in told)
    assert before["age_seconds"] == 0
    assert seconds[ASKED // 2] < 1.0, seconds  # A stall of the machine may lengthen some.
    assert all(answer["age_seconds"] > 0 for _, answer in told)
    assert {before["leader"]["term"]} == {answer["leader"]["term"] for _, answer in told}
    assert all(answer["history"] for _, answer in told)
    assert after["leader"]["id"] == before["leader"]["id"]
