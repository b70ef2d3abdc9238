"""The story of a run, built from the processes' events: leaders, takeovers, jobs.

Pure bookkeeping: events in, events out (each once, numbered and timed), and a state to show.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from understudy.model import Failure
from understudy.process.attempt_news import on_one_line, retry_of

Event = dict[str, Any]

PUBLIC = (
    "cluster-started",
    "jobmanager-started",
    "jobmanager-ready",
    "taskmanager-started",
    "driver-ended",
    "leader",
    "application-redeployed",
    "result-discarded",
    "application-status",
    "job-status",
    "attempt-failed",
    "job-waits",
    "job-driver",
    "job-executors",
    "checkpoint-completed",
    "checkpoint-failed",
    "checkpoint-restored",
    "takeover",
    "application-finished",
)
"""Events that ``--json`` prints; the others are for the terminal."""


def reason_of(failure: Failure | None) -> str | None:
    """Return an application's failure on one line; None without a failure."""
    if failure is None:
        return None
    return on_one_line(failure.type, failure.message)


RATE_S = 10.0
"""Window for the task rate; progress arrives about once a second."""


REMEMBERED_MAX = 20_000
"""Events and jobs that are remembered: a session executes jobs without end."""

ROWS_S = 10.0
"""Window for rows per second, long enough for a batch that takes a few seconds."""


@dataclass
class LastCheckpoint:
    """A job's newest checkpoint, and the rows of recent checkpoints."""

    number: int
    words: str
    """Kind and name, for people."""
    at: float
    restored: bool = False
    """The attempt was restored from it and has completed none yet."""
    failure: str = ""
    """Why it failed; the next completed checkpoint replaces this one."""
    rows: deque[tuple[float, int]] = field(default_factory=deque)
    """Times and row counts within the last ``ROWS_S``."""

    def rows_a_second(self, now: float) -> float | None:
        """Return the rate of durable rows; None while it is unknown."""
        while self.rows and self.rows[0][0] <= now - ROWS_S:
            self.rows.popleft()
        if not self.rows:
            return None
        # The first entry's rows took an unknown time: count only those after it.
        counted = sum(rows for _, rows in list(self.rows)[1:])
        since = now - self.rows[0][0]
        return counted / since if counted and since > 0 else None


@dataclass
class JobLine:
    """A job as the terminal shows it."""

    name: str
    status: str = "CREATED"
    attempt: int = 0
    adopted: bool = False
    tasks_done: int = 0
    tasks_total: int = 0
    stage: str = ""
    seen: deque[tuple[float, int]] = field(default_factory=deque)
    """Times and completed tasks within the last ``RATE_S``."""
    checkpoint: LastCheckpoint | None = None
    pending: str = ""
    """Why the job does not run: it has no slot, or its last attempt has failed."""
    waits: str = ""
    """Why the attempt has no executors."""
    ui: str = ""
    """The Spark UI of the attempt."""
    since: float = 0.0
    """When the job, or its attempt, began."""

    def begin(self, attempt: int, now: float) -> None:
        """Reset the counts for a new attempt."""
        self.attempt, self.since, self.ui = attempt, now, ""
        if self.checkpoint:
            self.checkpoint.rows.clear()
        self.tasks_done = self.tasks_total = 0
        self.stage = self.waits = ""
        self.seen.clear()

    def progress(self, done: int, total: int, stage: str, now: float) -> None:
        """Record the attempt's progress."""
        self.tasks_done, self.tasks_total, self.stage = done, total, stage
        self.seen.append((now, done))
        self._forget(now)

    def rate(self, now: float) -> float | None:
        """Return tasks per second within ``RATE_S``; None while it is unknown."""
        self._forget(now)
        if not self.seen or now <= self.seen[0][0]:
            return None
        since, done = self.seen[0]
        if len(self.seen) == 1 and now - since < RATE_S:
            return None
        return max(0.0, (self.tasks_done - done) / (now - since))

    def _forget(self, now: float) -> None:
        """Drop entries older than ``RATE_S``, except the newest of them, the base of the rate."""
        while len(self.seen) > 1 and self.seen[1][0] <= now - RATE_S:
            self.seen.popleft()


