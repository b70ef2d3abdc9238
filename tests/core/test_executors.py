"""What a job may take of a Spark cluster, why it waits, and what a dead driver has left."""

from __future__ import annotations

import pytest

from understudy.core import executors
from understudy.core.executors import (
    ActiveApplication,
    AssignedAttempt,
    Capacity,
    CoreHolder,
    Tag,
    WorkerSize,
)

FOUR = Capacity(4, 4)


def workers(*sizes: tuple[int, int]) -> Capacity:
    """Return an empty cluster of workers, each with so many cores and MiB."""
    cores = sum(cores for cores, _ in sizes)
    return Capacity(cores, cores, workers=tuple(WorkerSize(*size) for size in sizes))


TIGHT = workers((2, 1024), (2, 1024))
"""Each worker has memory for one executor by default."""


@pytest.mark.parametrize(
    ("capacity", "conf", "slots", "expected"),
    [
        (FOUR, {}, 2, {"spark.cores.max": "2"}),
        (FOUR, {}, 1, {"spark.cores.max": "4"}),
        (FOUR, {}, 0, {"spark.cores.max": "4"}),
        (FOUR, {}, 3, {"spark.cores.max": "1"}),
        (FOUR, {}, 8, {"spark.cores.max": "1"}),
        (Capacity(0, 0), {}, 2, {"spark.cores.max": "1"}),
        (FOUR, {"spark.executor.cores": "2"}, 8, {"spark.cores.max": "2"}),
        (FOUR, {"spark.cores.max": "3"}, 2, {}),
        (
            FOUR,
            {"spark.executor.instances": "3"},
            2,
            {"spark.executor.cores": "1", "spark.cores.max": "3"},
        ),
        (
            FOUR,
            {"spark.executor.instances": "2", "spark.executor.cores": "2"},
            2,
            {"spark.executor.cores": "2", "spark.cores.max": "4"},
        ),
        (FOUR, {"spark.dynamicAllocation.enabled": "true"}, 2, {"spark.cores.max": "2"}),
        (
            FOUR,
            {
                "spark.dynamicAllocation.enabled": "TRUE ",
                "spark.dynamicAllocation.maxExecutors": "4",
            },
            2,
            {},
        ),
    ],
)
def test_a_job_gets_its_share_unless_a_person_has_set_a_limit(
    capacity: Capacity, conf: dict[str, str], slots: int, expected: dict[str, str]
) -> None:
    assert expected == executors.limits(capacity, conf, slots)


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ({}, 4),
        ({"spark.executor.cores": "2"}, 2),
        ({"spark.cores.max": "3"}, 1),
        ({"spark.cores.max": "100"}, 1),
        ({"spark.executor.instances": "2"}, 2),
        ({"spark.executor.instances": "2", "spark.executor.cores": "2"}, 1),
        ({"spark.dynamicAllocation.enabled": "true"}, 4),
        (
            {
                "spark.dynamicAllocation.enabled": "true",
                "spark.dynamicAllocation.minExecutors": "2",
            },
            2,
        ),
        ({"spark.cores.max": "nonsense"}, 4),
        ({"spark.master": "yarn"}, 2),
        ({"spark.master": "yarn", "spark.yarn.am.cores": "3"}, 1),
    ],
)
def test_the_cluster_carries_so_many_jobs_at_once(conf: dict[str, str], expected: int) -> None:
    assert expected == executors.jobs_at_once(FOUR, conf)


def test_a_cluster_without_workers_carries_one_job_which_then_says_what_it_waits_for() -> None:
    assert executors.jobs_at_once(Capacity(0, 0), {}) == 1


