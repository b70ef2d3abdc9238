"""Checks of the options of ``high-availability.type: kubernetes``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy.config import options
from understudy.errors import ConfigurationError
from understudy.ha.backends.kubernetes import options as k8s

if TYPE_CHECKING:
    from understudy.config import Configuration

TYPE = "kubernetes"


def check(configuration: Configuration) -> None:
    """Raise `ConfigurationError` if options are set that nothing reads, or that contradict."""
    if configuration.get(options.HA_TYPE).lower() == TYPE:
        _check_lease(configuration)
        return
    for key in (*k8s.COMMON, k8s.K8S_LOCK.key):
        if key in configuration.settings:
            configuration.warnings.append(
                f"{key} does nothing here: {options.HA_TYPE.key} is not {TYPE}"
            )


def _check_lease(configuration: Configuration) -> None:
    written = configuration.settings
    for own, common in k8s.COMMON.items():
        mine, theirs = written.get(own), written.get(common.key)
        if mine is not None and theirs is not None and common.parse(mine) != common.parse(theirs):
            raise ConfigurationError(
                f"{own} is {mine}, and {common.key} is {theirs}: set one of them"
            )
    lease_s = k8s.period(configuration, k8s.K8S_LEASE_DURATION)
    orphan_s = configuration.get(options.ORPHAN_TIMEOUT)
    if lease_s >= orphan_s:
        configuration.warnings.append(
            f"{k8s.K8S_LEASE_DURATION.key} ({lease_s:g} s) is not shorter than "
            f"{options.ORPHAN_TIMEOUT.key} ({orphan_s:g} s): when the leader's host is lost, the "
            "drivers end before somebody else leads, and their jobs start again"
        )
