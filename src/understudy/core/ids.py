"""Deterministic ids: digests of what they name, so that every process computes the same id."""

from __future__ import annotations

import hashlib

from understudy.model import ApplicationId, Incarnation, JobId


def application_id(cluster_id: str, run_id: str) -> ApplicationId:
    """Return the id of a run's application: a digest of the cluster's id and the run's."""
    return ApplicationId(_hex32("application", cluster_id, run_id))


def job_id(application: str, name: str, occurrence: int) -> JobId:
    """Return the id of a job: a digest of application id, name and occurrence (from 0)."""
    return JobId(_hex32("job", application, name, str(occurrence)))


def process_name(role: str, incarnation: Incarnation) -> str:
    """Return the name of a process wherever people see it: ``driver-260aa06a``."""
    return f"{role}-{incarnation[:8]}"


def _hex32(*parts: str) -> str:
    encoded = b"\0".join(part.encode("utf-8", "surrogatepass") for part in parts)
    return hashlib.sha256(encoded).hexdigest()[:32]
