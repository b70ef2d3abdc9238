"""Spark inside the process of ``python app.py``: one context, a session of its own for each job."""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from understudy.spark import defaults


def open_session(job_id: str, name: str) -> SparkSession:
    """Return a new session for the job that the calling thread runs."""
    if SparkSession.getActiveSession() is None and sys.platform == "linux":
        defaults.set_submit_arguments({})
    session = SparkSession.builder.getOrCreate().newSession()
    session.sparkContext.setJobGroup(job_id, name, interruptOnCancel=True)
    return session


def settle(value: Any) -> Any:
    """Wait for a streaming job: the query that it returned; other values are returned."""
    if isinstance(value, StreamingQuery):
        value.awaitTermination()
        return None
    return value


def interrupt(session: SparkSession, job_id: str) -> None:
    """Interrupt the Spark jobs of a job; called from another thread than the job's."""
    for query in session.streams.active:
        query.stop()
    session.sparkContext.cancelJobGroup(job_id)
