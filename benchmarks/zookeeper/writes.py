"""What each writes to ZooKeeper: for a job, for an application's whole life, and in quiet times."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import charts, clusters
from benchmarks.figures import Chapter, Effort, Table, ratio
from benchmarks.zookeeper import flink, processes, transactions
from benchmarks.zookeeper.flink import Flink
from benchmarks.zookeeper.transactions import Transaction
from tests.journeys.harness import Run
from tests.support.zookeeper import Server

IMAGE = "writes.png"
BEFORE = 5
"""Jobs before the count begins: every directory is there."""

SETTLE_S = 3.0
"""Until what a finished job has left is cleaned, on each side."""

CHECKPOINTS = 5
SHARE = "its share of the application's end"
ALONE = "an application of one job, its cluster's whole life"


@dataclass(frozen=True)
class Count:
    """What was written meanwhile, by kind; for one job, or for all of it."""

    name: str
    kinds: dict[str, float]

    @property
    def total(self) -> float:
        """Return how many transactions it were."""
        return sum(self.kinds.values())


def run(effort: Effort, server: Server, place: Path) -> Chapter:
    """Count all of it on one server, one after the other."""
    jobs, idle_s = effort.of(100, 10), float(effort.of(60, 20))
    mine = _ours(server, jobs, idle_s)
    *theirs, submitted, checkpoint = _flinks(server, place, jobs, idle_s)
    job = theirs[0]
    share = {SHARE: mine[1].total / (BEFORE + jobs)}
    whole = Count(mine[0].name, mine[0].kinds | share)
    each = whole.total
    pairs = [(whole, submitted), (whole, job), *zip(mine[1:], theirs[1:], strict=True)]
    rows = [(two.name, *_against(one.total, two.total)) for one, two in pairs]
    rows.append((checkpoint.name, *_against(0, checkpoint.total)))
    bars = {
        "Understudy": whole,
        "Flink, application": job,
        "Flink, submitted": submitted,
        "Flink, a checkpoint": checkpoint,
    }
    title = "Transactions of ZooKeeper for a job, from submission to cleaned"
    drawn = {name: one.kinds for name, one in bars.items()}
    beats = "; ".join(f"{number:.0f} × {kind}" for kind, number in mine[3].kinds.items())
    return Chapter(
        "Writes to ZooKeeper",
        _told(jobs),
        (
            Table(("transactions", "Understudy", "Flink", "ratio"), tuple(rows)),
            *(_kinds("Understudy", one) for one in (whole, *mine[1:])),
            *(_kinds("Flink", one) for one in (*theirs[:3], submitted, checkpoint)),
        ),
        f"A job costs {each:.2f} transactions from submission to cleaned (with its share of the "
        f"application's end), {ratio(each, job.total)} of Flink's {job.total:.1f} in an "
        f"application and {ratio(each, submitted.total)} of its {submitted.total:.1f} with a "
        f"client; each checkpoint there costs {checkpoint.total:.1f} more. While nothing happens "
        f"for {idle_s:.0f} s: {beats or 'none'}.",
        charts.sums(effort.images / IMAGE, title, "transactions", drawn),
    )


def _against(mine: float, theirs: float) -> tuple[str, str, str]:
    told = ratio(mine, theirs) if mine and theirs else ""
    return f"{mine:.2f}", f"{theirs:.2f}", told


def _ours(server: Server, jobs: int, idle_s: float) -> list[Count]:
    options = (
        *("-D", "high-availability.type=zookeeper"),
        *("-D", f"high-availability.zookeeper.quorum={server.connect_string}"),
    )
    with clusters.cluster("two_halves.py", BEFORE, jobs, options=options) as one:
        one.grown("half.txt", 1)
        one.standby_is_ready()
        running = _Between(server)
        one.release()
        one.grown("whole.txt", 1, clusters.PATIENCE_S)
        running.end()
        time.sleep(SETTLE_S)
        quiet = _Between(server)
        time.sleep(idle_s)
        quiet.end()
        ending = _Between(server)
        _end(one)
    ending.end()
    whole = _Between(server)
    single = ("--jobmanagers", "1", *options)
    with clusters.cluster("two_halves.py", 0, 1, options=single) as one:
        one.release()
        _end(one)
    whole.end()
    return [
        running.count(f"a job, one of {jobs} of an application", transactions.ours, jobs),
        ending.count(f"the end of that application, of all {BEFORE + jobs}", transactions.ours),
        whole.count(ALONE, transactions.ours),
        quiet.count(f"{idle_s:.0f} s in which nothing happens", transactions.ours),
    ]


def _end(one: Run) -> None:
    """Let the last jobs be counted, and the application end."""
    one.grown("whole.txt", 1, clusters.PATIENCE_S)
    (one.place / "end").touch()
    assert one.finish() == 0, one.story()


def _flinks(server: Server, place: Path, jobs: int, idle_s: float) -> list[Count]:
    with _application(server, place / "flink-jobs", BEFORE, jobs) as one:
        _until(one, "half.txt")
        # The clean-up of a job goes on after execute() has returned.
        time.sleep(SETTLE_S)
        running = _Between(server)
        (one.place / "go").touch()
        _until(one, "whole.txt")
        time.sleep(SETTLE_S)
        running.end()
        quiet = _Between(server)
        time.sleep(idle_s)
        quiet.end()
        ending = _Between(server)
        _finish(one)
    ending.end()
    whole = _Between(server)
    with _application(server, place / "flink-one", 0, 1) as one:
        (one.place / "go").touch()
        _until(one, "whole.txt")
        _finish(one)
    whole.end()
    name = transactions.flinks
    return [
        running.count(f"a job, one of {jobs} of an application", name, jobs),
        ending.count(f"the end of that application, of all {BEFORE + jobs}", name),
        whole.count(ALONE, name),
        quiet.count(f"{idle_s:.0f} s in which nothing happens", name),
        *_streaming(server, place),
    ]


def _streaming(server: Server, place: Path) -> list[Count]:
    """Count a job that is submitted and cancelled, and what its checkpoints cost."""
    every = {"execution.checkpointing.interval": "1 s"}
    with flink.cluster(place / "flink-stream", server.connect_string, **every) as one:
        stream = processes.compiled(flink.JAVA / "StreamJob.java", [flink.jars() / "*"], place)
        one.start_manager(0)
        one.start_taskmanager()
        # The first job of a cluster makes directories that stay.
        for _ in range(2):
            time.sleep(SETTLE_S)
            job = _Between(server)
            began = time.time()
            job_id = one.submit(stream, place / "steps.jsonl")
            processes.until(
                "checkpoints", partial(_complete, one, job_id, began), [*one.managers.values()]
            )
            one.cancel(0, job_id)
            time.sleep(SETTLE_S)
            job.end()
    found = job.count("a job, submitted by the client", transactions.flinks)
    checkpoints = found.kinds.pop(transactions.CHECKPOINT)
    number = job.matching(transactions.begins_checkpoint)
    each = Count("a checkpoint", {transactions.CHECKPOINT: checkpoints / number})
    return [found, each]


def _complete(one: Flink, job_id: str, began: float) -> bool:
    return one.checkpoints(0, job_id, began) >= CHECKPOINTS


@contextlib.contextmanager
def _application(server: Server, place: Path, uncounted: int, counted: int) -> Iterator[Flink]:
    """Have an application cluster without a standby, which would run the application again."""
    attached = {"execution.attached": "true"}
    with flink.cluster(place, server.connect_string, **attached) as one:
        jar = processes.compiled(flink.JAVA / "ManyJobs.java", [flink.jars() / "*"], place)
        line = ["--job-classname", "ManyJobs", place, uncounted, counted]
        one.start_manager(0, flink.APPLICATION, [jar], line)
        one.start_taskmanager([jar])
        yield one


def _until(one: Flink, name: str) -> None:
    where = one.place / name
    processes.until(name, where.exists, [*one.managers.values()])


def _finish(one: Flink) -> None:
    (one.place / "end").touch()
    processes.until("the end", lambda: one.managers[0].ended, [*one.managers.values()])


class _Between:
    """What the server writes from now on, until the end is told."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._after = self._upto = server.transactions()

    def end(self) -> None:
        """Count no further."""
        self._upto = self._server.transactions()

    def count(self, name: str, kind: Callable[[Transaction], str], jobs: int = 1) -> Count:
        """Return how many there were of each kind, for one job of so many."""
        found = Counter(map(kind, self._mine()))
        return Count(name, {what: number / jobs for what, number in found.most_common()})

    def matching(self, holds: Callable[[Transaction], bool]) -> int:
        """Return how many there were that hold."""
        return sum(map(holds, self._mine()))

    def _mine(self) -> list[Transaction]:
        """Return them from the log: as many as the server has counted."""
        log = transactions.read(self._server)
        mine = [one for one in log if self._after < one.number <= self._upto]
        assert len(mine) == self._upto - self._after, "the log and the server's count differ"
        return mine


def _kinds(system: str, one: Count) -> Table:
    rows = [(kind, f"{number:.2f}") for kind, number in one.kinds.items()]
    title = f"{system}: {one.name}"
    return Table((title, "transactions"), (*rows, ("together", f"{one.total:.2f}")))


def _told(jobs: int) -> str:
    return (
        f"Counted by the server (the difference of its zxid), named from its transaction log. A "
        f"`multi` is one transaction; one that is refused is written, too. {jobs} jobs that do "
        f"nothing, one after the other, in one application, after {BEFORE} that are not counted: "
        "here in `run-application` with two JobManagers, in Flink in application mode with one (a "
        "standby would run the application again once it has ended). Flink cleans each job at "
        "once; here all are cleaned with their application, which is counted as its end, with all "
        "sessions. *An application of one job* is the whole life of such a cluster with one "
        "JobManager, from the first process to the last; here it begins with a proof that the "
        "ZooKeeper keeps what we rely on. *Submitted by the client*: a streaming "
        "job with a checkpoint each second in a session cluster, cancelled after "
        f"{CHECKPOINTS} of them; the checkpoints are counted apart."
    )
