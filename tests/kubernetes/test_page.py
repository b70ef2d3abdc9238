"""docs/kubernetes.md: who has only that page gets from nothing to a running application."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.house.repository import ROOT
from tests.kubernetes import build
from tests.kubernetes.api import CORE
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.nodes import Node, understudy_image
from tests.support.pages import Reader, blocks

pytestmark = pytest.mark.kubernetes

PAGE = ROOT / "docs/kubernetes.md"
IMAGE = "understudy:latest"
WITHOUT_SPARK = '''\
"""What the application of the page prints, without Spark."""

import understudy


@understudy.job
def count(ctx: understudy.JobContext, size: int) -> int:
    return size


print(f"result: {count.run(1_000_000).value} rows")
'''


@pytest.fixture
def volumes(kubernetes: ControlPlane, tmp_path: Path) -> Iterator[None]:
    """Have a volume for the claim of the manifests: no controller here makes some."""
    place = f"{CORE}/persistentvolumes"
    (tmp_path / "data").mkdir()
    spec = {
        "capacity": {"storage": "10Gi"},
        "accessModes": ["ReadWriteMany"],
        "hostPath": {"path": str(tmp_path / "data")},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    kubernetes.admin.create(place, {"metadata": {"name": "page"}, "spec": spec})
    yield
    kubernetes.admin.delete(f"{place}/page")


@pytest.mark.parametrize("spark", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_reader_gets_from_nothing_to_a_running_application(
    kubernetes: ControlPlane, volumes: None, tmp_path: Path, *, spark: bool
) -> None:
    checkout = _checkout(tmp_path, spark=spark)
    reader = Reader(checkout, _variables(kubernetes, tmp_path))
    with Node(kubernetes, "page", {IMAGE: understudy_image()}):
        for block in blocks(PAGE):
            reader.follow(replace(block, text=block.text.replace("=10m", "=3m")))

    assert kubernetes.admin.find(f"{CORE}/namespaces/flights") is None


def _checkout(place: Path, *, spark: bool) -> Path:
    """Return a directory with the manifests, for pods without containers.

    They share the addresses of one host, and its user, to whom a Secret belongs.
    """
    checkout = place / "checkout"
    manifests = checkout / "deploy/kubernetes"
    shutil.copytree(ROOT / "deploy/kubernetes", manifests)
    for file in manifests.rglob("*.yaml"):
        text = file.read_text().replace("=0.0.0.0", "=$(POD_IP)")
        file.write_text(text.replace("defaultMode: 0440", "defaultMode: 0400"))
    if not spark:
        (manifests / "etl/etl.py").write_text(WITHOUT_SPARK)
        settings = manifests / "settings/config.yaml"
        text = settings.read_text()
        settings.write_text(
            text.replace("taskmanager:\n", "taskmanager:\n  driver.type: session-less\n")
        )
    return checkout


def _variables(plane: ControlPlane, place: Path) -> dict[str, str]:
    """Return an environment whose kubectl reaches the control plane."""
    programs = place / "bin"
    programs.mkdir()
    kubectl = programs / "kubectl"
    kubectl.write_text(f'#!/bin/sh\nexec "{build.build()}" kubectl "$@"\n')
    kubectl.chmod(0o700)
    path = f"{programs}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.defpath}"
    kubeconfig = shutil.copy(plane.kubeconfig(), place / "kubeconfig")
    return {**os.environ, "PATH": path, "KUBECONFIG": str(kubeconfig), "HOME": str(place)}
