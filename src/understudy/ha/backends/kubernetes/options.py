"""Options of ``high-availability.type: kubernetes``: the leader's record and its lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy.config import options
from understudy.config.option import PERIOD, SAME, Option, choice
from understudy.errors import ConfigurationError

if TYPE_CHECKING:
    from understudy.config import Configuration

LEASE, CONFIG_MAP = "lease", "configmap"

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
    K8S_LEASE_DURATION.key: options.LEASE_DURATION,
    K8S_RENEW_DEADLINE.key: options.RENEW_DEADLINE,
    K8S_RETRY_PERIOD.key: options.RETRY_PERIOD,
}
"""The common option of each of the backend's own periods."""


def period(configuration: Configuration, own: Option[float]) -> float:
    """Return one of the periods of the lease: the backend's own, else the common one."""
    found = configuration.find(own)
    return configuration.get(COMMON[own.key]) if found is None else found


# --- checks ---------------------------------------------------------------------------------------


TYPE = "kubernetes"


def check(configuration: Configuration) -> None:
    """Raise `ConfigurationError` if options are set that nothing reads, or that contradict."""
    if configuration.get(options.HA_TYPE).lower() == TYPE:
        _check_lease(configuration)
        return
    if (configuration.find(options.EXECUTION_TARGET) or "") in options.ON_KUBERNETES_TARGETS:
        return  # A command asks a cluster in pods over REST, with the settings of its start.
    for key in (*COMMON, K8S_LOCK.key):
        if key in configuration.settings:
            configuration.warnings.append(
                f"{key} does nothing here: {options.HA_TYPE.key} is not {TYPE}"
            )


def _check_lease(configuration: Configuration) -> None:
    written = configuration.settings
    for own, flinks in COMMON.items():
        mine, theirs = written.get(own), written.get(flinks.key)
        if mine is not None and theirs is not None and flinks.parse(mine) != flinks.parse(theirs):
            raise ConfigurationError(
                f"{own} is {mine}, and {flinks.key} is {theirs}: set one of them"
            )
    configuration.warn_of_orphans(K8S_LEASE_DURATION, period(configuration, K8S_LEASE_DURATION))
