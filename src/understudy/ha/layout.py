"""The paths of one cluster in storage.

``<cluster-id>/``
    ``coordination.json``       which register knows this cluster, unless that is in storage
    ``register/``               the register, where the backend is ``filesystem``
    ``locks/<incarnation>``     liveness locks of the processes of this host
    ``applications/<nonce>/``   record, ``plans/``, ``staged/``, ``failures/``, ``blobs/``,
                                ``checkpoints/`` and ``tables/`` of one application
    ``artifacts/<nonce>``       bytes of uploaded artifacts
    ``permits/<trigger>``       a directory that a person has named for a savepoint, while a
                                command of theirs asks for it
    ``code/<digest>/``          artifacts laid out for Python's path, shared by this host
    ``tombstones/<run>~<term>.json``
                                what is retained of an application for a time, written by the
                                leader of that term
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
"""Directories of a cluster that are not its data."""

STORAGE_DIGITS = 12
"""Hex digits of a storage's hash, to distinguish the storages of one host's clusters."""

_CLUSTER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TOMBSTONE = re.compile(r"([A-Za-z0-9._-]+)~([0-9]+)\.json")
"""No run id has a tilde."""


def cluster_directory(cluster_id: str) -> str:
    """Return a cluster's directory name, without slashes: Flink's default id begins with one."""
    name = cluster_id.strip("/").replace("/", "-")
    if not _CLUSTER_ID.fullmatch(name) or name in {"job-result-store", "application-result-store"}:
        raise ConfigurationError(
            f"high-availability.cluster-id is {quoted(cluster_id)}: use up to 100 letters, digits, "
            "'.', '_' and '-', beginning with a letter or digit"
        )
    return name


def marked(cluster: str, storage_url: str) -> str:
    """Return a name for a cluster and its storage: two storages may have the same cluster id."""
    return f"{cluster}~{hashlib.sha256(storage_url.encode()).hexdigest()[:STORAGE_DIGITS]}"


def coordination_path(cluster: str) -> str:
    """Return the path of the file that names a cluster's register."""
    return f"{cluster}/coordination.json"


def standalone_directory(cluster: str) -> str:
    """Return the directory of a cluster without high availability; no cluster id begins with _."""
    return f"_standalone/{cluster}"


def application_directory(cluster: str, directory: str) -> str:
    """Return the directory of one application."""
    return f"{cluster}/applications/{directory}"


def plan_path(cluster: str, directory: str, job_id: str, digest: str) -> str:
    """Return the path of a job's execution plan, named by its digest as two writers may race."""
    return f"{cluster}/applications/{directory}/plans/{job_id}-{digest[-16:]}"


def staged_path(cluster: str, directory: str, job_id: str, attempt: int) -> str:
    """Return the path of an attempt's staged outcome."""
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

    The name contains the term, like `staged_application_path`: a deposed leader that is late must
    not overwrite the bytes that a later leader has committed by their digest.
    """
    return f"{cluster}/applications/{directory}/staged/{job_id}-{attempt}-{term}-{status}.json"


def staged_application_path(cluster: str, directory: str, term: int) -> str:
    """Return the path of an application's result that a leader stages."""
    return f"{cluster}/applications/{directory}/result-{term}.json"


def checkpoints_path(cluster: str, directory: str, lineage: str) -> str:
    """Return the default directory of a job's checkpoints."""
    return f"{cluster}/applications/{directory}/checkpoints/{lineage}"


def tables_path(cluster: str, directory: str) -> str:
    """Return the directory of the DataFrames that jobs of one application pass on."""
    return f"{cluster}/applications/{directory}/tables"


def permit_path(cluster: str, trigger: str) -> str:
    """Return what lets a request name a directory that is not configured."""
    return f"{cluster}/permits/{trigger}"


def artifacts_directory(cluster: str) -> str:
    """Return the directory of uploaded artifacts; their names are nonces, never reused."""
    return f"{cluster}/artifacts"


def tombstone_path(cluster: str, run_id: str, term: Term) -> str:
    """Return the path of a tombstone's file.

    The name contains the term, like `staged_application_path`, so that no other leader writes or
    removes the file by mistake. A pointer decides which file is valid, never the name: the pointer
    is in the application's document, and in the registry once the application is buried.
    """
    return f"{cluster}/tombstones/{run_id}~{term}.json"


def tombstone_of(name: str) -> tuple[RunId, Term] | None:
    """Return the run and term in the name of a tombstone's file; None for another file."""
    found = _TOMBSTONE.fullmatch(name)
    return (RunId(found[1]), int(found[2])) if found else None


def code_directory(cluster: str, digest: str) -> str:
    """Return the directory where artifacts with this digest are laid out on this host."""
    return f"{cluster}/code/{digest}"


def result_directories(cluster: str) -> tuple[str, str]:
    """Return the default directories of job results and of application results."""
    return f"job-result-store/{cluster}", f"application-result-store/{cluster}"


def lock_path(cluster: str, incarnation: str) -> str:
    """Return the path of a process's liveness lock."""
    return f"{cluster}/{LOCKS}/{incarnation}"
