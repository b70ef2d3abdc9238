"""What a job has cached of a target is read anew once it has written there, as with df.write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.journeys import harness
from tests.journeys.spark.conftest import put

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_a_write_is_seen_by_what_was_cached_of_its_target(ground: Path) -> None:
    harness.python(ground, str(put(ground, "cached.py")))

    assert {
        "first": [3],
        "append": [8, 8],
        "overwrite": [7, 7],
        "thread": [9, 9],
        "batch": [10, 10],
    } == json.loads((ground / "seen.json").read_text())
