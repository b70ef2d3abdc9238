"""The settings that an application brings to a cluster that runs already."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from understudy.config import options
from understudy.config.configuration import Configuration, redact
from understudy.errors import ConfigurationError

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Brought:
    """Settings of one application, which are valid together with those of the cluster."""

    settings: Mapping[str, str]
    """Ours."""
    conf: Mapping[str, str]
    """Spark's."""
    first_job_id: str = ""
    savepoint: str = ""
    claims: bool = False
    may_be_left: bool = False
    """See `model.StartFrom`, also for ``claims``."""


class BroughtSettings:
    """What applications may bring to one cluster."""

    def __init__(self, cluster: Configuration) -> None:
        self._cluster = cluster
        self.redacted_keys = cluster.get(options.REDACTED_KEYS)
        self.has_sessions = cluster.get(options.DRIVER_KIND) == "spark"
        """Whether drivers have Spark."""
        self.defaults = cluster.passed_on("spark.")
        """The cluster's own settings of Spark."""
        self.requirements = cluster.find(options.PYTHON_REQUIREMENTS) or ""
        """Of applications that bring none."""

    def checked(self, given: Mapping[str, str]) -> Brought:
        """Return an application's settings; raises `ConfigurationError`."""
        conf = {key: text for key, text in given.items() if key.startswith(options.PASSED_ON)}
        Configuration(conf)  # Refuses what no process can be given.
        own = Configuration({key: text for key, text in given.items() if key not in conf})
        for key in own.settings:
            if key not in options.OF_APPLICATIONS:
                raise ConfigurationError(
                    f"{key} is a setting of the cluster, not of one application: leave it out"
                )
        for warning in own.warnings:
            _log.info("of an application's settings: %s", warning)
        for key, shown in redact(own.settings, self.redacted_keys).items():
            if shown != own.settings[key]:
                raise ConfigurationError(
                    f"{key} holds a secret, which would be stored with the application"
                )
        self._cluster.with_settings(own.settings)  # Refuses what does not fit the cluster's.
        return Brought(
            own.settings,
            conf,
            own.find(options.FIRST_JOB_ID) or "",
            own.find(options.RECOVERY_PATH) or "",
            own.get(options.RECOVERY_CLAIM_MODE) == "CLAIM",
            own.get(options.RECOVERY_IGNORE_UNCLAIMED),
        )
