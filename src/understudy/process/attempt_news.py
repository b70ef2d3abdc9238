"""The event ``attempt-failed`` in words: why an attempt failed, and what follows."""

from __future__ import annotations

from typing import Any

from understudy.process.reporter import printable, printable_lines

REASON_CHARS_MAX = 500
"""Longest failure text in an event; the result has the full text."""


def on_one_line(kind: str, message: str) -> str:
    """Return an exception on one line, without most of a long message."""
    text = " ".join((f"{kind}: {message}" if message else kind).split())
    return text if len(text) <= REASON_CHARS_MAX else f"{text[:REASON_CHARS_MAX]}…"


def message_in(kind: str, stacktrace: str) -> str:
    """Return the first line of an exception's message, as the last of its tracebacks has it."""
    lines = stacktrace.splitlines()
    named = [line for line in lines if line.startswith(kind)]
    return (named or lines or [""])[-1].removeprefix(kind).removeprefix(": ")


def failed_attempt(event: dict[str, Any]) -> str:
    """Return why the attempt failed and what follows, then the traceback."""
    failure = event["failure"]
    why = printable(on_one_line(failure["type"], failure["message"]))
    attempt = f"job {printable(event['name'])!r}, attempt {event['attempt']}"
    told = f"{attempt}, failed: {why}; {retry_of(event)}"
    traceback = printable_lines(failure["traceback"].rstrip())
    return f"{told}\n{traceback}" if traceback else told


def retry_of(event: dict[str, Any]) -> str:
    """Return when the next attempt follows, or why none does."""
    if event["reason"]:
        return printable(event["reason"])
    if event["retry"] is None:
        return "another attempt follows"
    limit = "" if event["retries"] is None else f" of {event['retries']:,}"
    delay_s = event["delay_s"]
    if delay_s is None:
        when = "when main reaches the job again"
    else:
        when = f"in {delay_s:.3g} s" if delay_s else "at once"
    told = f"retry {event['retry']:,}{limit} {when}"
    return f"{told}: {event['consequence']}" if event.get("consequence") else told
