"""Fixtures of the Kubernetes backend: the fake API server, and registers on it."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.kubernetes import fake
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.fake import NAMESPACE, TOKEN, FakeApi, started
from understudy.ha.backends.kubernetes import options as k8s
from understudy.ha.backends.kubernetes.objects import ENTRIES
from understudy.ha.backends.kubernetes.register import KubernetesRegister
from understudy.kubernetes.access import Access, find_access
from understudy.kubernetes.client import Client, RequestLimits, Traffic
from understudy.model import Incarnation, LeaderRecord

REAL = "UNDERSTUDY_TEST_KUBECONFIG"
"""The kubeconfig file of an API server that the tests of the contracts use in place of the fake."""

CLUSTER = "flights-cluster-config-map"
NONCE = "0123456789abcdef"
APPLICATION = f"flights-{NONCE}-config-map"
RECORD = LeaderRecord(
    holder=Incarnation("a" * 32),
    term=7,
    session="5b7e",
    name="jobmanager-1",
    host="höst",
    since=1_700_000_000.0,
    rest="http://127.0.0.1:1",
    rpc="unix:/x",
)

PATIENCE_S = 30.0
TICK_S = 0.005


@pytest.fixture
def fake_api() -> Iterator[FakeApi]:
    """Start a fake API server for one test."""
    with started() as api:
        yield api


def kubeconfig_for(request: pytest.FixtureRequest, backend: str) -> Path:
    """Return the kubeconfig of a server: the fake, the one that the environment names, or ours."""
    if backend == "fake-kubernetes":
        path: Path = request.getfixturevalue("tmp_path_factory").mktemp("kubernetes") / "kubeconfig"
        path.write_text(json.dumps(fake.kubeconfig(request.getfixturevalue("fake_api").url)))
        return path
    if real := os.environ.get(REAL):
        return Path(real)
    plane: ControlPlane = request.getfixturevalue("kubernetes")
    return plane.kubeconfig()


def create_namespace(kubeconfig: str, name: str) -> None:
    """Create a namespace, if the server has no such one."""
    access = find_access(kubeconfig, None, name)
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    with _http(access) as http:
        answer = http.post("/api/v1/namespaces", json=body)
    assert answer.status_code in {201, 409}, answer.text


def entries(kubeconfig: str, namespace: str) -> list[str]:
    """Return ``<cluster>/register/<key>`` of each entry in a namespace, as files would be named."""
    access = find_access(kubeconfig, None, namespace)
    found: set[str] = set()
    with _http(access) as http:
        for plural in ("configmaps", "leases"):
            group = "/api/v1" if plural == "configmaps" else "/apis/coordination.k8s.io/v1"
            listed = http.get(f"{group}/namespaces/{namespace}/{plural}").json()
            for item in listed["items"]:
                metadata = item["metadata"]
                if metadata.get("labels", {}).get("type") != "understudy":
                    continue
                cluster = metadata["annotations"]["understudy/cluster-id"]
                keys = json.loads(metadata["annotations"].get(ENTRIES, "{}"))
                found |= {cluster, f"{cluster}/register"}
                found |= {f"{cluster}/register/{key}" for key in keys}
    return sorted(found)


def _http(access: Access) -> httpx.Client:
    headers = {"authorization": f"Bearer {access.read_token()}"} if access.read_token else {}
    return httpx.Client(
        base_url=access.server, verify=access.tls(), headers=headers, trust_env=False
    )


def access_to(api: FakeApi, read_token: Callable[[], str] = lambda: TOKEN) -> Access:
    """Return the access to a fake."""
    return Access(api.url, NAMESPACE, read_token)


def client_on(api: FakeApi) -> Client:
    """Return a client of a fake, for one event loop."""
    return Client(access_to(api), RequestLimits(), Traffic())


def register_on(
    api: FakeApi,
    cluster: str = "flights",
    lock: str = k8s.LEASE,
    limits: RequestLimits | None = None,
) -> KubernetesRegister:
    """Open a register, as another process would."""
    limits = limits or RequestLimits()
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
