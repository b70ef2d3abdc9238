"""What must hold, read from what the run's functions have marked, its events and its end."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from tests.journeys.harness import Event


@dataclass
class Life:
    """One execution of a job's function, or of ``main``."""

    who: str
    attempt: int
    began: float
    last: float
    ended: float | None = None


def lives(lines: list[str]) -> list[Life]:
    """Return all executions that have left a mark; a line cut short by a kill is passed over."""
    found: dict[tuple[str, int, int], Life] = {}
    for line in lines:
        try:
            mark: dict[str, Any] = json.loads(line)
        except ValueError:
            continue
        who, attempt, at = mark["who"], mark["attempt"], mark["time"]
        life = found.setdefault((who, attempt, mark["pid"]), Life(who, attempt, at, at))
        life.last = max(life.last, at)
        if mark["what"] == "ends":
            life.ended = at
    return list(found.values())


def violations(lines: list[str], events: list[Event]) -> list[str]:
    """Return every sentence about something that must not have happened."""
    found = []
    by: dict[str, list[Life]] = defaultdict(list)
    for life in lives(lines):
        by[life.who].append(life)
    for who, its in by.items():
        its.sort(key=lambda life: life.began)
        for before, after in itertools.pairwise(its):
            if before.last >= after.began:
                found.append(
                    f"{who}: attempt {after.attempt} began {before.last - after.began:.3f} s "
                    f"before attempt {before.attempt} was dead"
                )
        if who != "main" and len({life.attempt for life in its}) != len(its):
            found.append(f"{who}: an attempt was executed twice")
    found += _events(by, events)
    return found


def _events(by: dict[str, list[Life]], events: list[Event]) -> list[str]:
    found = []
    terms = [event["term"] for event in events if event["event"] == "leader"]
    if terms != sorted(set(terms)):
        found.append(f"terms fell: {terms}")
    finished: dict[str, set[int]] = defaultdict(set)
    for event in events:
        if event["event"] == "job-status" and event["status"] == "FINISHED":
            finished[event["name"]].add(event["attempt"])
    for name, attempts in finished.items():
        if len(attempts) != 1:
            found.append(f"{name}: finished in attempts {sorted(attempts)}")
        its = by.get(name, [])
        whole = [life.attempt for life in its if life.ended is not None]
        if its and not set(whole) & attempts:
            found.append(f"{name}: finished in attempts {sorted(attempts)}, which did not end")
        later = [life.attempt for life in its if life.attempt > max(attempts)]
        if later:
            found.append(f"{name}: attempts {later} after it had finished in {sorted(attempts)}")
    return found
