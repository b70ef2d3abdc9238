"""Distributions of somebody else's, which tests install with pip."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.repository import ROOT

INSTALL_S = 120.0


@pytest.fixture(scope="session")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the backend ``understudy-sqlite``; return the directory for ``sys.path``."""
    return install(ROOT / "tests/distributions/sqlite", tmp_path_factory.mktemp("sqlite"))


def install(source: Path, target: Path) -> Path:
    """Build a distribution and install it into a directory, without any index."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--target", str(target)]
    done = subprocess.run(
        [*pip, *offline, str(source)],
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    return target
