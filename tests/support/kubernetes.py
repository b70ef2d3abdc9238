"""Fixtures of the Kubernetes backend: the fake API server, and registers on it."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.fake import NAMESPACE, TOKEN, FakeApi, kubeconfig, started
from understudy.config import options
from understudy.ha.backends.kubernetes import options as k8s
from understudy.ha.backends.kubernetes.access import Access
from understudy.ha.backends.kubernetes.client import Limits
from understudy.ha.backends.kubernetes.register import KubernetesRegister

REAL = "UNDERSTUDY_TEST_KUBECONFIG"
"""The kubeconfig file of an API server that the tests of the contracts use in place of the fake."""

PATIENCE_S = 30.0
TICK_S = 0.005


@pytest.fixture
def fake_api() -> Iterator[FakeApi]:
    """Start a fake API server for one test."""
    with started() as api:
        yield api


def settings_for(api: FakeApi, directory: Path) -> dict[str, str]:
    """Return the settings of processes that use this server."""
    path = directory / "kubeconfig"
    path.write_text(json.dumps(kubeconfig(api.url)))
    return {options.HA_TYPE.key: "kubernetes", k8s.K8S_CONFIG_FILE.key: str(path)}


def settings_of_server(request: pytest.FixtureRequest, directory: Path) -> dict[str, str]:
    """Return the settings for the real server that the environment names, else for a fake."""
    if real := os.environ.get(REAL):
        return {options.HA_TYPE.key: "kubernetes", k8s.K8S_CONFIG_FILE.key: real}
    return settings_for(request.getfixturevalue("fake_api"), directory)


def access_to(api: FakeApi, read_token: Callable[[], str] = lambda: TOKEN) -> Access:
    """Return the access to a fake."""
    return Access(api.url, NAMESPACE, read_token)


def register_on(
    api: FakeApi, cluster: str = "flights", lock: str = k8s.LEASE, limits: Limits | None = None
) -> KubernetesRegister:
    """Open a register, as another process would."""
    limits = limits or Limits()
    return KubernetesRegister(cluster, access_to(api), name=cluster, lock=lock, limits=limits)


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a test; fail it if it hangs."""

    async def patiently() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await work

    asyncio.run(patiently())


async def until(holds: Callable[[], bool]) -> None:
    """Return as soon as a condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        await asyncio.sleep(TICK_S)
