"""One driver serves job after job, each with a clean session; what cannot be cleaned retires it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.journeys import harness
from tests.journeys.harness import WHOLE_S, Run, stored
from tests.journeys.spark.conftest import APPS, Begin, left_behind

pytestmark = pytest.mark.spark

UNTOUCHED = {
    "same session": True,
    "active session": True,
    "partitions": "2",
    "own": "unset",
    "views": [],
    "function": False,
    "pool": None,
    "cached": 0,
}
RETIRED = {
    "a cached table": "it left cached data",
    "a cached RDD": "it left cached data",
    "a global view": "it left global views",
    "a table": "it left tables",
    "a changed Hadoop setting": "it changed the Hadoop configuration",
    "a database": "it left databases",
    "a system property": "it changed system properties of the JVM: left.behind",
    "the time zone": "it changed the JVM's default time zone",
    "the locale": "it changed the JVM's default locale",
    "a checkpoint directory": "it changed the SparkContext's checkpoint directory",
    "an added file": "it added files to the SparkContext",
    "a system property that is no string": "it changed system properties of the JVM: left.list",
    "a handler of exceptions": "it changed the JVM's default handler of uncaught exceptions",
    "a listener": "it left listeners of Spark: left.Listener",
    "a thread of Java": "it changed system properties of the JVM: left; it left threads in the "
    "JVM: left",
}
REFUSED = (
    "spark.driver.memory=3g",
    "spark.executor.instances=4",
    "spark.sql.catalogImplementation=hive",
    "spark.jars.packages=org.example:none:1.0",
    "spark.sql.extensions=org.example.Extensions",
    "spark.hadoop.fs.s3a.endpoint=nowhere",
    "spark.master=local[7]",
)


@dataclass
class Story:
    """What was seen of the run."""

    run: Run
    code: int
    seen: dict[str, Any]
    left: dict[int, str]


@pytest.fixture(scope="module")
def story(begin: Begin, ground: Path) -> Story:
    """Run jobs one by one in one slot."""
    run = begin("one_by_one.py", options=("--jobmanagers", "1", "--slots", "1"))
    code = run.finish(WHOLE_S)
    assert 0 == code, run.story()
    seen = json.loads((ground / "seen.json").read_text())
    return Story(run, code, seen, left_behind(ground))


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Let one session be left in every way."""
    place = tmp_path_factory.mktemp("leaks")
    done = harness.python(place, str(APPS / "leaks.py"), str(place))
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_one_driver_serves_job_after_job(story: Story) -> None:
    drivers = [story.seen[name]["driver"] for name in ("littering", "after litter", "caching")]

    assert 0 == story.code
    assert 1 == len(set(drivers))


def test_a_job_gets_what_it_sets_in_the_session_that_a_script_would_make(story: Story) -> None:
    seen = story.seen["littering"]

    assert seen["same session"]
    assert seen["active session"]
    assert ("7", "Asia/Tokyo", "leaked") == (seen["partitions"], seen["zone"], seen["own"])
    assert (["leaked"], True, "leaked") == (seen["views"], seen["function"], seen["pool"])


@pytest.mark.parametrize("when", ["after litter", "after cache", "stopping"])
def test_the_next_job_sees_nothing_of_it(story: Story, when: str) -> None:
    seen = story.seen[when]

    assert UNTOUCHED == {key: seen[key] for key in UNTOUCHED}
    assert "Asia/Tokyo" != seen["zone"]


def test_a_driver_in_which_a_job_left_a_cached_table_is_retired(story: Story) -> None:
    assert story.seen["caching"]["cached"] > 0
    assert story.seen["caching"]["driver"] != story.seen["after cache"]["driver"]
    assert story.seen["caching"]["context"] != story.seen["after cache"]["context"]


def test_a_job_that_returns_a_query_lasts_until_the_query_ends(story: Story, ground: Path) -> None:
    assert story.seen["streaming"] is None
    assert list((ground / "out").glob("*.parquet"))


def test_a_start_time_setting_is_refused_once_and_clearly(story: Story) -> None:
    kind, message = story.seen["asking"]

    assert "understudy.errors.StartTimeSettingError" == kind
    assert "spark.driver.memory=3g can only be set when a driver starts" in message
    assert "--conf spark.driver.memory=3g" in message
    assert ["x"] == story.run.lines("asked.txt")


def test_nothing_is_left(story: Story, ground: Path) -> None:
    assert {} == story.left
    assert [] == stored(ground)


@pytest.mark.parametrize("what", RETIRED)
def test_what_a_job_left_behind_retires_its_driver(told: dict[str, Any], what: str) -> None:
    assert RETIRED[what] == "; ".join(told["leaks"][what])


def test_what_is_a_sessions_own_does_not_retire_its_driver(told: dict[str, Any]) -> None:
    assert [] == told["leaks"]["what is its own"]
    assert [] == told["after"]


def test_properties_of_the_thread_are_those_of_one_job(told: dict[str, Any]) -> None:
    assert {None} == set(told["pools"])


def test_settings_are_refused_that_only_a_new_driver_could_have(told: dict[str, Any]) -> None:
    refused = {key: said for key, said in told["asked"].items() if said}

    assert set(REFUSED) == {said.partition(" ")[0] for said in refused.values()}
    assert all(f"--conf {said.partition(' ')[0]}" in said for said in refused.values())


def test_what_is_attached_has_all_that_pyspark_gives_it(told: dict[str, Any]) -> None:
    (context, session), (own_context, own_session) = told["as PySpark has them"], told["attributes"]

    assert (context, session) == (own_context, own_session)


def test_the_jvm_calls_back_each_process_and_nothing_of_that_is_left(told: dict[str, Any]) -> None:
    assert [[[2], []], [[2], []]] == told["batches"]


def test_what_a_job_computes_in_threads_of_its_own_is_the_jobs(told: dict[str, Any]) -> None:
    seen = told["threads"]

    assert ["Some(own)", "Some(threads #1)", "Some(threads #1)"] == seen["descriptions"]
    assert 3 == seen["tasks"]


def test_cancelling_a_job_ends_what_it_computes_in_threads_and_lets_it_clean_up(
    told: dict[str, Any],
) -> None:
    """Also what still waits for a thread; long before the tasks would end by themselves."""
    seen = told["threads"]

    assert ["cancelled"] * 5 == seen["ends"]
    assert 30 > seen["seconds"]
    assert (3, []) == (seen["cleaning up"], seen["left"])
