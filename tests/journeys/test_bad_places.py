"""Storage that is full, read-only, or does not hold: refused at a start, and outlived."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.journeys import harness
from tests.journeys.harness import COMMAND, SESSION_LESS, Run, command


def _why_not() -> str:
    """Return why no file system can be mounted here; empty where one can."""
    if os.geteuid():
        return "mounting needs root"
    tried = subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False
    )
    return tried.stderr.decode(errors="replace") if tried.returncode else ""


mounts = pytest.mark.skipif(bool(_why_not()), reason=_why_not())


def mounted(place: Path, options: str, words: list[str]) -> list[str]:
    """Return a command that runs with a file system of its own below the storage directory."""
    at = place / "state"
    at.mkdir(exist_ok=True)
    return [
        *("unshare", "-m", "sh", "-c", f'mount -t tmpfs -o {options} none "$0" && exec "$@"'),
        *(str(at), *words),
    ]


@mounts
@pytest.mark.local_storage
@pytest.mark.parametrize("options", ["ro", "size=4k"])
def test_storage_that_cannot_be_written_is_refused_in_one_sentence(
    place: Path, options: str
) -> None:
    harness.put_app(place, "mains.py")
    words = [*COMMAND, "run-application", *SESSION_LESS, "mains.py", "exit-0"]
    refused = subprocess.run(
        mounted(place, options, words),
        cwd=place,
        env=harness.environment(place),
        capture_output=True,
        text=True,
        timeout=harness.PATIENCE_S,
        check=False,
    )

    assert 2 == refused.returncode
    assert "high-availability.storageDir cannot be used" in refused.stderr
    assert 1 == len(refused.stderr.splitlines())


@mounts
@pytest.mark.local_storage
def test_a_storage_that_fills_up_is_waited_for_and_nothing_that_had_finished_runs_again(
    place: Path,
) -> None:
    harness.put_app(place, "three.py")
    named = ("-D", "high-availability.cluster-id=flights")
    words = [*COMMAND, "run-application", "--json", *SESSION_LESS, *named, *harness.impatient()]
    run = Run(mounted(place, "size=4m", [*words, "three.py"]), place, place / "stderr.log")
    try:
        run.at_work()
        filler = Path(f"/proc/{run.process.pid}/root{place}/state/filler")
        fill(filler)
        run.release()
        run.said("No space left on device")
        filler.unlink()

        assert 0 == run.finish()
    finally:
        harness.end(run)

    assert 1 == run.lines("jobs.txt").count("first 1")
    assert 1 == run.lines("jobs.txt").count("third 1")
    assert "TWICE AT ONCE" not in run.lines("jobs.txt")


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue


REGISTER = """
from understudy.ha.backends.embedded import EmbeddedRegister


class Careless(EmbeddedRegister):
    async def swap(self, key, value, expected):
        entry = self._entries.get(key)
        return await super().swap(key, value, entry.version if entry else None)


def open_register(cluster_id, settings):
    return Careless()
"""


def test_a_register_that_does_not_compare_before_it_swaps_is_refused(place: Path) -> None:
    harness.put_app(place, "mains.py")
    (place / "careless.py").write_text(REGISTER)
    began = time.monotonic()
    refused = subprocess.run(
        [
            *(*COMMAND, "run-application", *SESSION_LESS),
            *("-D", "high-availability.type=careless:open_register", "mains.py", "exit-0"),
        ],
        cwd=place,
        env={**harness.environment(place), "PYTHONPATH": str(place)},
        capture_output=True,
        text=True,
        timeout=harness.PATIENCE_S,
        check=False,
    )

    assert 2 == refused.returncode
    assert "the register cannot be used" in refused.stderr
    assert "can be created once more" in refused.stderr
    assert time.monotonic() - began < harness.PATIENCE_S
    assert not (place / "main.txt").exists()


def test_a_storage_directory_that_is_a_file_is_refused(place: Path) -> None:
    harness.put_app(place, "mains.py")
    (place / "file").write_text("not a directory")
    refused = command(
        place,
        *("run-application", "-D", f"high-availability.storageDir={place / 'file'}"),
        *("mains.py", "exit-0"),
        code=2,
    )

    assert "high-availability.storageDir cannot be used" in refused.stderr


@pytest.mark.parametrize(
    "key",
    ["io.tmp.dirs", "job-result-store.storage-path", "application-result-store.storage-path"],
)
def test_a_place_that_cannot_be_made_is_refused_and_nothing_is_left(place: Path, key: str) -> None:
    harness.put_app(place, "mains.py")
    (place / "file").write_text("not a directory")
    given = place / "file" if key == "io.tmp.dirs" else f"file://{place / 'file'}"
    refused = command(
        place,
        *("run-application", *SESSION_LESS, "-D", f"{key}={given}", "mains.py", "exit-0"),
        code=2,
    )

    assert f"{key} cannot be used" in refused.stderr
    assert [] == harness.stored(place)
