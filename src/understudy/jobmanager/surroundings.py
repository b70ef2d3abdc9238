"""What Dispatcher and applications get from their process, and what they share in one term."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from understudy.clock import Clock
from understudy.config import Configuration, options
from understudy.core import recovery
from understudy.core.restart import Strategy
from understudy.ha.election import Leadership
from understudy.ha.services import HighAvailabilityServices
from understudy.jobmanager.attention import Problems
from understudy.jobmanager.checkpoint_coordinator import CheckpointSettings
from understudy.jobmanager.cleanup import CleanupSettings, Layouts
from understudy.jobmanager.main_process import MainProcesses
from understudy.jobmanager.main_queue import MainQueue
from understudy.jobmanager.redeployment import NO_CHANGES, Changes
from understudy.jobmanager.resource_manager import ResourceManager
from understudy.jobmanager.submission import Submission
from understudy.jobmanager.workers import WorkerProvider
from understudy.model import (
    ApplicationRecord,
    ApplicationStatus,
    Failure,
    Incarnation,
    RunId,
    Term,
)
from understudy.process.environments import ONE_INTERPRETER, Interpreters
from understudy.process.liveness_lock import Locks
from understudy.process.reporter import Reporter


@dataclass(frozen=True)
class RunEnd:
    """How the run ended."""

    run_id: RunId
    status: ApplicationStatus
    failure: Failure | None = None
    """Why it failed, if this leader has executed it."""


async def _ignore(ended: RunEnd) -> None:
    """Ignore the end of the run."""


@dataclass(frozen=True)
class DispatcherSettings:
    """The options of a Dispatcher, and of the applications that it executes."""

    strategy: Strategy
    checkpoints: CheckpointSettings
    cleanup: CleanupSettings
    shutdown_on_finish: bool
    tombstone_ttl_s: float
    redacted_keys: tuple[str, ...]
    result_size_max: int
    no_retry: tuple[str, ...]
    terminate_on_job_failure: bool | None
    unreached_grace_s: float
    mains_max: int
    artifact_ttl_s: float
    jobs_max: int

    @classmethod
    def of(cls, configuration: Configuration) -> DispatcherSettings:
        """Return the settings of a configuration."""
        return cls(
            Strategy.of(configuration),
            CheckpointSettings.of(configuration),
            CleanupSettings.of(configuration),
            not configuration.stays,
            configuration.get(options.TOMBSTONE_TTL),
            configuration.get(options.REDACTED_KEYS),
            configuration.get(options.RESULT_MAX_SIZE),
            configuration.get(options.NO_RETRY),
            configuration.find(options.TERMINATE_ON_JOB_FAILURE),
            configuration.get(options.UNREACHED_GRACE),
            configuration.get(options.MAINS_MAX),
            configuration.get(options.ARTIFACT_TTL),
            configuration.get(options.JOBS_MAX),
        )


@dataclass(frozen=True)
class Surroundings:
    """The dependencies of a Dispatcher; the same for every term of a process."""

    me: Incarnation
    name: str
    rest: str
    configuration: Configuration
    services: HighAvailabilityServices
    mains: MainProcesses
    locks: Locks
    reporter: Reporter
    clock: Clock
    chance: random.Random
    report_end: Callable[[RunEnd], Awaitable[None]] = _ignore
    """Called with the end of the run by a leader that continues to lead."""
    interpreters: Interpreters = ONE_INTERPRETER
    """Where the Python of applications comes from."""
    workers: WorkerProvider | None = None
    """Who provides TaskManagers on request; None: people start them."""


@dataclass(frozen=True)
class TermContext:
    """What all applications of one term share."""

    around: Surroundings
    settings: DispatcherSettings
    leadership: Leadership
    resources: ResourceManager
    layouts: Layouts
    queue: MainQueue
    attention: Problems
    """Problems that need a person, as met by this leader."""
    incarnation: str
    """The incarnation of the cluster."""
    submission: Submission | None
    changes: Changes = NO_CHANGES
    """Changes of a person to the run that was unfinished when the process was started."""

    own_settings: bool = False
    """Whether all applications bring settings of their own, over those of the cluster; else only
    those do that were submitted by a request."""

    def settings_of(self, record: ApplicationRecord) -> DispatcherSettings:
        """Return the settings that an application is executed with."""
        brings = self.own_settings or record.request
        if not brings or not record.configuration:
            return self.settings
        return DispatcherSettings.of(self.around.configuration.with_settings(record.configuration))

    def ended_runs(self) -> tuple[RunId, ...]:
        """Return the runs that have ended lately, oldest first."""
        seen = self.around.services.registry.seen
        return recovery.ended_lately(seen[0]) if seen else ()

    @property
    def term(self) -> Term:
        """Return the fencing token."""
        return self.leadership.term
