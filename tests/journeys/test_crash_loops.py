"""What ends badly each time is tried as often as the restart strategy says, and not for ever."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.journeys import harness
from tests.journeys.harness import COMMAND, SESSION_LESS, Run, command, stored
from tests.support.sampling import quickly

NOTE = """
import os, signal, sys, time
with open("main.txt", "a") as file:
    file.write(f"{time.time()}\\n")
"""
KILL = "os.kill(os.getpid(), signal.SIGKILL)\n"

TWICE = (
    *("-D", "restart-strategy.type=fixed-delay"),
    *("-D", "restart-strategy.fixed-delay.attempts=2"),
    *("-D", "restart-strategy.fixed-delay.delay=400ms"),
)
DELAY_S = 0.4

ALONE = ("--jobmanagers", "1", "--slots", "1")
"""No standby, so that it is quick, and so that the only JobManager must live."""

AS_MAIN = ("--as", "main")
"""A script without Understudy would run as one job."""

MAINS = {
    "cannot be imported": (NOTE + "import no_such_module\n", 1, "No module named 'no_such_module'"),
    "compiles nonsense": ("exec('def (:')\n", 0, "SyntaxError"),
    "exits hard": (NOTE + "os._exit(3)\n", 1, "the process of main exited with 3"),
    "fills its memory": (
        NOTE + "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 30, -1))\n"
        "kept = [bytearray(1 << 26) for _ in range(64)]\n",
        1,
        "MemoryError",
    ),
    "loses its output": (
        NOTE + "sys.stdout = sys.stderr = None\nos.close(1)\nraise ValueError('unheard')\n",
        1,
        "ValueError: unheard",
    ),
    "is killed": (NOTE + KILL, 3, "the process of main was killed by signal 9"),
    "kills its guardian": (
        NOTE + "os.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(1000)\n",
        3,
        "the process of main was killed: its guardian was killed",
    ),
}


KEPT = ("kills its guardian",)


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Return a function that starts a run of a script that is given as text."""
    runs: list[Run] = []

    def start(text: str, *options: str) -> Run:
        (tmp_path / "app.py").write_text(text)
        line = [*COMMAND, "run-application", "--json", *SESSION_LESS, *ALONE, *options, "app.py"]
        runs.append(Run(line, tmp_path, tmp_path / f"stderr-{len(runs)}.log"))
        return runs[-1]

    yield start
    for run in runs:
        harness.end(run)


@pytest.mark.parametrize("how", quickly(MAINS, KEPT))
def test_a_main_that_always(
    begin: Callable[..., Run], tmp_path: Path, nothing_left: Callable[[], None], how: str
) -> None:
    text, executions, why = MAINS[how]
    run = begin(text, *TWICE, *AS_MAIN)
    code = run.finish()
    times = [float(line) for line in run.lines("main.txt")]

    assert 1 == code
    assert executions == len(times)
    assert "FAILED" == run.of("application-finished")[0]["status"]
    assert why in run.of("application-finished")[0]["failure"]
    assert 1 == len(run.of("leader")), "the JobManager lives"
    # The first restart after a loss is immediate, the next one waits.
    assert [] == [pause for pause in _pauses(times)[1:] if pause < DELAY_S]
    assert [] == stored(tmp_path)
    nothing_left()


