"""An application of a session, followed over REST: looks at it become the events of a run.

Polled, as REST has no stream of events: what begins and ends between two looks is told by its end
alone. `News` decides what is new; `follow` asks, through failovers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from understudy.api.client import ClusterClient
from understudy.api.views import Json
from understudy.cli.launch.compose import EXIT_CODES
from understudy.cli.launch.logs import RemoteLog
from understudy.cli.launch.story import Event
from understudy.errors import NoLeaderError, NotFoundError
from understudy.process.attempt_news import on_one_line
from understudy.process.reporter import CLUSTER, QUIET

LOOK_S = 0.3
"""Pause between two looks at first: a short application is over soon."""

LOOK_MAX_S = 2.0
"""... and at last: who waits for hours does not see the difference."""

GROWTH = 1.02
"""By which factor the pause grows."""

SHARE = 5.0
"""A look takes at most this part of the time, however many jobs there are."""

OVER = {one.value for one in EXIT_CODES}

MARKS = ("adopted", "skipped", "displaced")
"""What a takeover does with jobs, as far as REST shows it."""

Show = Callable[[Event], None]


class News:
    """What is new of an application since the last look."""

    def __init__(self) -> None:
        self._leader: tuple[str, int] | None = None
        self._told_takeover = 0
        self._marked: dict[str, dict[str, None]] = {}
        """What this term's takeover has done with jobs, by their names."""
        self._status = ""
        self._jobs: dict[str, tuple[str, int, bool]] = {}
        self._waits: dict[str, str] = {}
        self._progress: dict[str, tuple[int, int, int]] = {}

    def of(self, application: Json, status: Json | None) -> list[Event]:
        """Return the events; ``status``: who leads, None where nobody does."""
        events = [*self._of_leader(status)] if status else []
        if self._status != application["status"]:
            self._status = application["status"]
            if self._status not in OVER:
                events.append(_application_status(application))
        for job in application["jobs"]:
            events += self._of_job(job)
        if status:
            events += self._of_takeover(application, status)
        if self._status in OVER:
            events += [_application_status(application), _finished(application)]
        return events

    def _of_leader(self, status: Json) -> Iterator[Event]:
        leader = status["leader"]
        if self._leader != (leader["id"], leader["term"]):
            if self._leader is None:
                self._told_takeover = leader["term"]
            self._leader = (leader["id"], leader["term"])
            self._marked = {}
            yield {"event": "leader", **{key: leader[key] for key in ("id", "pid", "rest", "term")}}

    def _of_takeover(self, application: Json, status: Json) -> Iterator[Event]:
        """Tell of the takeover of this term, once how long it took is known."""
        term = status["leader"]["term"]
        for job in application["jobs"]:  # An application that is over has no marks any more.
            for mark in MARKS:
                if job.get(mark):
                    self._marked.setdefault(mark, {})[job["name"]] = None
        took = next(
            (one["takeover_seconds"] for one in status["history"] if one["term"] == term), None
        )
        if term == self._told_takeover or took is None:
            return
        self._told_takeover = term
        marked = {mark: list(self._marked.get(mark, ())) for mark in MARKS}
        yield {"event": "takeover", "term": term, "seconds": took, "restarted": [], **marked}

    def _of_job(self, job: Json) -> Iterator[Event]:
        job_id, about = job["jid"], {"job_id": job["jid"], "name": job["name"]}
        attempt, adopted = job["attempt"], bool(job.get("adopted"))
        seen = (job["state"], attempt, adopted)
        if self._jobs.get(job_id) != seen:
            self._jobs[job_id] = seen
            yield {
                "event": "job-status",
                **about,
                "status": job["state"],
                "attempt": attempt,
                "adopted": adopted,
            }
        waits = "" if job["state"] in OVER else job.get("waits") or ""
        if waits != self._waits.get(job_id, ""):
            self._waits[job_id] = waits
            if waits:
                yield {"event": "job-waits", **about, "waits": waits}
        done, total = job["tasks"]["finished"], job["tasks"]["total"]
        if total and self._progress.get(job_id) != (attempt, done, total):
            self._progress[job_id] = (attempt, done, total)
            yield {
                "event": "job-progress",
                "job_id": job_id,
                "attempt": attempt,
                "tasks_done": done,
                "tasks_total": total,
                "stage": "",
            }


def _application_status(application: Json) -> Event:
    return {
        "event": "application-status",
        "application_id": application["id"],
        "run_id": application["run-id"],
        "name": application["name"],
        "status": application["status"],
    }


def _finished(application: Json) -> Event:
    failure = application.get("failure")
    return {
        "event": "application-finished",
        "run_id": application["run-id"],
        "status": application["status"],
        "failure": on_one_line(failure["class"], failure["message"]) if failure else None,
        "jobs": [
            {
                "job_id": job["jid"],
                "name": job["name"],
                "status": job["state"],
                "attempt": job["attempt"],
            }
            for job in application["jobs"]
        ],
    }


def output(line: str) -> Event | None:
    """Return a log's line as the event of user output; None for what a terminal need not show."""
    _, _, marked = line.partition(" [")
    source, _, text = marked.partition("] ")
    if source == CLUSTER or text.startswith(QUIET):
        return None
    return {"event": "output", "source": source, "line": text}


async def follow(
    client: ClusterClient, application: str, show: Show, *, shows_log: bool = True
) -> str:
    """Show what happens to an application until it has ended; return its status.

    Raises `NoLeaderError` where no leader comes within ``rest.await-leader-timeout``.
    """
    news, log = News(), RemoteLog(client, application)
    pause_s, loop = LOOK_S, asyncio.get_running_loop()
    while True:
        began = loop.time()
        seen, status = await _look(client, application)
        events = news.of(seen, status)
        if status and shows_log:  # The log is the leader's.
            with contextlib.suppress(NoLeaderError, NotFoundError):
                await _show_log(log, show)
        for event in events:
            show(event)
        if seen["status"] in OVER:
            return str(seen["status"])
        took_s = loop.time() - began
        await asyncio.sleep(max(pause_s, SHARE * took_s))
        pause_s = min(pause_s * GROWTH, LOOK_MAX_S)


async def _look(client: ClusterClient, application: str) -> tuple[Json, Json | None]:
    """Return the application, and who leads; without a leader, as storage has it."""
    try:
        seen = await client.get(f"/applications/{application}", awaits_leader=True)
    except NoLeaderError:
        stored: dict[str, Any] = await client.stored_application(application)
        if stored["status"] not in OVER:
            raise
        return stored, None
    try:
        return seen, await client.get("/ha/status")
    except NoLeaderError:
        return seen, None


async def _show_log(log: RemoteLog, show: Show) -> None:
    while lines := await log.lines():
        for line in lines:
            if event := output(line):
                show(event)
