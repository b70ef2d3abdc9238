"""What `understudy check` finds out: every problem that a start would be refused for, and its plan.

The checks are those of a start. Nothing is started, and nothing is stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from understudy.api.directory import Directory
from understudy.api.views import ApplicationFacts
from understudy.cli.launch.compose import open_services, remove_unused_place
from understudy.cli.launch.joining import check_startable_here, patiently
from understudy.cli.launch.preflight import (
    check_drivers_fit,
    check_drivers_start,
    check_master_answers,
)
from understudy.cli.launch.redeploying import AskedStart, changed_files, unfinished_run
from understudy.cli.launch.spark_submit import check_configured
from understudy.cli.launch.spec import ApplicationSpec, check_handed_on
from understudy.cli.launch.standalone import check_places
from understudy.cli.launch.submitting import source_files, target_of
from understudy.clock import SystemClock
from understudy.config import Configuration, options
from understudy.errors import UnderstudyError
from understudy.ha import layout
from understudy.model import JobStatus
from understudy.spark.installed import pyspark_version
from understudy.spark.java import find_java

MASTER = "spark.master"


@dataclass
class Checked:
    """What a start would do, as far as it is known, and why it would be refused."""

    problems: list[str] = field(default_factory=list)
    plan: dict[str, Any] = field(default_factory=dict)

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Note a problem of this step, so that a person hears of all at once."""
        try:
            yield
        except (UnderstudyError, OSError) as error:
            problem = str(error) or "there was no answer in time"
            if problem not in self.problems:
                self.problems.append(problem)


def check_start(
    checked: Checked,
    configuration: Configuration,
    spec: ApplicationSpec | None,
    conf: Mapping[str, str],
    *,
    jobmanagers: int,
    taskmanagers: int,
) -> None:
    """Check a start on this machine. ``spec`` is None where the entry point is refused already.

    ``conf``: Spark's settings, as the flags say them.
    """
    cluster_id = configuration.find(options.CLUSTER_ID)
    if spec:
        with checked.step():
            check_handed_on(configuration, spec)
            checked.plan |= _entry(spec)
    checked.plan |= _processes(configuration, conf, jobmanagers, taskmanagers)
    with checked.step():
        check_configured(configuration, conf)
    with checked.step():
        check_drivers_fit(configuration, taskmanagers)
    with checked.step():
        check_drivers_start(configuration)
        checked.plan |= _interpreter(configuration)
    with checked.step():
        check_master_answers(configuration, conf)
    checked.plan["cluster"] = cluster_id
    checked.plan["storage"] = configuration.storage_dir
    checked.plan["register"] = configuration.get(options.HA_TYPE)
    _check_places(checked, configuration, cluster_id, jobmanagers)
    if cluster_id and not configuration.is_standalone:
        with checked.step():
            checked.plan["unfinished"] = asyncio.run(_unfinished(configuration, cluster_id))
        with checked.step():
            asyncio.run(_refuse_another(configuration, cluster_id, spec))


def _check_places(
    checked: Checked, configuration: Configuration, cluster_id: str | None, jobmanagers: int
) -> None:
    """Check addresses, storage and register; without a cluster id, with one that is removed."""
    known = len(checked.problems)
    with checked.step():
        check_places([configuration] * jobmanagers)
    to_place = jobmanagers if len(checked.problems) == known else 0
    trial = cluster_id or f"check-{uuid.uuid4().hex[:12]}"
    with checked.step():
        layout.cluster_directory(trial)
        check_startable_here(configuration, trial, jobmanagers=to_place)
    if cluster_id is None:
        with contextlib.suppress(UnderstudyError, OSError):
            remove_unused_place(configuration, trial)


def _entry(spec: ApplicationSpec) -> dict[str, Any]:
    files = [file.name for file in source_files(spec)]
    return {
        "application": spec.name,
        "entry": target_of(spec),
        "as": spec.runs_as.value,
        "from": spec.app,
        "arguments": list(spec.args),
        "modules": [name.removeprefix("app/") for name in files if name.startswith("app/")],
        "py-files": list(spec.py_files),
        "requirements": spec.requirements,
    }


def _processes(
    configuration: Configuration, conf: Mapping[str, str], jobmanagers: int, taskmanagers: int
) -> dict[str, Any]:
    return {
        "jobmanagers": jobmanagers,
        "taskmanagers": taskmanagers,
        "slots": configuration.get(options.SLOTS),
        "spares": configuration.get(options.SPARES),
        "master": conf.get(MASTER) or configuration.passed_on("spark.").get(MASTER),
    }


def _interpreter(configuration: Configuration) -> dict[str, Any]:
    told: dict[str, Any] = {"python": sys.executable, "python-version": platform.python_version()}
    if configuration.get(options.DRIVER_KIND) == "spark":
        java = find_java()
        told |= {"pyspark": pyspark_version(), "java": f"{java.version} at {java.home}"}
    return told


async def _unfinished(configuration: Configuration, cluster_id: str) -> list[dict[str, Any]]:
    """Return the runs that a start would continue, each with its jobs."""
    services = open_services(configuration, cluster_id)
    directory = Directory(services, SystemClock())
    registry = await patiently(configuration, directory.registry)
    stored = await directory.stored(registry) if registry else []
    return [_run(facts) for facts in stored if facts.body.result is None]


async def _refuse_another(
    configuration: Configuration, cluster_id: str, spec: ApplicationSpec | None
) -> None:
    """Raise `UsageError` if the application is not what the unfinished run executes."""
    services = open_services(configuration, cluster_id)
    unfinished = await unfinished_run(services, None)
    if unfinished:
        await changed_files(configuration, services, unfinished, AskedStart(None, spec))


def _run(facts: ApplicationFacts) -> dict[str, Any]:
    jobs = facts.entries.values()
    return {
        "run": str(facts.body.run_id),
        "kept": [one.name for one in jobs if _is_finished(one)],
        "to do": [one.name for one in jobs if not _is_finished(one)],
    }


def _is_finished(job: Any) -> bool:
    return job.result is not None and job.result.status is JobStatus.FINISHED
