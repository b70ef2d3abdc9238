"""Options of ``high-availability.type: kubernetes``: the API server, the names, and the lease."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from understudy.config import options as common
from understudy.config.option import PERIOD, SAME, TEXT, Kind, Option, choice

if TYPE_CHECKING:
    from understudy.config import Configuration

CLUSTER_ID_CHARS_MAX = 45
"""Flink's limit: names of objects are made from the id, and Kubernetes allows 63 characters."""

LEASE, CONFIG_MAP = "lease", "configmap"

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def is_legal(name: str) -> bool:
    """Return whether Kubernetes accepts a cluster id in the names of objects and in labels."""
    return bool(_LABEL.fullmatch(name)) and len(name) <= CLUSTER_ID_CHARS_MAX


def _cluster_id(text: str) -> str:
    if not is_legal(text):
        raise ValueError(
            f"up to {CLUSTER_ID_CHARS_MAX} lowercase letters, digits and '-', with a letter or "
            "digit at each end"
        )
    return text


def _namespace(text: str) -> str:
    if not _LABEL.fullmatch(text) or len(text) > 63:
        raise ValueError("up to 63 lowercase letters, digits and '-'")
    return text


K8S_CLUSTER_ID = Option(
    "kubernetes.cluster-id",
    Kind("String", _cluster_id),
    None,
    "What the names of the cluster's objects begin with, and their label app. Unset: "
    "high-availability.cluster-id.",
    "generated there if unset",
)
K8S_NAMESPACE = Option(
    "kubernetes.namespace",
    Kind("String", _namespace),
    None,
    "The namespace of the cluster's objects. Unset: the pod's own in a pod, else that of the "
    "kubeconfig's context, else default.",
    "always default if unset there",
)
K8S_CONFIG_FILE = Option(
    "kubernetes.config.file",
    TEXT,
    None,
    "The kubeconfig file that says where the API server is and who we are. Unset: the file that "
    "$KUBECONFIG names, else a pod's service account, else ~/.kube/config.",
    "there a pod's service account is the last choice",
)
K8S_CONTEXT = Option(
    "kubernetes.context",
    TEXT,
    None,
    "The context of the kubeconfig file. Unset: its current-context.",
    SAME,
)
K8S_LOCK = Option(
    "high-availability.kubernetes.leader-election.resource",
    choice(LEASE, CONFIG_MAP),
    LEASE,
    "Where the leader's record is: lease, in the Lease <cluster-id>-leader; configmap, in the "
    "ConfigMap <cluster-id>-cluster-config-map with FLIP-144's annotation "
    "control-plane.alpha.kubernetes.io/leader.",
    "a ConfigMap there",
)
K8S_CONNECTION_TIMEOUT = Option(
    "high-availability.kubernetes.client.connection-timeout",
    PERIOD,
    "15 s",
    "How long a command, or a starting process, tries to reach the API server before it gives up.",
)
K8S_LEASE_DURATION = Option(
    "high-availability.kubernetes.leader-election.lease-duration",
    PERIOD,
    None,
    "How long a standby that sees no renewal waits before it takes over. Unset: "
    "high-availability.leader-election.lease-duration (15 s).",
    SAME,
)
K8S_RENEW_DEADLINE = Option(
    "high-availability.kubernetes.leader-election.renew-deadline",
    PERIOD,
    None,
    "How long a leader may act after sending its last acknowledged renewal; shorter than the "
    "lease. Unset: high-availability.leader-election.renew-deadline (10 s).",
    "15 s there, as long as the lease, so that two leaders may overlap",
)
K8S_RETRY_PERIOD = Option(
    "high-availability.kubernetes.leader-election.retry-period",
    PERIOD,
    None,
    "How often a leader renews its lease; × 1.2 shorter than the renew deadline. Unset: "
    "high-availability.leader-election.retry-period (2 s).",
    "5 s there",
)

COMMON = {
    K8S_LEASE_DURATION.key: common.LEASE_DURATION,
    K8S_RENEW_DEADLINE.key: common.RENEW_DEADLINE,
    K8S_RETRY_PERIOD.key: common.RETRY_PERIOD,
}
"""The common option of each of the backend's own periods."""


def period(configuration: Configuration, own: Option[float]) -> float:
    """Return one of the periods of the lease: the backend's own, else the common one."""
    found = configuration.find(own)
    return configuration.get(COMMON[own.key]) if found is None else found