@pytest.mark.parametrize(
    ("capacity", "conf", "expected"),
    [
        (TIGHT, {}, 2),
        (workers((2, 8192), (2, 8192)), {}, 4),
        (workers((16, 1024)), {}, 1),
        (TIGHT, {"spark.executor.memory": "512m"}, 4),
        (TIGHT, {"spark.executor.memory": "512"}, 4),
        (TIGHT, {"spark.executor.memory": "1025m"}, 1),
        (TIGHT, {"spark.executor.memory": "1073741824b"}, 2),
        (TIGHT, {"spark.executor.memory": "1024mb"}, 2),
        (TIGHT, {"spark.executor.memory": "1tb"}, 1),
        (TIGHT, {"spark.executor.memory": "nonsense"}, 2),
        (workers((2, 1024), (0, 99_999)), {}, 1),
        # Without spark.executor.cores, Spark spreads a job over both workers.
        (TIGHT, {"spark.cores.max": "2"}, 1),
        (TIGHT, {"spark.cores.max": "1"}, 2),
        (TIGHT, {"spark.cores.max": "2", "spark.executor.cores": "2"}, 2),
        (workers((4, 2048), (4, 2048)), {"spark.executor.cores": "2"}, 4),
        (workers((4, 1024), (4, 1024)), {"spark.executor.cores": "2"}, 2),
        (workers((4, 4096), (4, 4096)), {"spark.executor.instances": "2"}, 4),
        (workers((4, 2048), (4, 2048)), {"spark.executor.instances": "2"}, 2),
        (
            workers((4, 2048), (4, 2048)),
            {
                "spark.dynamicAllocation.enabled": "true",
                "spark.dynamicAllocation.minExecutors": "4",
            },
            1,
        ),
    ],
)
def test_memory_limits_how_many_jobs_run_at_once(
    capacity: Capacity, conf: dict[str, str], expected: int
) -> None:
    assert expected == executors.jobs_at_once(capacity, conf)


@pytest.mark.parametrize(
    ("capacity", "conf", "slots", "expected"),
    [
        # Spread over both workers, the first job would take the memory of both.
        (TIGHT, {}, 2, {"spark.cores.max": "2", "spark.executor.cores": "2"}),
        (TIGHT, {}, 8, {"spark.cores.max": "2", "spark.executor.cores": "2"}),
        (TIGHT, {}, 1, {"spark.cores.max": "4"}),
        (workers((2, 8192), (2, 8192)), {}, 2, {"spark.cores.max": "2"}),
        (workers((2, 2048), (2, 2048)), {}, 2, {"spark.cores.max": "2"}),
        (workers((4, 2048)), {}, 2, {"spark.cores.max": "2"}),
        # An executor of five cores would leave the second job no worker.
        (
            workers((8, 1024), (2, 1024)),
            {},
            2,
            {"spark.cores.max": "2", "spark.executor.cores": "2"},
        ),
        (
            workers(*[(8, 2048)] * 4),
            {},
            4,
            {"spark.cores.max": "8", "spark.executor.cores": "4"},
        ),
        (workers((4, 1024)), {}, 4, {"spark.cores.max": "4"}),
        (TIGHT, {"spark.executor.cores": "1"}, 2, {"spark.cores.max": "1"}),
        (TIGHT, {"spark.executor.cores": "2"}, 2, {"spark.cores.max": "2"}),
        (TIGHT, {"spark.executor.memory": "2g"}, 2, {"spark.cores.max": "4"}),
        (TIGHT, {"spark.cores.max": "3"}, 2, {}),
    ],
)
def test_a_share_leaves_the_other_jobs_memory_for_an_executor(
    capacity: Capacity, conf: dict[str, str], slots: int, expected: dict[str, str]
) -> None:
    assert expected == executors.limits(capacity, conf, slots)


NIGHTLY = CoreHolder("a", "nightly", 2)
NO_ROOM = "no worker has room for an executor: see spark.executor.memory and .cores"


@pytest.mark.parametrize(
    ("capacity", "conf", "expected"),
    [
        (
            Capacity(4, 0, (CoreHolder("a", "nightly", 4), CoreHolder("me", "mine", 0))),
            {},
            "the cluster has 0 of 4 cores free; 'nightly' holds 4",
        ),
        (
            Capacity(9, 1, tuple(CoreHolder(str(n), f"app {n}", n) for n in (1, 2, 3, 1, 1))),
            {"spark.executor.cores": "2"},
            "the cluster has 1 of 9 cores free; 'app 3' holds 3; 'app 2' holds 2; "
            "'app 1' holds 1; 2 others hold 2",
        ),
        (Capacity(4, 4), {}, f"the cluster has 4 of 4 cores free; {NO_ROOM}"),
        (
            Capacity(4, 4),
            {"spark.executor.cores": "8"},
            f"the cluster has 4 of 4 cores free; {NO_ROOM}",
        ),
        (
            Capacity(4, 2, (NIGHTLY,)),
            {},
            f"the cluster has 2 of 4 cores free; 'nightly' holds 2; {NO_ROOM}",
        ),
        (
            Capacity(4, 2, (NIGHTLY,)),
            {"spark.executor.cores": "2"},
            f"the cluster has 2 of 4 cores free; 'nightly' holds 2; {NO_ROOM}",
        ),
        (
            Capacity(4, 2, (NIGHTLY,)),
            {"spark.executor.cores": "3"},
            "the cluster has 2 of 4 cores free; 'nightly' holds 2",
        ),
        (
            TIGHT,
            {"spark.executor.memory": "2g"},
            "the cluster has 4 of 4 cores free; no worker is large enough for an executor of "
            "1 core and 2048 MiB: see spark.executor.memory and .cores",
        ),
        (
            Capacity(4, 2, (NIGHTLY,), TIGHT.workers),
            {"spark.executor.cores": "3"},
            "the cluster has 2 of 4 cores free; no worker is large enough for an executor of "
            "3 cores and 1024 MiB: see spark.executor.memory and .cores",
        ),
        (
            Capacity(4, 2, (NIGHTLY,), TIGHT.workers),
            {},
            f"the cluster has 2 of 4 cores free; 'nightly' holds 2; {NO_ROOM}",
        ),
        (Capacity(0, 0), {}, "the cluster has no cores: no worker is registered"),
        (
            Capacity(4, None),
            {},
            "the cluster has 4 cores; its pages, which say who holds them, do not answer",
        ),
        (None, {}, "spark://m:1 has given none, and does not say why"),
    ],
)
def test_a_job_without_executors_says_why(
    capacity: Capacity | None, conf: dict[str, str], expected: str
) -> None:
    conf = {"spark.master": "spark://m:1", **conf}

    assert f"waits for executors: {expected}" == executors.why_without(capacity, "me", conf)


