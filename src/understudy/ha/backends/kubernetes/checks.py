"""Checks of the options of ``high-availability.type: kubernetes``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy.config import options
from understudy.config.option import Option
from understudy.errors import ConfigurationError
from understudy.ha.backends.kubernetes import options as k8s

if TYPE_CHECKING:
    from understudy.config import Configuration

TYPE = "kubernetes"

_PERIODS: tuple[tuple[Option[float], Option[float]], ...] = (
    (k8s.K8S_LEASE_DURATION, options.LEASE_DURATION),
    (k8s.K8S_RENEW_DEADLINE, options.RENEW_DEADLINE),
    (k8s.K8S_RETRY_PERIOD, options.RETRY_PERIOD),
)
"""The backend's own options, and the common ones."""


def check(configuration: Configuration) -> None:
    """Raise `ConfigurationError` if options are set that nothing reads, or that contradict."""
    if configuration.get(options.HA_TYPE).lower() == TYPE:
        _check_lease(configuration)
        return
    for key in (*(own.key for own, _ in _PERIODS), k8s.K8S_LOCK.key):
        if key in configuration.settings:
            configuration.warnings.append(
                f"{key} does nothing here: {options.HA_TYPE.key} is not {TYPE}"
            )


def _check_lease(configuration: Configuration) -> None:
    for own, general in _PERIODS:
        mine, theirs = configuration.settings.get(own.key), configuration.settings.get(general.key)
        if mine is not None and theirs is not None and own.parse(mine) != general.parse(theirs):
            raise ConfigurationError(
                f"{own.key} is {mine}, and {general.key} is {theirs}: set one of them"
            )
