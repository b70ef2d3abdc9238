"""A world that fails is made smaller, and is not lost."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from tests.sim.program import Odds
from tests.sim.shrink import keep, kept, kind_of, shrink
from tests.sim.spec import Spec, possible_cuts

SEEDS = range(40)


def test_what_a_failure_does_not_need_is_taken_out() -> None:
    spec = next(spec for spec in map(Spec, range(1000)) if _hurt(spec))

    small = shrink(spec, _hurt).profile()

    assert 1 == len(small.blows)
    assert small.blows[0].kind == "freeze a host"
    assert small.register.late > 0
    assert [] == [
        one.name for one in fields(Odds) if getattr(small.storage, one.name) != one.default
    ]
    assert (1, 1, 0) == (small.jobmanagers, small.taskmanagers, len(small.program.jobs()))


def test_a_world_that_fails_in_another_way_is_no_smaller_one() -> None:
    spec = next(spec for spec in map(Spec, range(1000)) if len(spec.profile().blows) == 4)

    small = shrink(spec, lambda one: f"{len(one.profile().blows)} blows")

    assert 4 == len(small.profile().blows)


def test_shrinking_ends_in_time() -> None:
    spec = next(spec for spec in map(Spec, range(1000)) if _hurt(spec))

    assert spec == shrink(spec, _hurt, limit_s=-1)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_smaller_world_is_named_by_its_seed_and_what_it_is_without(seed: int) -> None:
    spec = Spec(seed).less(*possible_cuts(Spec(seed).profile()))

    actual = Spec.parse(str(spec))

    assert spec == actual
    assert spec.profile() == actual.profile()


def test_a_world_without_what_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="weather"):
        Spec.parse("17 without weather")


def test_a_failed_world_is_kept_once(tmp_path: Path) -> None:
    path, spec = tmp_path / "out" / "failed.txt", Spec(17, ("blow.3",))

    keep(spec, AssertionError("load: attempt 2, and the last one lives"), path)
    keep(spec, AssertionError("load: attempt 3, and the last one lives"), path)

    assert [spec] == kept(path)


def test_failures_that_differ_by_names_and_numbers_are_of_one_kind() -> None:
    expected = kind_of(AssertionError("a: attempt 2 of 0123456789abcdef"))

    actual = kind_of(AssertionError("b: attempt 13 of fedcba9876543210"))

    assert expected == actual


def _hurt(spec: Spec) -> str | None:
    profile = spec.profile()
    hurt = any(blow.kind == "freeze a host" for blow in profile.blows) and profile.register.late
    return "hurt" if hurt else None
