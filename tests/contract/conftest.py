"""The implementations that the contract suites run over."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.control_plane import kubernetes
from tests.support import zygote
from tests.support.distributions import sqlite
from tests.support.faulty_register import Faults, FaultyRegister
from tests.support.kubernetes import fake_api, kubeconfig_for
from tests.support.memory_storage import MemoryStorage
from tests.support.s3 import BUCKET, moto
from tests.support.zookeeper import Server, zookeeper
from tests.support.zygote import Zygote
from understudy.config import options
from understudy.ha.backends import open_register
from understudy.ha.backends.embedded import EmbeddedRegister
from understudy.ha.backends.filesystem import FilesystemRegister
from understudy.ha.backends.kubernetes import options as k8s
from understudy.ha.backends.zookeeper import options as zk
from understudy.ha.register import Register
from understudy.ha.storage import BlockingStorage, FsspecStorage, LocalStorage

__all__ = ["fake_api", "kubernetes", "moto", "sqlite", "zookeeper"]

PATIENCE_S = 60.0
"""No wait here takes a second; after this time a test hangs."""


@dataclass(frozen=True)
class Backend:
    """One backend: ``open`` opens its register again, as another process would."""

    name: str
    open: Callable[[], Register]

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a test; fail it if it hangs."""

        async def patiently() -> None:
            async with asyncio.timeout(PATIENCE_S):
                await work

        asyncio.run(patiently())


@pytest.fixture(
    params=[
        "embedded",
        "filesystem",
        "zookeeper",
        "kubernetes",
        "fake-kubernetes",
        "fake-kubernetes-configmap",
        "sqlite",
        "faulty",
    ]
)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """Return each backend in turn, and the fake that other tests put in front of one."""
    if request.param == "zookeeper":
        server: Server = request.getfixturevalue("zookeeper")
        settings = {
            options.HA_TYPE.key: "zookeeper",
            zk.ZK_QUORUM.key: server.connect_string,
            zk.ZK_SESSION_TIMEOUT.key: "10 s",
        }
        cluster = uuid.uuid4().hex
        return Backend("zookeeper", lambda: open_register("zookeeper", cluster, settings))
    if "kubernetes" in request.param:
        where = "kubernetes" if request.param == "kubernetes" else "fake-kubernetes"
        settings = {
            options.HA_TYPE.key: "kubernetes",
            options.K8S_CONFIG_FILE.key: str(kubeconfig_for(request, where)),
            k8s.K8S_LOCK.key: k8s.CONFIG_MAP if "configmap" in request.param else k8s.LEASE,
        }
        cluster = uuid.uuid4().hex
        return Backend("kubernetes", lambda: open_register("kubernetes", cluster, settings))
    if request.param == "sqlite":
        # Only for this test: elsewhere in this process the backend is not installed.
        installed: Path = request.getfixturevalue("sqlite")
        request.getfixturevalue("monkeypatch").syspath_prepend(installed)
        settings = {
            options.HA_TYPE.key: "sqlite",
            "high-availability.sqlite.directory": str(tmp_path),
            "high-availability.sqlite.poll-interval": "1 ms",
        }
        return Backend("sqlite", lambda: open_register("sqlite", "contract", settings))
    if request.param == "filesystem":
        return Backend("filesystem", lambda: FilesystemRegister(tmp_path / "ha" / "register"))
    register = EmbeddedRegister()
    if request.param == "embedded":
        return Backend("embedded", lambda: register)
    return Backend("faulty", lambda: FaultyRegister(register, Faults()))


@pytest.fixture(params=["local", "memory", "s3", "renaming", "fake"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> BlockingStorage:
    """Return each storage in turn, and the fake that other tests use."""
    if request.param == "local":
        return LocalStorage(tmp_path / "storage")
    if request.param == "memory":
        return FsspecStorage(f"memory://{uuid.uuid4().hex}")
    if request.param == "s3":
        request.getfixturevalue("moto")
        return FsspecStorage(f"s3://{BUCKET}/{uuid.uuid4().hex}/ha")
    if request.param == "renaming":
        return FsspecStorage(f"local://{tmp_path}/storage")
    return MemoryStorage()


@pytest.fixture(scope="session")
def breeder() -> Iterator[Zygote]:
    """Start the process from which all others are forked."""
    with zygote.started("tests.contract.actors") as started:
        yield started


@pytest.fixture
def processes(breeder: Zygote) -> Iterator[Zygote]:
    """Start real processes; leftover ones are killed after the test."""
    yield breeder
    breeder.close_children()
