"""Deterministic ids: digests of what they name, so that every process computes the same id."""

from __future__ import annotations

import hashlib
import re

from understudy.model import ApplicationId, Incarnation, JobId

RUN_ID_MAX = 64
"""Most characters of a run id."""

_HEX32 = re.compile(r"[0-9a-f]{32}")
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def is_hex32(text: str) -> bool:
    """Return whether a text is written as the ids of applications and jobs are."""
    return bool(_HEX32.fullmatch(text))


def is_run_id(text: str) -> bool:
    """Return whether a person may name a run so."""
    return len(text) <= RUN_ID_MAX and bool(_RUN_ID.fullmatch(text))


def application_id(cluster_id: str, run_id: str) -> ApplicationId:
    """Return the id of a run's application: a digest of the cluster's id and the run's.

    A run id that is written as an id is the application's id: clients choose ids, as in Flink.
    """
    if is_hex32(run_id):
        return ApplicationId(run_id)
    return ApplicationId(_hex32("application", cluster_id, run_id))


def job_id(application: str, name: str, occurrence: int) -> JobId:
    """Return the id of a job: a digest of application id, name and occurrence (from 0)."""
    return JobId(_hex32("job", application, name, str(occurrence)))


def process_name(role: str, incarnation: Incarnation) -> str:
    """Return the name of a process wherever people see it: ``driver-260aa06a``."""
    return f"{role}-{incarnation[:8]}"


POD_UID_VARIABLE = "UNDERSTUDY_POD_UID"
"""Environment variable with the uid of a pod that runs one process of Understudy, once."""


def incarnation_of_pod(uid: str) -> Incarnation:
    """Return the incarnation of the one process of Understudy that a pod runs, ever."""
    return Incarnation(uid.replace("-", ""))


def _hex32(*parts: str) -> str:
    encoded = b"\0".join(part.encode("utf-8", "surrogatepass") for part in parts)
    return hashlib.sha256(encoded).hexdigest()[:32]
