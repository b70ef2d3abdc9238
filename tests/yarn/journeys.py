"""What must hold on YARN; each journey raises ``AssertionError`` where something does not."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyspark

from tests.journeys import harness
from tests.journeys.harness import COMMAND, Run
from tests.support.foreign_application import ForeignApplication
from tests.yarn.cluster import APPLICATION_MASTER, EXECUTOR, Yarn

ROWS = 1000
COMPUTED = ROWS * (ROWS - 1) + ROWS

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SPARK = {
    # Else each application uploads 500 MB of jars, to be unpacked on each node.
    "spark.yarn.jars": f"local:{Path(pyspark.__file__).parent}/jars/*",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.instances": "2",
    "spark.executor.memory": "512m",
    "spark.yarn.am.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK,
    "spark.yarn.am.extraJavaOptions": QUICK,
    "spark.driver.extraJavaOptions": QUICK,
    "spark.sql.shuffle.partitions": "2",
}
FOREIGN = {
    **{key: SPARK[key] for key in ("spark.yarn.jars", "spark.driver.host", "spark.yarn.am.memory")},
    "spark.executor.instances": "1",
    "spark.yarn.queue": "default",
}
ALL = {"spark.executor.instances": "3", "spark.yarn.queue": "nightly"}
"""With its ApplicationMaster, that takes all cores from the queue that our jobs are in."""

Found = dict[str, Any]


class Trip:
    """A run of the application in a place of its own."""

    def __init__(self, run: Run, place: Path, name: str) -> None:
        self.run = run
        self.place = place
        self.name = name
        """What the application is called: no two are called the same."""

    def go(self, name: str = "go") -> None:
        """Let what waits for a file go on."""
        (self.place / name).touch()

    def at_work(self, attempt: int, parts: int = 2) -> dict[str, Any]:
        """Wait until the tasks of an attempt of ``holds`` run; return its driver's slot."""
        self.run.running("holds", attempt=attempt, patience_s=harness.WHOLE_S)
        self.run.grown("attempts.txt", attempt, harness.WHOLE_S)
        for number in range(parts):
            _until_there(self.run, self.place / f"go-{number}")
        for number in range(parts):
            (self.place / f"go-{number}").unlink()
        return self.slot()

    def slot(self) -> dict[str, Any]:
        """Return the slot that is busy."""
        answer = self.run.until("/taskmanagers", lambda told: bool(_busy(told)))
        return _busy(answer)[0]

    def end(self) -> Found:
        """Wait for the end of the run; return what the application has found."""
        assert self.run.finish(harness.WHOLE_S) == 0, self.run.story()
        found: Found = json.loads((self.place / "found.json").read_text())
        return found

    def reasons(self) -> list[str]:
        """Return why drivers ended that had a job."""
        return [one["reason"] for one in self.run.of("driver-ended") if one["job_id"]]


def _busy(told: Any) -> list[dict[str, Any]]:
    slots = [slot for one in told["taskmanagers"] for slot in one["slots"]]
    return [slot for slot in slots if slot["state"] == "busy"]


def _until_there(run: Run, path: Path) -> None:
    run.until("/taskmanagers", lambda _: path.exists())


@contextlib.contextmanager
def trip(
    yarn: Yarn, *jobs: str, conf: Mapping[str, str] | None = None, settings: tuple[str, ...] = ()
) -> Iterator[Trip]:
    """Start the application with these jobs in the queue ``nightly``; end it in any case."""
    with tempfile.TemporaryDirectory(prefix="flights-", dir=yarn.place) as directory:
        place = Path(directory)
        staging = place / "staging"
        own = {"spark.yarn.queue": "nightly", "spark.yarn.stagingDir": str(staging)}
        spark = {**SPARK, **own, **(conf or {})}
        options = [part for item in spark.items() for part in ("--conf", "=".join(item))]
        options += ["-D", f"io.tmp.dirs={place / 'tmp'}", "--slots", "1", "--master", "yarn"]
        options += ["--name", place.name, *(part for one in settings for part in ("-D", one))]
        script = shutil.copy(Path(__file__).with_name("app.py"), place / "app.py")
        line = [*COMMAND, "run-application", "--json", *options, str(script)]
        run = Run(
            [*line, str(place / "found.json"), *jobs],
            place,
            place / "stderr.log",
            yarn.variables(),
        )
        try:
            yield Trip(run, place, place.name)
        finally:
            harness.end(run)
        assert harness.processes_of(place) == {}
        assert list(staging.glob(".sparkStaging/*")) == []