@pytest.mark.long  # Units: tests/api/test_failures.py.
def test_why_main_failed_is_said_and_can_be_asked_for(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(NOTE + "os._exit(3)\n")
    named = ("-D", "high-availability.cluster-id=loop", *SESSION_LESS, *ALONE, *AS_MAIN)
    said = command(tmp_path, "run-application", *named, "app.py", code=1).stderr
    [application] = json.loads(command(tmp_path, "list", "--json").stdout)["applications"]
    shown = command(tmp_path, "info", application["id"])

    assert "FAILED" == application["status"]
    assert "understudy: the application failed: SystemExit: the process of main exited" in said
    assert "the process of main exited with 3" in shown.stdout


def _pauses(times: list[float]) -> list[float]:
    return [after - before for before, after in itertools.pairwise(times)]


JOBS = """
import os, signal, time, understudy
def note(name):
    with open("jobs.txt", "a") as file:
        file.write(f"{name} {time.time()}\\n")
def raises(ctx):
    note("raises")
    raise type("X", (BaseException,), {})
def killed(ctx):
    note("killed")
    os.kill(os.getpid(), signal.SIGKILL)
def exits(ctx):
    note("exits")
    os._exit(0)
def fine(ctx):
    return "fine"
env = understudy.get_environment()
for job in (raises, killed, exits):
    try:
        env.execute(job)
    except understudy.JobFailed as error:
        print("told:", str(error).splitlines()[0])
print(env.execute(fine).value)
"""
RATE = (
    *("-D", "restart-strategy.type=failure-rate"),
    *("-D", "restart-strategy.failure-rate.max-failures-per-interval=2"),
    *("-D", "restart-strategy.failure-rate.delay=300ms"),
)
STRATEGIES = {
    "fixed": (TWICE, [0.4, 0.4], [0.0, 0.4], "the restart strategy allows 2 restarts"),
    "a rate": (RATE, [0.3, 0.3], [0.0, 0.3], "the restart strategy allows 2 restarts within 60 s"),
}


@pytest.mark.parametrize("strategy", quickly(STRATEGIES, ["fixed"]))
def test_a_job_that_always_ends_badly(
    begin: Callable[..., Run], tmp_path: Path, strategy: str
) -> None:
    options, after_exception, after_loss, why = STRATEGIES[strategy]
    run = begin(JOBS, *options)
    code = run.finish()
    printed = run.log.read_text()
    times: dict[str, list[float]] = {}
    for line in run.lines("jobs.txt"):
        name, _, at = line.partition(" ")
        times.setdefault(name, []).append(float(at))
    last = len(after_loss) + 1

    assert 0 == code, run.story()
    assert f"told: job 'raises' failed in attempt {len(after_exception) + 1}: X" in printed
    for name, how in (("killed", "was killed by signal 9"), ("exits", "exited with 0")):
        assert f"job {name!r} failed in attempt {last}: AttemptLost: its driver {how}; " in printed
        assert all(
            one >= least for one, least in zip(_pauses(times[name]), after_loss, strict=True)
        )
    assert all(
        one >= least for one, least in zip(_pauses(times["raises"]), after_exception, strict=True)
    )
    assert why in printed
    assert "[main] fine" in printed
    assert 1 == len(run.of("leader")), "the JobManager lives"
    assert [] == stored(tmp_path)


@pytest.mark.long
def test_a_jobmanager_lives_on_when_main_has_failed_for_good(tmp_path: Path) -> None:
    """The single processes: what failed is shown until somebody ends them."""
    (tmp_path / "app.py").write_text(NOTE + KILL)
    options = [*SESSION_LESS, *TWICE, "-D", "execution.shutdown-on-application-finish=false"]
    members = [
        subprocess.Popen(
            [*COMMAND, *role, *options, *app],
            cwd=tmp_path,
            env=harness.environment(tmp_path),
            stderr=subprocess.DEVNULL,
        )
        for role, app in ((["taskmanager"], []), (["jobmanager"], [*AS_MAIN, "app.py"]))
    ]
    try:
        failed = _until_failed(tmp_path)
        codes = [member.poll() for member in members]
        status = command(tmp_path, "result", failed["id"], "--json", code=1).stdout
        for member in reversed(members):
            member.send_signal(signal.SIGTERM)
        ends = [member.wait(30) for member in members]
    finally:
        harness.kill([*(one.pid for one in members), *harness.processes_of(tmp_path)])
        for member in members:
            member.wait(30)

    assert [None, None] == codes, "both live"
    assert "FAILED" == json.loads(status)["status"]
    assert 3 == len((tmp_path / "main.txt").read_text().splitlines())
    assert [143, 143] == ends


def _until_failed(place: Path) -> dict[str, str]:
    deadline = time.monotonic() + harness.PATIENCE_S
    while time.monotonic() < deadline:
        listed = json.loads(command(place, "list", "--json").stdout)["applications"]
        for application in listed:
            if application["status"] == "FAILED":
                found: dict[str, str] = application
                return found
    raise AssertionError("it did not fail")