def test_a_job_with_executors_waits_for_none() -> None:
    assert "" == executors.why_without(Capacity(4, 2, (CoreHolder("me", "mine", 2),)), "me", {})


def tagged(cluster: str, run: str, job: str, attempt: int) -> ActiveApplication:
    return ActiveApplication(f"{cluster}{run}{job}{attempt}", "", Tag(cluster, run, job, attempt))


def test_orphans_are_earlier_attempts_of_the_job_and_what_an_ended_run_has_left() -> None:
    mine = Tag("c", "r", "j", 2)
    alive = [tagged("c", "r", "j", 2), tagged("c", "r", "other", 1), tagged("d", "old", "j", 1)]
    alive += [tagged("c", "beside", "theirs", 1)]  # Another run of the cluster may be under way.
    dead = [tagged("c", "r", "j", 1), tagged("c", "old", "j", 3), tagged("c", "old", "other", 1)]

    assert dead == executors.orphans([*alive, *dead], mine, ended_runs=["older", "old"])


def kept(job: str, driver: str) -> ActiveApplication:
    return ActiveApplication(f"{job} in {driver}", "", Tag("c", "r", job, 1, driver))


def test_an_orphan_is_what_the_lost_driver_had_kept_for_the_job_from_an_earlier_one() -> None:
    found = [kept("earlier", "lost"), kept("earlier", "another"), kept("other", "lost")]
    mine = Tag("c", "r", "j", 2, "new")

    assert [found[0], found[2]] == executors.orphans(found, mine, "lost")
    assert [] == executors.orphans(found, mine)


def test_what_a_driver_has_kept_for_itself_is_no_orphan() -> None:
    found = [kept("j", "same"), kept("earlier", "same")]

    assert [] == executors.orphans(found, Tag("c", "r", "j", 2, "same"), "same")


def test_a_driver_that_has_no_job_yet_ends_only_what_an_ended_run_has_left() -> None:
    found = [tagged("c", "r", "j", 1), tagged("c", "old", "j", 1)]

    assert found[1:] == executors.orphans(found, Tag("c", "r", "", 0), ended_runs=["old"])
    assert [] == executors.orphans(found, Tag("c", "r", "", 0))


@pytest.mark.parametrize("tag", [Tag("c", "r", "j", 7, "d"), Tag("a/b", "ü ,%", "", 0)])
def test_a_tag_is_one_word_of_ascii_and_comes_back_as_it_was(tag: Tag) -> None:
    text = tag.encode()

    assert text.isascii()
    assert not {*text} & {*" ,;"}
    assert tag == Tag.decode(text)


@pytest.mark.parametrize("text", ["", "understudy:", "understudy:a/b/c/d/e", "other:a/b/c/1/d"])
def test_what_is_no_tag_of_ours_is_not_taken_for_one(text: str) -> None:
    assert Tag.decode(text) is None


def test_a_spark_application_is_called_after_application_job_and_attempt() -> None:
    assignment = AssignedAttempt(Tag("c", "r", "j", 2), "load flights", "flights")

    assert assignment.title == "flights / load flights #2"
    assert assignment.label == "load flights #2"