# --- journeys -------------------------------------------------------------------------------------


def computes(yarn: Yarn) -> None:
    """A job's result is right; a driver holds nothing before, between and after jobs."""
    with trip(yarn, "computes", "go-on", "computes", conf={"spark.yarn.tags": "mine"}) as one:
        one.run.wait("job-status", harness.WHOLE_S, name="computes", status="FINISHED")
        first = yarn.await_over(f"{one.name} / computes #1")
        one.run.until("/taskmanagers", lambda told: not _busy(told))
        idle = yarn.held()
        one.go("go-on")
        found = one.end()

    assert found == {"computes": COMPUTED}
    assert (first.queue, first.state) == ("nightly", "FINISHED")
    assert {"mine", "understudy"} <= set(first.tags.split(","))
    assert idle == (0, [])
    yarn.await_idle()


def loses_drivers(yarn: Yarn) -> None:
    """Driver, JVM and TaskManager are killed: each time YARN's application ends before the next."""
    with trip(yarn, "holds/2") as one:
        for attempt, victim in enumerate(("driver_pid", "jvm_pid", "taskmanager"), 1):
            slot = one.at_work(attempt)
            if victim == "taskmanager":
                (manager,) = one.run.get("/taskmanagers")["taskmanagers"]
                harness.kill([manager["pid"]])
            else:
                harness.kill([slot[victim]])
            yarn.await_over(f"{one.name} / holds #{attempt}")
        one.at_work(4)
        one.go()
        found = one.end()
        attempts = one.run.lines("attempts.txt")

    assert found == {"holds": 1}
    assert [line.split()[0] for line in attempts] == ["1", "2", "3", "4"]
    assert len({line.split()[1] for line in attempts}) == 4
    yarn.await_idle()


def loses_the_application(yarn: Yarn) -> None:
    """The one ApplicationMaster that YARN allows is killed: the job runs again, and is told why."""
    with trip(yarn, "holds/2", conf={"spark.yarn.maxAppAttempts": "1"}) as one:
        one.at_work(1)
        first = yarn.named(f"{one.name} / holds #1")
        harness.kill([yarn.jvm(first.id, APPLICATION_MASTER)])
        one.at_work(2)
        first = yarn.await_over(first.name)
        one.go()
        found = one.end()
        reasons = one.reasons()

    assert found == {"holds": 1}
    assert first.state == "FAILED"
    assert any("lost its Spark application" in reason for reason in reasons), reasons


def loses_one_master(yarn: Yarn) -> None:
    """YARN starts another ApplicationMaster: the same attempt goes on, with new executors."""
    with trip(yarn, "holds/2") as one:
        one.at_work(1)
        first = yarn.named(f"{one.name} / holds #1")
        harness.kill([yarn.jvm(first.id, APPLICATION_MASTER)])
        for number in range(2):  # The new executors have begun, too.
            _until_there(one.run, one.place / f"go-{number}")
        one.go()
        found = one.end()
        attempts = one.run.lines("attempts.txt")

    assert found == {"holds": 1}
    assert attempts == [f"1 {first.id}"]


def ends_an_orphan(yarn: Yarn) -> None:
    """All containers hang when the driver is killed: its next attempt ends them first."""
    with trip(yarn, "holds/2") as one:
        slot = one.at_work(1)
        first = yarn.named(f"{one.name} / holds #1")
        yarn.freeze(first.id)
        harness.kill([slot["jvm_pid"]])
        one.at_work(2)
        first = yarn.await_over(first.name)
        one.go()
        found = one.end()

    assert found == {"holds": 1}
    assert first.state == "KILLED"
    assert "ended by Understudy" in first.diagnostics