@dataclass
class Story:
    """The events of a run so far, condensed."""

    wall: Callable[[], float]
    now: Callable[[], float] = time.monotonic
    own: str = ""
    """The run that the story is about; empty for the first one that is heard of. Where the cluster
    stays, it may execute others, too."""
    seq: int = 0
    leader: str = ""
    rest: str = ""
    term: int = 0
    application_id: str = ""
    run_id: str = ""
    status: str = ""
    jobs: dict[str, JobLine] = field(default_factory=dict)
    since: float = field(init=False)
    """When the application entered its status, or when the story began."""
    takeovers: int = 0
    last_takeover: Event | None = None
    """Only the last, because a takeover event names every job."""
    finished: Event | None = None
    taking_over: bool = False
    """A new leader has not yet reported the outcome of its takeover."""
    _told: dict[tuple[Any, ...], None] = field(default_factory=dict)
    """What is not to be repeated, the last `REMEMBERED_MAX`, oldest first."""

    def __post_init__(self) -> None:
        """Begin the story."""
        self.since = self.now()

    def hear(self, event: Event) -> Event | None:
        """Process an event; return it numbered and timed, None if it is a repetition."""
        if not self._is_new(event):
            return None
        self._note(event)
        if event["event"] not in PUBLIC:
            return event
        self.seq += 1
        return {"seq": self.seq, "time": round(self.wall(), 6), **event}

    def _is_new(self, event: Event) -> bool:
        """Return whether an event is new: a new leader repeats what the old one may have sent."""
        match event["event"]:
            case "application-finished":
                key: tuple[Any, ...] = ("finished", event["run_id"])
            case "application-redeployed":
                key = ("redeployed", event["deployment"])
            case "application-status":
                key = ("application", event["application_id"], event["status"])
            case "job-status" if event["status"] in {"FINISHED", "FAILED", "CANCELED"}:
                key = ("job", event["job_id"], event["status"], event["attempt"])
            case "attempt-failed":
                key = ("attempt-failed", event["job_id"], event["attempt"])
            case _:
                return True
        if key in self._told:
            return False
        self._told[key] = None
        if len(self._told) > REMEMBERED_MAX:
            del self._told[next(iter(self._told))]
        return True

    def _note(self, event: Event) -> None:
        match event["event"]:
            case "leader":
                self.taking_over = bool(self.leader) and event["term"] != self.term
                self.leader, self.rest, self.term = event["id"], event["rest"], event["term"]
            case "application-status" if self._is_own(event):
                self.application_id = event["application_id"]
                self.run_id, self.status = event["run_id"], event["status"]
                self.since = self.now()
            case "job-status":
                line = self.jobs.setdefault(
                    event["job_id"], JobLine(event["name"], since=self.now())
                )
                if len(self.jobs) > REMEMBERED_MAX:
                    del self.jobs[next(iter(self.jobs))]
                if line.attempt != event["attempt"]:
                    line.begin(event["attempt"], self.now())
                if event["status"] == "RUNNING" and line.status != "RUNNING":
                    line.pending, line.since = "", self.now()
                line.status, line.adopted = event["status"], event["adopted"]
            case "job-progress" if event["job_id"] in self.jobs:
                line = self.jobs[event["job_id"]]
                if event["attempt"] == line.attempt:
                    done, total = event["tasks_done"], event["tasks_total"]
                    line.progress(done, total, event["stage"], self.now())
            case "job-waits" if event["job_id"] in self.jobs:
                line = self.jobs[event["job_id"]]
                line.pending, line.ui = event["waits"], ""
            case "attempt-failed" if event["job_id"] in self.jobs and not event["reason"]:
                self.jobs[event["job_id"]].pending = f"{retry_of(event)}: {why_failed(event)}"
            case "job-driver" if event["job_id"] in self.jobs:
                line = self.jobs[event["job_id"]]
                if event["attempt"] == line.attempt:
                    line.ui = event["ui"] or ""
            case "job-executors" if event["job_id"] in self.jobs:
                line = self.jobs[event["job_id"]]
                if event["attempt"] == line.attempt:
                    line.waits = event["waits"] or ""
            case "checkpoint-completed" if event["job_id"] in self.jobs:
                self._note_checkpoint(self.jobs[event["job_id"]], event)
            case "checkpoint-failed" if event["job_id"] in self.jobs:
                self._note_failed(self.jobs[event["job_id"]], event)
            case "checkpoint-restored" if event["job_id"] in self.jobs and event["checkpoints"]:
                self._note_restored(self.jobs[event["job_id"]], event)
            case "takeover":
                self.taking_over = False
                self.takeovers += 1
                self.last_takeover = event
            case "application-finished" if self._is_own(event):
                self.taking_over = False
                self.finished = event
                self.status = event["status"]

    def _is_own(self, event: Event) -> bool:
        """Return whether an event is about the run that the story is about.

        A start whose run lost the race for an empty cluster follows the run that won.
        """
        return event["run_id"] == self.own or self.run_id in {"", event["run_id"]}

    def _note_checkpoint(self, line: JobLine, event: Event) -> None:
        now, before = self.now(), line.checkpoint
        rows = before.rows if before else deque()
        if event["rows"]:
            rows.append((now, event["rows"]))
        if before and event["number"] < before.number:
            return  # A late event of another query.
        line.checkpoint = LastCheckpoint(event["number"], of_what(event), now, rows=rows)

    def _note_failed(self, line: JobLine, event: Event) -> None:
        rows = line.checkpoint.rows if line.checkpoint else deque()
        line.checkpoint = LastCheckpoint(
            event["number"], of_what(event), self.now(), failure=event["failure"], rows=rows
        )

    def _note_restored(self, line: JobLine, event: Event) -> None:
        words = of_what(event["checkpoints"][0])
        line.checkpoint = LastCheckpoint(event["number"], words, self.now(), restored=True)


def of_what(checkpoint: Event) -> str:
    """Return a checkpoint's kind and name for people."""
    words = str(checkpoint["kind"])
    if checkpoint["batch_id"] is not None:
        words += f" {checkpoint['batch_id']}"
    return f"{words} of {checkpoint['of']}" if checkpoint["of"] else words


def why_failed(event: Event) -> str:
    """Return on one line why an attempt failed."""
    return on_one_line(event["failure"]["type"], event["failure"]["message"])
