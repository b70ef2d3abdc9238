"""Two applications of one session, at the same time, with conflicting versions of one library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys import harness
from tests.journeys.harness import COMMAND, SESSION_LESS, Run, command
from tests.journeys.members import until
from tests.support.wheels import wheel

pytestmark = pytest.mark.filesystem  # With a backend of its own.


@pytest.fixture
def session(place: Path) -> Iterator[Path]:
    """Start a session whose environments are built of wheels in the test's place."""
    for version in ("1.0", "2.0"):
        wheel(place / "wheels", "cherry", version)
    command(place, "session", "start", *options(place))
    yield place
    harness.kill(harness.processes_of(place))


def options(place: Path) -> tuple[str, ...]:
    return (
        *(*SESSION_LESS, "-D", f"io.tmp.dirs={place}/tmp"),
        *("-D", f"python.find-links={place}/wheels", "-D", "python.no-index=true"),
    )


def run(place: Path, script: Path, own: str, other: str, needs: str) -> Run:
    (place / f"{own}.txt").write_text(needs)
    words = ("run", "--json", "--requirements", f"{own}.txt", str(script), own, other)
    return Run([*COMMAND, *words], place, place / f"{own}.log")


def versions(follower: Run, own: str) -> list[str]:
    """Return the versions that main and job of an application have printed."""
    printed = follower.log.read_text().splitlines()
    return [line.split()[-1] for line in printed if f" of {own} has " in line]


def environments(place: Path) -> list[str]:
    """Return the environments that are there, without marks and locks."""
    return [one.name for one in place.glob("tmp/*/environments/*") if one.is_dir()]


def test_each_has_its_own_version_and_no_environment_outlives_its_application(
    session: Path,
) -> None:
    script = harness.put_app(session, "meets.py")
    old = run(session, script, "old", "new", "cherry<2\n")
    new = run(session, script, "new", "old", "cherry>=2\n")
    until(lambda: (session / "job-old").exists() and (session / "job-new").exists())
    codes = [old.finish(), new.finish()]
    until(lambda: [] == environments(session))

    assert [0, 0] == codes, old.story() + new.story()
    assert ["1.0", "1.0"] == versions(old, "old")
    assert ["2.0", "2.0"] == versions(new, "new")