def is_preempted(yarn: Yarn) -> None:
    """Another queue takes cores of its share back: an executor goes, the attempt does not."""
    conf = {"spark.executor.instances": "3"}
    with trip(yarn, "holds/3", conf=conf) as one:
        one.at_work(1, parts=3)
        first = yarn.named(f"{one.name} / holds #1")
        assert _executors(yarn, first.id) == 3
        with _foreign(yarn, one.place) as other:
            yarn.until(lambda: _executors(yarn, first.id) < 3, "preemption")
            one.go()
            counted = other.counted(harness.WHOLE_S)
        found = one.end()
        attempts = one.run.lines("attempts.txt")

    assert counted == ROWS
    assert found == {"holds": 3}
    assert attempts == [f"1 {first.id}"]


def waits_in_the_queue(yarn: Yarn) -> None:
    """The cluster is full: a job says so while YARN has only accepted its application.

    A driver that is killed then leaves an application that holds nothing yet: that one is ended.
    """
    with trip(yarn, "go-on", "computes") as one:
        with _foreign(yarn, one.place, ALL) as other:
            other.counted(harness.WHOLE_S)
            yarn.until(lambda: yarn.held()[0] == 4, "a full cluster")
            one.go("go-on")
            said = one.run.wait("job-executors", harness.WHOLE_S, name="computes", attempt=1)
            path = f"/jobs/{said['job_id']}"
            shown = one.run.until(path, lambda job: bool(job["waits"]))["waits"]
            harness.kill([one.slot()["jvm_pid"]])
            yarn.named(f"{one.name} / computes #2")
            first = yarn.await_over(f"{one.name} / computes #1")
        found = one.end()

    assert "'foreign' holds 4" in said["waits"], said
    assert shown == said["waits"]
    assert "0 of 4 cores free" in said["waits"], said
    assert first.state == "KILLED"
    assert found == {"computes": COMPUTED}
    yarn.await_idle()


def gives_up_waiting(yarn: Yarn) -> None:
    """A job that waits for too long fails, and its application leaves the queue with it."""
    settings = ("taskmanager.executors.wait-timeout=5s", "restart-strategy.type=none")
    with (
        trip(yarn, "go-on", "computes", settings=settings) as one,
        _foreign(yarn, one.place, ALL) as other,
    ):
        other.counted(harness.WHOLE_S)
        yarn.until(lambda: yarn.held()[0] == 4, "a full cluster")
        one.go("go-on")
        first = yarn.await_over(f"{one.name} / computes #1")
        code = one.run.finish(harness.WHOLE_S)
        said = one.run.log.read_text()

    assert first.state == "KILLED"
    assert code != 0
    assert "taskmanager.executors.wait-timeout is 5 s" in said, said[-3000:]


def _executors(yarn: Yarn, application_id: str) -> int:
    found = yarn.containers(application_id, EXECUTOR)
    return len([one for one in found if one.is_jvm])


@contextlib.contextmanager
def _foreign(
    yarn: Yarn, place: Path, conf: Mapping[str, str] | None = None
) -> Iterator[ForeignApplication]:
    settings = {**FOREIGN, "spark.yarn.stagingDir": str(yarn.place / "staging"), **(conf or {})}
    before = os.environ.get("HADOOP_CONF_DIR")
    os.environ.update(yarn.variables())
    try:
        with ForeignApplication("yarn", "foreign", place, settings) as other:
            yield other
    finally:
        if before is None:
            del os.environ["HADOOP_CONF_DIR"]
        else:
            os.environ["HADOOP_CONF_DIR"] = before


JOURNEYS = (
    computes,
    loses_drivers,
    loses_the_application,
    loses_one_master,
    ends_an_orphan,
    is_preempted,
    waits_in_the_queue,
    gives_up_waiting,
)
