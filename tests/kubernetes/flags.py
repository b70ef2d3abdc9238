"""The flags of each component: what a control plane of tests needs to be told, and why."""

from __future__ import annotations

from pathlib import Path

from tests.kubernetes.keys import ADMINS, Keys, User
from tests.support.zookeeper import LOOPBACK

CONTROLLERS = (
    *("garbage-collector", "deployment", "replicaset", "statefulset", "job", "namespace"),
    *("serviceaccount", "root-ca-certificate-publisher", "node-lifecycle", "taint-eviction"),
    *("pod-garbage-collector", "disruption", "endpointslice", "resourcequota"),
    *("clusterrole-aggregation", "persistentvolume-binder"),
    *("persistentvolume-protection", "persistentvolumeclaim-protection"),
)
"""Those whose work a test can see; each of the others costs memory and requests."""

NODE_GRACE_S = 8
"""A node that is silent so long is not ready: a real cluster waits 50 s."""

_API_SERVER = User("kube-apiserver-kubelet-client", ADMINS)
_CONTROLLER = User("system:kube-controller-manager")
_SCHEDULER = User("system:kube-scheduler")

_ALONE = ("--leader-elect=false", "--secure-port=0")
"""There is one of each, and nobody asks for its health."""


def of_etcd(data: Path, clients: str, peers: str) -> list[str]:
    """Return the flags of an etcd that is alone, with the URLs where it listens."""
    return [
        f"--data-dir={data}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        "--unsafe-no-fsync",  # a crash of the machine may lose what a test has written
        "--log-level=error",
    ]


def of_api_server(keys: Keys, etcd: str, port: int, policy: Path, audit: Path) -> list[str]:
    """Return the flags of an API server on this port of loopback."""
    certificate, key = keys.of(_API_SERVER)
    return [
        f"--etcd-servers={etcd}",
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        f"--secure-port={port}",
        "--endpoint-reconciler-type=none",  # a loopback address may be no endpoint
        "--service-cluster-ip-range=10.0.0.0/24",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--client-ca-file={keys.ca}",
        f"--tls-cert-file={keys['server.crt']}",
        f"--tls-private-key-file={keys['server.key']}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={keys['service-accounts.key']}",
        f"--service-account-signing-key-file={keys['service-accounts.key']}",
        f"--kubelet-certificate-authority={keys.ca}",
        f"--kubelet-client-certificate={certificate}",
        f"--kubelet-client-key={key}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--audit-policy-file={policy}",
        f"--audit-log-path={audit}",
        "--audit-log-mode=blocking",  # what has been answered is in the log
        "--profiling=false",
    ]


def of_controllers(keys: Keys, url: str) -> list[str]:
    """Return the flags of the controllers of an API server."""
    kubeconfig = keys.write_kubeconfig(keys["controllers.kubeconfig"], url, _CONTROLLER)
    return [
        f"--kubeconfig={kubeconfig}",
        f"--controllers={','.join(f'{name}-controller' for name in CONTROLLERS)}",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={keys['service-accounts.key']}",
        f"--root-ca-file={keys.ca}",
        f"--node-monitor-grace-period={NODE_GRACE_S}s",
        "--node-monitor-period=1s",
        *_ALONE,
        "--kube-api-qps=200",
        "--kube-api-burst=300",
    ]


def of_scheduler(keys: Keys, url: str) -> list[str]:
    """Return the flags of the scheduler of an API server."""
    kubeconfig = keys.write_kubeconfig(keys["scheduler.kubeconfig"], url, _SCHEDULER)
    return [f"--kubeconfig={kubeconfig}", *_ALONE]
