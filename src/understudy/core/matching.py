"""Which job is which after a recovery: by name, and among equal names by order (FLIP-560)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from understudy.errors import JobNameError
from understudy.model import JobId, job_id

NAME_BYTES_MAX = 1_000
"""A name is shown in tables and paths of the UI; what does not fit one is a description."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one execution of ``main`` has submitted so far, by name."""

    application_id: str
    first_job_id: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Assigned:
    """The identity of one submission."""

    job_id: JobId
    name: str
    occurrence: int
    repeated: bool
    """The second job of that name: matching now rests on the order, which deserves a warning."""


def check_name(name: object) -> str:
    """Return a usable job name, or raise `JobNameError`."""
    if not isinstance(name, str):
        raise JobNameError(f"a job's name must be a string, not {type(name).__name__}")
    if not name.strip():
        raise JobNameError("a job's name must not be empty")
    if len(name.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
        raise JobNameError(
            f"the job name {name[:40]!r}… has {len(name)} characters: "
            f"at most {NAME_BYTES_MAX} bytes, shorten it"
        )
    if any("\ud800" <= character <= "\udfff" for character in name):
        raise JobNameError(f"the job name {name!r} holds a lone surrogate")
    return name


def name_of(function: object, name: str | None) -> str:
    """Return the name of a job: the given one, or the function's; a lambda must be named."""
    if name is not None:
        return check_name(name)
    own = getattr(function, "__name__", "")
    if not own or own == "<lambda>":
        raise JobNameError(
            "a lambda has no name by which its job could be found again: pass name='…'"
        )
    return check_name(own)


def assign(state: Assignment, name: str) -> tuple[Assignment, Assigned]:
    """Give the next submission of that name its id.

    The first job of an application takes the configured first job id, if there is one.
    """
    occurrence = state.counts.get(name, 0)
    if state.first_job_id and not state.counts:
        identity = JobId(state.first_job_id)
    else:
        identity = job_id(state.application_id, name, occurrence)
    counts = {**state.counts, name: occurrence + 1}
    assigned = Assigned(identity, name, occurrence, repeated=occurrence == 1)
    return Assignment(state.application_id, state.first_job_id, counts), assigned
