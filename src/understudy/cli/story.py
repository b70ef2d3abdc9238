"""The story of a run, as the launcher hears it from the processes: who led, what became of jobs.

Pure bookkeeping: events in, events out (each once, numbered and timed), and a state to show.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]

PUBLIC = (
    "cluster-started",
    "jobmanager-started",
    "jobmanager-ready",
    "taskmanager-started",
    "leader",
    "application-status",
    "job-status",
    "takeover",
    "application-finished",
)
"""The events that ``--json`` prints; the others are for the terminal."""


@dataclass
class JobLine:
    """A job, as the terminal shows it."""

    name: str
    status: str = "CREATED"
    attempt: int = 0
    adopted: bool = False
    tasks_done: int = 0
    tasks_total: int = 0


@dataclass
class Story:
    """What has happened so far."""

    wall: Callable[[], float]
    seq: int = 0
    leader: str = ""
    rest: str = ""
    term: int = 0
    application_id: str = ""
    run_id: str = ""
    status: str = ""
    jobs: dict[str, JobLine] = field(default_factory=dict)
    takeovers: list[Event] = field(default_factory=list)
    leaders: list[Event] = field(default_factory=list)
    finished: Event | None = None
    _told: set[tuple[Any, ...]] = field(default_factory=set)

    def hear(self, event: Event) -> Event | None:
        """Take in an event; return it numbered and timed, None where it was told before."""
        if not self._is_new(event):
            return None
        self._note(event)
        if event["event"] not in PUBLIC:
            return event
        self.seq += 1
        return {"seq": self.seq, "time": round(self.wall(), 6), **event}

    def _is_new(self, event: Event) -> bool:
        """A new leader tells again what the old one may have told: each thing counts once."""
        match event["event"]:
            case "application-finished":
                key: tuple[Any, ...] = ("finished",)
            case "application-status":
                key = ("application", event["application_id"], event["status"])
            case "job-status" if event["status"] in {"FINISHED", "FAILED", "CANCELED"}:
                key = ("job", event["job_id"], event["status"], event["attempt"])
            case _:
                return True
        if key in self._told:
            return False
        self._told.add(key)
        return True

    def _note(self, event: Event) -> None:
        match event["event"]:
            case "leader":
                self.leader, self.rest, self.term = event["id"], event["rest"], event["term"]
                self.leaders.append(event)
            case "application-status":
                self.application_id = event["application_id"]
                self.run_id, self.status = event["run_id"], event["status"]
            case "job-status":
                line = self.jobs.setdefault(event["job_id"], JobLine(event["name"]))
                if line.attempt != event["attempt"]:
                    line.tasks_done = line.tasks_total = 0
                line.status, line.attempt = event["status"], event["attempt"]
                line.adopted = event["adopted"]
            case "job-progress" if event["job_id"] in self.jobs:
                line = self.jobs[event["job_id"]]
                line.tasks_done, line.tasks_total = event["tasks_done"], event["tasks_total"]
            case "takeover":
                self.takeovers.append(event)
            case "application-finished":
                self.finished = event
                self.status = event["status"]
