"""Helm, for tests of a chart: it is asked about files alone, and keeps nothing outside a test."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.kubernetes import build

COMMAND_S = 120.0


class Helm:
    """Helm with a home of its own."""

    def __init__(self, home: Path) -> None:
        if why := build.why_not(build.HELM):
            pytest.skip(why)
        self._program = build.build(build.HELM)
        homes = ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")
        self._environment = {**os.environ, **{name: str(home / name.lower()) for name in homes}}

    def run(self, *arguments: str) -> str:
        """Return what helm prints; raise ``AssertionError`` with what it complains of."""
        done = subprocess.run(
            [str(self._program), *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert 0 == done.returncode, done.stdout + done.stderr
        return done.stdout
