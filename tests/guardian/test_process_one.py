"""A guardian as process 1, as it is in a container: nothing else reaps, and forwards signals."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guardian.ground import PATIENCE_S, WORKER, until
from understudy.process import guardian
from understudy.process.processes import GUARDIAN

ALONE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
POLITE = 7


@pytest.fixture(autouse=True)
def _namespaces() -> None:
    made = subprocess.run([*ALONE, "true"], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("PID namespaces need root, and unshare of util-linux")


class Container:
    """A process that is process 1 of a PID namespace of its own."""

    def __init__(self, *command: str, environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [*ALONE, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            env={**os.environ, **(environment or {})},
        )
        until(lambda: bool(self._children()))
        self.first = self._children()[0]

    def _children(self) -> list[int]:
        return guardian.children_of(self.process.pid)

    def order(self, line: str) -> str:
        self.shout(line)
        return self.line()

    def shout(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{line}\n".encode())

    def line(self) -> str:
        assert self.process.stdout
        assert select.select([self.process.stdout], [], [], PATIENCE_S)[0], "it says nothing"
        return self.process.stdout.readline().decode().strip()

    def end(self, number: signal.Signals) -> int:
        """Send a signal to process 1; return the exit status of the container."""
        os.kill(self.first, number)
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def guarded() -> Iterator[Container]:
    spec = json.dumps({"name": "test", "argv": [*WORKER], "stop_grace_s": PATIENCE_S})
    one = Container(sys.executable, "-I", "-S", GUARDIAN, spec)
    yield one
    one.process.kill()
    one.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_is_forwarded_and_the_exit_status_is_kept(
    guarded: Container, number: signal.Signals
) -> None:
    assert "polite" == guarded.order(f"polite {POLITE}")

    assert POLITE == guarded.end(number)


def test_a_worker_that_does_not_handle_the_signal_ends_by_it(guarded: Container) -> None:
    guarded.order("settle 1")

    assert 128 + signal.SIGTERM == guarded.end(signal.SIGTERM)


def test_orphans_are_reaped_and_none_outlives_the_worker(guarded: Container) -> None:
    inside = int(guarded.order("fork orphan"))
    until(lambda: len(guardian.children_of(guarded.first)) > 1)  # Its parent ends after its answer.
    (orphan,) = set(guardian.children_of(guarded.first)) - {_worker(guarded)}

    os.kill(orphan, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{orphan}").exists())

    assert inside > 1
    guarded.order("fork daemon")
    guarded.shout("end 3")
    assert 3 == guarded.process.wait(PATIENCE_S)


def _worker(one: Container) -> int:
    return min(guardian.children_of(one.first))


def test_a_command_that_still_prepares_its_start_ends_at_once(tmp_path: Path) -> None:
    """The kernel drops signals to process 1 that it has no handler for."""
    settings = {
        "high-availability.type": "zookeeper",
        "high-availability.zookeeper.quorum": "127.0.0.1:1",
        "high-availability.storageDir": str(tmp_path),
    }
    options = [word for key, text in settings.items() for word in ("-D", f"{key}={text}")]
    driver = ["-D", "taskmanager.driver.type=session-less"]
    command = [sys.executable, "-m", "understudy", "taskmanager", *options, *driver]
    one = Container(*command, environment={"XDG_RUNTIME_DIR": str(tmp_path)})
    while "waiting for" not in (said := one.line()) and "trying again" not in said:
        assert said, "it has ended"

    assert 128 + signal.SIGTERM == one.end(signal.SIGTERM)
    one.process.communicate()
