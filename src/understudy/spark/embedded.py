"""Spark inside the process of ``python app.py``: one context, and a session for each job."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from understudy.spark import defaults
from understudy.spark.queries import SparkQueries


def open_session(job_id: str, name: str) -> SparkSession:
    """Return a new session for the job that the calling thread runs."""
    if SparkSession.getActiveSession() is None and sys.platform == "linux":
        defaults.set_submit_arguments({})
    session = SparkSession.builder.getOrCreate().newSession()
    session.sparkContext.setJobGroup(job_id, name, interruptOnCancel=True)
    return session


def queries_of(session: SparkSession) -> SparkQueries:
    """Return a watcher for the streaming queries of a session."""
    java = session._jsparkSession
    return SparkQueries(lambda other: other is session or other._jsparkSession.equals(java))


def interrupt(session: SparkSession, queries: SparkQueries, job_id: str) -> None:
    """Interrupt the Spark jobs of a job; called from another thread than the job's."""
    queries.interrupt()
    session.sparkContext.cancelJobGroup(job_id)
    session.interruptAll()  # Queries from other threads of the function, which have no group.
