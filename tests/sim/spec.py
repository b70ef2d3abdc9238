"""Which world: a seed, and what is taken out of what it draws.

``17`` is a world as drawn, ``17 many`` one with several applications, ``17 kubernetes`` one with
the register of an API server, ``17 without blow.3
register.late`` the first one without the fourth blow and without late calls to the register. A
world that fails is shrunk to such a text; it stands in `seeds.txt`, and ``pytest tests/sim --seed
"17 without blow.3"`` runs it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from tests.sim.program import Job, Odds, Profile, Program, draw

WITHOUT = "without"
MANY = "many"
KUBERNETES = "kubernetes"
CHECKPOINTS = "checkpoints"

SHORTEST_S = 2.0
"""A time of faults that is not halved any more."""


@dataclass(frozen=True)
class Spec:
    """One world."""

    seed: int
    without: tuple[str, ...] = ()
    many: bool = False
    """Several applications are submitted to a cluster that stays."""
    kubernetes: bool = False
    """The register is behind an API server."""

    @staticmethod
    def parse(text: str) -> Spec:
        """Read a world's text; raises `ValueError`."""
        seed, *words = text.split()
        many = words[:1] == [MANY]
        words = words[many:]
        kubernetes = words[:1] == [KUBERNETES]
        words = words[kubernetes:]
        if words and words[0] != WITHOUT:
            raise ValueError(f"{text!r}: expected a seed, or a seed, {WITHOUT!r}, and what")
        spec = Spec(int(seed), tuple(words[1:]), many, kubernetes)
        spec.profile()
        return spec

    def less(self, *cuts: str) -> Spec:
        """Return the world with more taken out of it."""
        return replace(self, without=(*self.without, *cuts))

    def profile(self) -> Profile:
        """Draw the world, and take out what is to be left out; raises `ValueError`."""
        checkpoints = CHECKPOINTS not in self.without
        profile = draw(
            self.seed, checkpoints=checkpoints, many=self.many, kubernetes=self.kubernetes
        )
        for name in self.without:
            _cut(profile, name)
        return profile

    def __str__(self) -> str:
        kinds = (*(MANY,) * self.many, *(KUBERNETES,) * self.kubernetes)
        without = (WITHOUT, *self.without) if self.without else ()
        return " ".join((str(self.seed), *kinds, *without))


def possible_cuts(profile: Profile) -> Iterator[str]:
    """Return what could be taken out of a world, the largest pieces first."""
    if profile.faults_end > SHORTEST_S:
        yield f"after.{profile.faults_end / 2:.0f}"
        yield f"after.{profile.faults_end * 0.8:.0f}"
    yield from ("register", "storage", "blows", "acts", "deployments", "clients", "strikes")
    if profile.others:
        yield "others"
    if profile.watching:
        yield "watching"
    yield from (CHECKPOINTS, "cancel", "timing", "detours", "drift", "wire", "locks", "standing")
    for kind, some in _numbered(profile):
        yield from (f"{kind}.{one.number}" for one in some)
    for service in ("register", "storage"):
        odds = getattr(profile, service)
        yield from (
            f"{service}.{one.name}"
            for one in fields(Odds)
            if getattr(odds, one.name) != one.default
        )
    programs = [*profile.programs, *(other.program for other in profile.others)]
    for job in [job for program in programs for job in program.jobs()]:
        yield f"job.{job.name}"
        if job != Job(job.name, job.runs_s):
            yield f"troubles.{job.name}"
    if profile.jobmanagers > 1:
        yield "jobmanager"
    if profile.taskmanagers > 1:
        yield "taskmanager"
    if profile.slots > 1:
        yield "slot"
    if profile.spares:
        yield "spare"


def _numbered(profile: Profile) -> list[tuple[str, list[Any]]]:
    return [
        ("blow", list(profile.blows)),
        ("act", list(profile.acts)),
        ("deployment", list(profile.deployments)),
        ("other", list(profile.others)),
    ]


def _cut(profile: Profile, name: str) -> None:
    what, _, which = name.partition(".")
    match what:
        case "after":
            profile.faults_end = min(profile.faults_end, float(which))
            every: list[list[Any]] = [profile.blows, profile.acts, profile.deployments]
            for dated in every:
                dated[:] = [one for one in dated if one.at < profile.faults_end]
        case "register" | "storage" if not which:
            setattr(profile, what, Odds())
        case "register" | "storage":
            default = next(one.default for one in fields(Odds) if one.name == which)
            setattr(getattr(profile, what), which, default)
        case "blows" | "acts" | "deployments" | "others":
            getattr(profile, what).clear()
        case "blow" | "act" | "deployment" | "other":
            some: list[Any] = getattr(profile, f"{what}s")
            some[:] = [one for one in some if one.number != int(which)]
        case "job" | "troubles":
            profile.program = _without_job(profile.program, which, wholly=what == "job")
            profile.revised = tuple(
                _without_job(program, which, wholly=what == "job") for program in profile.revised
            )
            profile.others = [
                replace(one, program=_without_job(one.program, which, wholly=what == "job"))
                for one in profile.others
            ]
        case "checkpoints":
            pass  # They were not drawn.
        case "detours":
            profile.program = replace(profile.program, detours=())
        case "jobmanager" | "taskmanager" | "slot" | "spare":
            least = 0 if what == "spare" else 1
            setattr(profile, f"{what}s", max(least, getattr(profile, f"{what}s") - 1))
        case _:
            _cut_value(profile, what)


def _cut_value(profile: Profile, what: str) -> None:
    match what:
        case "cancel":
            profile.cancel_at = None
        case "timing":
            profile.other_timing = None
        case "clients":
            profile.clients = 0
        case "strikes":
            profile.strikes = 0.0
        case "watching":
            profile.watching = None
        case "standing":
            profile.standing = 0.0
        case "drift":
            profile.drift = 0.0
        case "locks":
            profile.locks = False
        case "wire":
            profile.wire_s = 0.001
        case _:
            raise ValueError(f"nothing of a world is named {what!r}")


def _without_job(program: Program, name: str, *, wholly: bool) -> Program:
    def path(stages: tuple[tuple[Job, ...], ...]) -> tuple[tuple[Job, ...], ...]:
        left = (
            tuple(
                Job(job.name, job.runs_s) if job.name == name else job
                for job in stage
                if not (wholly and job.name == name)
            )
            for stage in stages
        )
        return tuple(stage for stage in left if stage)

    return replace(
        program, stages=path(program.stages), detours=tuple(path(one) for one in program.detours)
    )
