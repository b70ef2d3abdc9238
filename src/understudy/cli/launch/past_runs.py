"""Summaries of runs without a configured cluster id, one file each, in the user's state directory.

Such a run leaves nothing in its storage. `understudy list` shows it all the same, as long as it is
among the last `PAST_RUNS_MAX`, and `application-result-store.tombstone-ttl` has not passed.
"""

from __future__ import annotations

import time
from pathlib import Path

from msgspec.structs import replace

from understudy.api.client import ClusterClient
from understudy.api.directory import Directory
from understudy.clock import SystemClock
from understudy.config import Configuration, options
from understudy.config.configuration import state_home
from understudy.errors import ConfigurationError, DataError
from understudy.ha.drafts import published
from understudy.ha.format import Format
from understudy.ha.services import HighAvailabilityServices
from understudy.jobmanager.attention import Problems
from understudy.model import NULL, LeaderRecord, Record, RegistryBody, Tombstone, TombstoneFile

PAST_RUNS_MAX = 50
"""Runs that are kept: those of some days of work."""

PAST_RUN_BYTES_MAX = 1 << 20
"""A larger summary is kept without the values of its jobs: fifty take 50 MiB at most."""

TOO_LARGE = "its value was not kept: the values of this run were too large"

_SUFFIX = ".json"


def keep(configuration: Configuration, past: PastRun) -> None:
    """Write the summary of a run, and remove those that are too many or too old.

    Raises ``OSError``, and `ConfigurationError` for a user without a home directory.
    """
    data = past_runs.dump(past, pretty=True)
    if len(data) > PAST_RUN_BYTES_MAX:
        jobs = tuple(
            replace(job, value=NULL, note=TOO_LARGE) if job.value != NULL else job
            for job in past.file.jobs
        )
        data = past_runs.dump(replace(past, file=replace(past.file, jobs=jobs)), pretty=True)
    with published(_directory() / f"{past.cluster_id}{_SUFFIX}") as file:
        file.write(data)
    _forget_old(configuration)


def known(configuration: Configuration) -> dict[str, PastRun]:
    """Return the readable summaries of this storage by cluster id, the last first."""
    found = {}
    for path in _newest_first():
        past = _read(path)
        if past and past.storage == configuration.storage_dir and not _is_old(configuration, past):
            found[past.cluster_id] = past
    return found


def of_cluster(configuration: Configuration, cluster_id: str) -> PastRun | None:
    """Return the summary of a cluster's only run; None without one."""
    directory = _known_directory()
    past = _read(directory / f"{cluster_id.strip('/')}{_SUFFIX}") if directory else None
    return past if past and past.storage == configuration.storage_dir else None


def forget(cluster_id: str) -> str:
    """Remove a summary; return its path, empty if there is none."""
    directory = _known_directory()
    if directory is None:
        return ""
    path = directory / f"{cluster_id.strip('/')}{_SUFFIX}"
    try:
        path.unlink()
    except FileNotFoundError:
        return ""
    return str(path)


def _forget_old(configuration: Configuration) -> None:
    for number, path in enumerate(_newest_first()):
        past = _read(path)
        if number >= PAST_RUNS_MAX or (past and _is_old(configuration, past)):
            path.unlink(missing_ok=True)


def _is_old(configuration: Configuration, past: PastRun) -> bool:
    ttl_s = configuration.get(options.TOMBSTONE_TTL)
    return time.time() - past.tombstone.ended_at > ttl_s


def _read(path: Path) -> PastRun | None:
    """Return a summary; None if it cannot be read: it is a convenience, and others know nothing."""
    try:
        return past_runs.load(path.read_bytes(), str(path))
    except (OSError, DataError):
        return None


def _newest_first() -> list[Path]:
    dated = []
    directory = _known_directory()
    for path in directory.glob(f"*{_SUFFIX}") if directory else ():
        try:
            dated.append((path.stat().st_mtime_ns, path))
        except FileNotFoundError:  # Another command has removed it.
            continue
    return [path for _, path in sorted(dated, reverse=True)]


def _known_directory() -> Path | None:
    """Return where summaries are; None for a user without a home directory, who has none."""
    try:
        return _directory()
    except ConfigurationError:
        return None


def _directory() -> Path:
    return state_home() / "past-runs"


# --- a past run in the shape of a cluster with one tombstone --------------------------------------


class PastRun(Record, frozen=True):
    """How a run ended."""

    cluster_id: str
    storage: str
    """The storage directory of the run."""
    tombstone: Tombstone
    file: TombstoneFile


past_runs = Format("past-run", PastRun)


class PastDirectory(Directory):
    """The contents of a cluster of which a past run is all that remains."""

    def __init__(self, services: HighAvailabilityServices, past: PastRun) -> None:
        super().__init__(services, SystemClock())
        self._past = past

    async def registry(self) -> RegistryBody:
        """Return a registry with the run's tombstone."""
        stone = self._past.tombstone
        return RegistryBody(
            cluster_id=self._past.cluster_id,
            incarnation="",
            ephemeral=True,
            tombstones={stone.run_id: stone},
        )

    async def problems(self) -> Problems:
        """Return none."""
        return {}

    async def buried(self, tombstone: Tombstone) -> TombstoneFile:
        """Return what is known of the run."""
        return self._past.file


class PastClient(ClusterClient):
    """A command's access to a past run: no leader ever answers."""

    def __init__(self, services: HighAvailabilityServices, past: PastRun) -> None:
        super().__init__(services, 0.0)
        self._directory = PastDirectory(services, past)

    async def _leader(self) -> LeaderRecord | None:
        return None

    async def _is_followed(self, leader: LeaderRecord | None) -> bool:
        return False

    async def _line(self) -> list[str] | None:
        return None
