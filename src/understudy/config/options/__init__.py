"""The options, each declared once. Where Flink has the key, it has Flink's meaning.

A default that differs from Flink's says why. Each subject has a module; use the options from here:
``options.SLOTS``.
"""

from __future__ import annotations

from understudy.config.option import Option
from understudy.config.options import (
    checkpointing,
    cleanup,
    endpoints,
    high_availability,
    jobs,
    kubernetes,
    processes,
    security,
)
from understudy.config.options.checkpointing import *
from understudy.config.options.cleanup import *
from understudy.config.options.endpoints import *
from understudy.config.options.high_availability import *
from understudy.config.options.jobs import *
from understudy.config.options.kubernetes import *
from understudy.config.options.processes import *
from understudy.config.options.security import *

OPTIONS: tuple[Option[object], ...] = tuple(
    value
    for subject in (
        high_availability,
        jobs,
        checkpointing,
        cleanup,
        processes,
        kubernetes,
        endpoints,
        security,
    )
    for value in vars(subject).values()
    if isinstance(value, Option)
)
"""All options, in the order of declaration; those of a backend are declared with it."""

ON_KUBERNETES: tuple[Option[object], ...] = tuple(
    value for value in vars(kubernetes).values() if isinstance(value, Option)
)
"""Those of Kubernetes."""

PASSED_ON = ("spark.",)
"""Prefixes of keys that go to Spark unchanged."""

OPEN = (*PASSED_ON, kubernetes.ENVIRONMENT_OF_JOBMANAGERS, kubernetes.ENVIRONMENT_OF_TASKMANAGERS)
"""Prefixes of keys of which every one is taken: others than Understudy read them."""

OF_APPLICATIONS: frozenset[str] = frozenset(
    value.key
    for subject in (jobs, checkpointing)
    for value in vars(subject).values()
    if isinstance(value, Option)
) - {checkpointing.SAVEPOINT_ALLOWED_DIRS.key} | {processes.PYTHON_REQUIREMENTS.key}
"""Keys that an application may bring to a cluster that runs already; all others are the
cluster's."""
