"""Matching jobs after a recovery: by name, and among equal names by order (FLIP-560)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from understudy.core.ids import job_id
from understudy.errors import JobNameError
from understudy.model import JobEntry, JobId

NAME_BYTES_MAX = 1_000
"""Longest job name: names appear in tables and paths of the UI."""


class Assignment(Struct, frozen=True):
    """The jobs that one execution of ``main`` has submitted so far, counted by name.

    A configured id belongs to the first job that any execution stored, and stays with the first
    job of that name in every later execution.
    """

    application_id: str
    first_job_id: str = ""
    first_job_name: str = ""
    """Name of the job that has the configured id; empty if no job has it yet."""
    counts: Mapping[str, int] = field(default_factory=dict)


class Assigned(Struct, frozen=True):
    """The identity of one submission."""

    job_id: JobId
    name: str
    occurrence: int
    repeated: bool
    """This is the second job of that name: matching now depends on order, which needs a warning."""


def check_name(name: object) -> str:
    """Return the name if it is valid, else raise `JobNameError`."""
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


def is_application_name(name: str) -> bool:
    """Return whether an application may have this name: it appears in tables, logs and pages."""
    return name.isprintable() and bool(name.strip()) and len(name.encode()) <= NAME_BYTES_MAX


def name_of(function: object, name: str | None) -> str:
    """Return a job's name: the given one, else the function's; a lambda needs a given name."""
    if name is not None:
        return check_name(name)
    own = getattr(function, "__name__", "")
    if not own or own == "<lambda>":
        kind = "a lambda" if own else f"a job of type {type(function).__name__}"
        raise JobNameError(
            f"{kind} has no name by which its job could be found again: pass name='…'"
        )
    return check_name(own)


def resumed(application_id: str, first_job_id: str, jobs: Iterable[JobEntry]) -> Assignment:
    """Return the initial assignment of an execution that starts with these known jobs."""
    names = {job.job_id: job.name for job in jobs}
    first_job_name = names.get(JobId(first_job_id), "")
    if names and not first_job_name:
        first_job_id = ""  # The first job was refused, and used up the configured id.
    return Assignment(application_id, first_job_id, first_job_name)


def identity(state: Assignment, name: str, occurrence: int) -> JobId:
    """Return the id that this submission gets if it is the next one."""
    owner = state.first_job_name or name
    if state.first_job_id and occurrence == 0 and name == owner:
        return JobId(state.first_job_id)
    return job_id(state.application_id, name, occurrence)


def admitted(state: Assignment, claimed: JobId, name: str, occurrence: int) -> Assignment:
    """Check the id that a submission claims; raises `JobNameError`.

    An earlier submission that the client refused has used up an occurrence of its name, and the
    configured id if it was the first.
    """
    expected = identity(state, name, occurrence)
    if claimed != expected and not state.first_job_name:
        state = replace(state, first_job_id="")
        expected = identity(state, name, occurrence)
    if claimed != expected:
        raise JobNameError(f"job {name!r} came with id {claimed}, expected {expected}")
    return replace(state, first_job_name=state.first_job_name or name)


def assign(state: Assignment, name: str) -> tuple[Assignment, Assigned]:
    """Assign an id to the next submission of this name.

    The first job of an application gets the configured first job id, if there is one.
    """
    occurrence = state.counts.get(name, 0)
    counts = {**state.counts, name: occurrence + 1}
    identified = identity(state, name, occurrence)
    assigned = Assigned(identified, name, occurrence, repeated=occurrence == 1)
    owner = state.first_job_name or name
    return replace(state, first_job_name=owner, counts=counts), assigned
