"""The demo on a Spark cluster kills executors: its own, and nobody else's on this machine."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
LOOKS = ("-c", "print('runs', flush=True); input()", "CoarseGrainedExecutorBackend")
"""A program whose command line looks like that of an executor."""


def test_only_executors_below_its_own_directory_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setenv("UNDERSTUDY_TAG", "understudy:c/r/j/1/d")
    executors = runpy.run_path(str(EXAMPLES / "demo_cluster.py"))["executors"]
    started = {}
    for name in ("mine", "others"):
        place = tmp_path / name / "worker-0" / "app-1" / "0"
        place.mkdir(parents=True)
        started[name] = subprocess.Popen(
            [sys.executable, *LOOKS], cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
    try:
        for one in started.values():
            assert one.stdout is not None
            assert b"runs\n" == one.stdout.readline()

        assert [started["mine"].pid] == list(executors(tmp_path / "mine"))
    finally:
        for one in started.values():
            one.communicate(b"\n")
