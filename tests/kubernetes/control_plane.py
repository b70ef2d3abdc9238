"""A Kubernetes control plane on loopback: etcd, API server, controllers and scheduler, real ones.

Each is a process of its own, so that a test can freeze, kill or restart one of them. A start takes
three seconds. There are no nodes: see `kubelet`. But for addresses (the API server refuses those of
loopback as endpoints of a Service) it does what any cluster does: service accounts, RBAC, Pod
Security, garbage collection, node life cycle.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

import httpx
import pytest

from tests.kubernetes import build, flags
from tests.kubernetes.api import AUTHORIZATION, CORE, Api, await_that, path
from tests.kubernetes.audit import POLICY, Audit
from tests.kubernetes.component import Component
from tests.kubernetes.keys import ADMIN, Keys, User
from tests.support.daemons import Servers
from tests.support.zookeeper import LOOPBACK, free_port

COMMAND_S = 60.0

_numbers = itertools.count(1)


class ControlPlane(Servers):
    """A control plane with its own data and ports, which ends with this process.

    ``further`` flags by component, as ``{"kube-apiserver": ["--v=4"]}``, stand after ours, and the
    last of a name holds. Without ``controllers`` there are only etcd and the API server: enough for
    Leases, ConfigMaps and rights.
    """

    def __init__(
        self,
        directory: Path,
        *,
        controllers: bool = True,
        further: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.directory = directory
        self.keys = Keys(directory / "keys")
        self.audit = Audit(directory / "audit.log")
        self.url = f"https://{LOOPBACK}:{(port := free_port())}"
        self._further = dict(further or {})
        self._clients: list[Api] = []
        self._etcd_url, peers = (f"http://{LOOPBACK}:{free_port()}" for _ in range(2))
        policy = directory / "audit-policy.json"
        policy.write_text(POLICY)
        self.etcd = self._component(
            "etcd", flags.of_etcd(directory / "etcd", self._etcd_url, peers), self._etcd_serves
        )
        self.api_server = self._component(
            "kube-apiserver",
            flags.of_api_server(self.keys, self._etcd_url, port, policy, self.audit.path),
            self.is_ready,
        )
        self.controllers = self._component(
            "kube-controller-manager", flags.of_controllers(self.keys, self.url)
        )
        self.scheduler = self._component("kube-scheduler", flags.of_scheduler(self.keys, self.url))
        self.components = [self.etcd, self.api_server]
        if controllers:
            self.components += [self.controllers, self.scheduler]
        self.admin = self.client()

    def start(self) -> Self:
        """Start what does not run; return when the API server is ready."""
        for component in self.components:
            if not component.runs:
                component.start()
        return self

    def kill(self) -> None:
        """Kill everything. Idempotent."""
        for component in reversed(self.components):
            component.kill()
        for client in self._clients:
            client.close()

    def is_ready(self) -> bool:
        """Return whether the API server says that it is ready."""
        with contextlib.suppress(httpx.HTTPError):
            return self.admin.http.get("/readyz").is_success
        return False

    def client(self, user: User = ADMIN) -> Api:
        """Return a client that is this user by its certificate; closed with the control plane."""
        return self._kept(Api(self.url, self.keys.client_context(user)))

    def client_with_token(self, token: str) -> Api:
        """Return a client that is the bearer of a token; closed with the control plane."""
        return self._kept(Api(self.url, self.keys.client_context(), token))

    def kubeconfig(self, user: User | str = ADMIN, url: str | None = None) -> Path:
        """Write a kubeconfig of a user, or of the bearer of a token; return its path.

        ``url`` leads through something else than the API server's own port.
        """
        file = self.keys[f"{next(_numbers)}.kubeconfig"]
        return self.keys.write_kubeconfig(file, url or self.url, user)

    def kubectl(self, *arguments: str, stdin: str = "", user: User = ADMIN) -> str:
        """Return what kubectl prints; raise ``AssertionError`` with what it complains of."""
        kubeconfig = self.keys.write_kubeconfig(self.keys["kubectl.kubeconfig"], self.url, user)
        done = subprocess.run(
            [str(build.executable()), "kubectl", f"--kubeconfig={kubeconfig}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
            # What a server can do is kept by its port, which another server may have had before.
            env={**os.environ, "KUBECACHEDIR": str(self.directory / "kubectl")},
        )
        assert 0 == done.returncode, done.stderr
        return done.stdout

    @contextlib.contextmanager
    def namespace(self, labels: Mapping[str, str] | None = None) -> Iterator[str]:
        """Create a namespace with its default service account; delete it with all it holds.

        What is in it goes after the block, when the controllers get to it.
        """
        name = f"test-{os.getpid()}-{next(_numbers)}"
        metadata = {"name": name, "labels": dict(labels or {})}
        self.admin.create(f"{CORE}/namespaces", {"metadata": metadata})
        if self.controllers in self.components:
            account = path(CORE, "serviceaccounts", "default", name)
            await_that(f"{account} is there", lambda: self.admin.find(account))
        try:
            yield name
        finally:
            self.admin.delete(f"{CORE}/namespaces/{name}")

    def service_account(self, name: str, namespace: str) -> str:
        """Create a service account; return its user name."""
        place = path(CORE, "serviceaccounts", namespace=namespace)
        self.admin.create(place, {"metadata": {"name": name}})
        return f"system:serviceaccount:{namespace}:{name}"

    def token(self, name: str, namespace: str, lifetime_s: int = 3600) -> str:
        """Return a token of a service account; the API server gives none for less than 600 s."""
        place = path(CORE, "serviceaccounts", f"{name}/token", namespace)
        asked = {"spec": {"expirationSeconds": lifetime_s}}
        return str(self.admin.create(place, asked)["status"]["token"])

    def may(self, user: str, verb: str, resource: str, namespace: str, group: str = "") -> bool:
        """Return whether the API server lets a user do this now."""
        attributes = {"namespace": namespace, "verb": verb, "group": group, "resource": resource}
        asked = {"spec": {"user": user, "resourceAttributes": attributes}}
        answer = self.admin.create(f"{AUTHORIZATION}/subjectaccessreviews", asked)
        return bool(answer["status"]["allowed"])

    def _kept(self, client: Api) -> Api:
        self._clients.append(client)
        return client

    def _component(
        self, name: str, line: Sequence[str], serves: Callable[[], bool] = lambda: True
    ) -> Component:
        command = [str(build.executable()), name, *line, *self._further.get(name, ())]
        return Component(name, self.directory / f"{name}.log", command, serves)

    def _etcd_serves(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{self._etcd_url}/readyz", trust_env=False).is_success
        return False


def need() -> None:
    """Have the executable there, or skip the test that asks."""
    if why := build.why_not():
        pytest.skip(why)
    build.build()


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Return a running control plane, shared by all tests of a pytest process.

    Each test uses namespaces of its own and leaves the control plane running. A test that kills or
    freezes part of one needs its own.
    """
    need()
    with ControlPlane(tmp_path_factory.mktemp("kubernetes")) as plane:
        yield plane
