"""Each event of a run as a line for people; empty for events without a line."""

from __future__ import annotations

from understudy.cli.launch.story import Event, of_what
from understudy.process.attempt_news import failed_attempt
from understudy.process.reporter import printable

NAMES_SHOWN = 10
"""Job names shown per outcome of a takeover; there may be thousands of jobs."""


def describe(event: Event) -> str:
    """Return an event's line for people; empty for events without a line."""
    match event["event"]:
        case "output":
            return f"[{event['source']}] {event['line']}"
        case "log":
            return str(event["line"])
        case "cluster-started":
            return f"understudy: cluster {event['cluster_id']} started, {', '.join(event['rest'])}"
        case "driver-ended":
            where = f"in slot {event['slot']}" if event["slot"] else "to spare"
            who = f"{event['driver']} (process {event['pid']}) {where}"
            return f"understudy: {who} {event['reason']}"
        case "leader":
            who = f"{event['id']} (process {event['pid']})"
            return f"understudy: {who} leads, term {event['term']}, {event['rest']}"
        case "application-redeployed":
            return f"understudy: {_redeployed(event)}"
        case "result-discarded":
            return f"understudy: the result of job {event['name']!r} is discarded: it runs again"
        case "application-status":
            return f"understudy: application {event['application_id']} is {event['status']}"
        case "job-status":
            return _describe_job(event)
        case "attempt-failed":
            return f"understudy: {failed_attempt(event)}"
        case "job-waits":
            return f"understudy: job {event['name']!r} {printable(event['waits'])}"
        case "job-executors":
            return f"understudy: {_attempt(event)} {printable(event['waits'] or 'has executors')}"
        case "checkpoint-failed":
            return f"understudy: {_failed(event)}"
        case "checkpoint-restored":
            return f"understudy: {_restored(event)}"
        case "takeover":
            return f"understudy: {takeover(event)}"
        case "application-finished" if event.get("failure"):
            return f"understudy: the application failed: {printable(event['failure'])}"
    return ""


def describe_own(event: Event) -> str:
    """Return the line of an event of a process in the foreground, which starts by itself."""
    match event["event"]:
        case "jobmanager-started":
            return f"understudy: {event['id']} has started, {event['rest']}"
        case "jobmanager-ready":
            return f"understudy: {event['id']} is ready to lead"
        case "taskmanager-started":
            return f"understudy: {event['id']} has started (process {event['pid']})"
    return describe(event)


def _describe_job(event: Event) -> str:
    if event["status"] == "CREATED" and event["attempt"]:
        return ""  # The job has a driver: RUNNING follows.
    how = ", adopted" if event["adopted"] else ""
    attempt = f", attempt {event['attempt']}" if event["attempt"] else ""
    return f"understudy: job {event['name']!r} is {event['status']}{attempt}{how}"


def _attempt(event: Event) -> str:
    return f"job {printable(event['name'])!r}, attempt {event['attempt']}"


def _restored(event: Event) -> str:
    words = ", ".join(printable(of_what(one)) for one in event["checkpoints"][:NAMES_SHOWN])
    saved = event.get("savepoint")
    which = f"savepoint {printable(saved)}" if saved else f"checkpoint {event['number']}"
    return f"{_attempt(event)}, continues from {which} ({words})"


def _failed(event: Event) -> str:
    which = f"checkpoint {event['number']} ({printable(of_what(event))})"
    more = f", the last of {event['count']:,}" if event["count"] > 1 else ""
    return f"{_attempt(event)}: {which} failed{more}: {printable(event['failure'])}"


def _redeployed(event: Event) -> str:
    """Return the changed files, and the stopped attempts of the previous code."""
    changed = _names(event["changed"]) or "its code"
    stopped = f"; stopped: {_names(event['stopped'])}" if event["stopped"] else ""
    return f"other code is deployed, for the {event['deployment']}. time: {changed}{stopped}"


def takeover(event: Event) -> str:
    """Return the outcome of a takeover, with the first job names."""
    parts = [
        f"{word}: {_names(event[key])}"
        for key, word in (
            ("adopted", "adopted"),
            ("restarted", "restarted"),
            ("skipped", "not run again"),
            ("displaced", "gave way"),
        )
        if event.get(key)
    ]
    return f"takeover in {event['seconds']:.2f} s; {'; '.join(parts) or 'nothing ran'}"


def _names(names: list[str]) -> str:
    shown = ", ".join(printable(name) for name in names[:NAMES_SHOWN])
    more = len(names) - NAMES_SHOWN
    return f"{shown} and {more:,} more" if more > 0 else shown
