"""Which path in storage holds what, for one cluster.

``<cluster-id>/``
    ``coordination.json``       which register knows this cluster, where that is not in storage
    ``register/``               the register, where the backend is ``filesystem``
    ``locks/<incarnation>``     liveness locks of the processes of this host
    ``applications/<nonce>/``   record, ``plans/``, ``staged/``, ``failures/``, ``blobs/``,
                                ``checkpoints/`` and ``tables/`` of one application
    ``permits/<trigger>``       a directory that a person has named for a savepoint, while a
                                command of theirs asks for it
    ``code/<digest>/``          artifacts laid out for Python's path, shared by this host
    ``tombstones/<run>~<term>.json``
                                what remains of an application for a time, as the leader of
                                that term wrote it
``job-result-store/<cluster-id>/`` and ``application-result-store/<cluster-id>/``
    ``<id>_DIRTY.json``, then ``<id>.json`` (Flink's names)
"""

from __future__ import annotations

import hashlib
import re

from understudy.config.configuration import quoted
from understudy.errors import ConfigurationError
from understudy.model import RunId, Term

REGISTER, LOCKS = "register", "locks"
"""What lies in a cluster's directory beside its data."""

STORAGE_DIGITS = 12
"""By so many digits the storages are told apart that the clusters of one host use."""

_CLUSTER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TOMBSTONE = re.compile(r"([A-Za-z0-9._-]+)~([0-9]+)\.json")
"""No run id has a tilde."""


def cluster_directory(cluster_id: str) -> str:
    """Return the directory name of a cluster; Flink's default id begins with a slash."""
    name = cluster_id.strip("/").replace("/", "-")
    if not _CLUSTER_ID.fullmatch(name) or name in {"job-result-store", "application-result-store"}:
        raise ConfigurationError(
            f"high-availability.cluster-id is {quoted(cluster_id)}: use up to 100 letters, digits, "
            "'.', '_' and '-', beginning with a letter or digit"
        )
    return name


def marked(cluster: str, storage_url: str) -> str:
    """Return how a cluster is named beside its storage, on a host: ids may come again elsewhere."""
    return f"{cluster}~{hashlib.sha256(storage_url.encode()).hexdigest()[:STORAGE_DIGITS]}"


def coordination_path(cluster: str) -> str:
    """Return what says which register knows a cluster."""
    return f"{cluster}/coordination.json"


def standalone_directory(cluster: str) -> str:
    """Return the directory of a cluster without high availability: no cluster's id begins so."""
    return f"_standalone/{cluster}"


def application_directory(cluster: str, directory: str) -> str:
    """Return where one application's things lie."""
    return f"{cluster}/applications/{directory}"


def plan_path(cluster: str, directory: str, job_id: str, digest: str) -> str:
    """Return where a job's execution plan lies; named by its content, as two may race."""
    return f"{cluster}/applications/{directory}/plans/{job_id}-{digest[-16:]}"


def staged_path(cluster: str, directory: str, job_id: str, attempt: int) -> str:
    """Return where an attempt stages its outcome."""
    return f"{cluster}/applications/{directory}/staged/{job_id}-{attempt}.json"


def lost_path(cluster: str, directory: str, job_id: str, attempt: int) -> str:
    """Return where a leader notes why an attempt was lost."""
    return f"{cluster}/applications/{directory}/failures/{job_id}-{attempt}.json"


def failures_path(cluster: str, directory: str, job_id: str) -> str:
    """Return where the failures of a job lie that has ended."""
    return f"{cluster}/applications/{directory}/failures/{job_id}.json"


def staged_by_leader_path(
    cluster: str, directory: str, job_id: str, attempt: int, term: int, status: str
) -> str:
    """Return where a leader stages the outcome of an attempt that has staged none.

    Named by its term, like `staged_application_path`: a leader that was deposed, and is late, must
    not write over the bytes that a later one has committed by their digest.
    """
    return f"{cluster}/applications/{directory}/staged/{job_id}-{attempt}-{term}-{status}.json"


def staged_application_path(cluster: str, directory: str, term: int) -> str:
    """Return where a leader stages the result of an application."""
    return f"{cluster}/applications/{directory}/result-{term}.json"


def checkpoints_path(cluster: str, directory: str, lineage: str) -> str:
    """Return where a job's checkpoints lie, unless a person says otherwise."""
    return f"{cluster}/applications/{directory}/checkpoints/{lineage}"


def tables_path(cluster: str, directory: str) -> str:
    """Return where the DataFrames lie that jobs of one application hand on."""
    return f"{cluster}/applications/{directory}/tables"


def permit_path(cluster: str, trigger: str) -> str:
    """Return what lets a request name a directory that is not configured."""
    return f"{cluster}/permits/{trigger}"


def tombstone_path(cluster: str, run_id: str, term: Term) -> str:
    """Return where a leader writes the file of a tombstone.

    Named by its term, like `staged_application_path`, so that no other leader ever writes or
    removes it by mistake. Which one is valid a pointer says, and never the name: the document of
    the application has it, and the registry once the application is buried.
    """
    return f"{cluster}/tombstones/{run_id}~{term}.json"


def tombstone_of(name: str) -> tuple[RunId, Term] | None:
    """Return whose tombstone's file has this name, and whose term; None for another file."""
    found = _TOMBSTONE.fullmatch(name)
    return (RunId(found[1]), int(found[2])) if found else None


def code_directory(cluster: str, digest: str) -> str:
    """Return where the artifacts of that digest are laid out on this host."""
    return f"{cluster}/code/{digest}"


def result_directories(cluster: str) -> tuple[str, str]:
    """Return where results of jobs and of applications lie unless a person says otherwise."""
    return f"job-result-store/{cluster}", f"application-result-store/{cluster}"


def lock_path(cluster: str, incarnation: str) -> str:
    """Return the liveness lock of a process."""
    return f"{cluster}/{LOCKS}/{incarnation}"
