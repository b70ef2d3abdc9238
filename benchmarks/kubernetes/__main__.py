"""``python -m benchmarks.kubernetes``: measure on a real API server, and write the report.

A run that measures less than everything writes below ``out`` unless it is told where to.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.beside_server import Page
from benchmarks.kubernetes import failover, load
from tests.kubernetes import build
from tests.kubernetes.control_plane import ControlPlane


def _start(place: Path) -> ControlPlane:
    if why := build.why_not():
        sys.exit(why)
    build.build()
    return ControlPlane(place, controllers=False)


def _versions(plane: ControlPlane) -> str:
    found = plane.admin.find("/version")
    assert found is not None, "the API server does not serve"
    return f", Kubernetes {found['gitVersion']}"


PAGE = Page(
    "kubernetes",
    "Benchmarks: on Kubernetes",
    {"failover": failover.run, "load": load.run},
    _start,
    _versions,
)

if __name__ == "__main__":
    sys.exit(PAGE.main(__doc__))
