"""Python environments of applications: built from a directory of wheels, without a network."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.support.sampling import quickly
from tests.support.wheels import packed_environment, wheel
from understudy.clock import SystemClock
from understudy.errors import EnvironmentFailed
from understudy.ha.format import digest
from understudy.model import ApplicationId, Artifact
from understudy.process import environment_store, requirements
from understudy.process.environment_builder import PATH_FILE, build
from understudy.process.environment_store import EnvironmentOrder
from understudy.process.environments import Environments, EnvironmentSettings, LaidOut
from understudy.process.processes import GuardedProcesses, Output, Process, Spec

ONE, TWO = ApplicationId("one"), ApplicationId("two")
ASK = (
    "import cherry, understudy.version, importlib.util as found; "
    "print(cherry.VERSION, *found.find_spec('pyspark').submodule_search_locations)"
)


async def _settle() -> None:
    """See `GuardedProcesses`."""


class Builders(GuardedProcesses):
    """Starts real builders; the test sees them."""

    def __init__(self) -> None:
        super().__init__(_settle)
        self.started: list[Process] = []
        self.begun = asyncio.Event()

    async def start(self, spec: Spec, output: Output | None) -> Process:
        """See `Processes.start`."""
        process = await super().start(spec, output)
        self.started.append(process)
        self.begun.set()
        return process


class Host:
    """A host with a wheel house, on which applications come and go."""

    def __init__(self, place: Path) -> None:
        self.house, self.base = place / "wheels", place / "tmp/environments"
        self._place = place
        self._numbers = iter(range(100))
        wheel(self.house, "cherry", "1.0")
        wheel(self.house, "cherry", "2.0")

    def environments(self, processes: Builders, **more: Any) -> Environments:
        settings = EnvironmentSettings(
            self.base, (str(self.house),), **{"no_index": True, "timeout_s": 120.0, **more}
        )
        return Environments(settings, processes, SystemClock())

    def needs(self, *lines: str) -> LaidOut:
        """Return the layout, artifacts and settings of an application with requirements."""
        directory = self._place / f"layout-{next(self._numbers)}"
        file = directory / requirements.PLACE
        file.parent.mkdir(parents=True)
        text = "\n".join(lines)
        file.write_text(text)
        one = Artifact(name=requirements.PLACE, digest=digest(text.encode()), size=len(text))
        return LaidOut(str(directory), [one], {})

    def stuck(self) -> LaidOut:
        """Return an application whose build waits for a pipe that nobody writes to."""
        directory, _, conf = self.needs()
        file = Path(directory) / requirements.PLACE
        file.unlink()
        os.mkfifo(file)
        return LaidOut(directory, [Artifact(name=requirements.PLACE, digest="stuck", size=0)], conf)

    def built(self) -> list[Path]:
        return [*self.base.glob(f"*/{environment_store.MARK}")]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(240):
            await work()

    asyncio.run(bounded())


async def said_by(python: str, code: str) -> str:
    def ask() -> str:
        return subprocess.run(
            [python, "-P", "-c", code], capture_output=True, check=True, text=True, timeout=60
        ).stdout.strip()

    return await asyncio.to_thread(ask)


def test_closing_waits_for_an_environment_that_is_being_removed(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        environments = host.environments(Builders())
        await environments.python_for(ONE, host.needs("cherry"))
        release, removing = environment_store.release, threading.Event()

        def slow(base: Path, name: str, lock: int) -> None:
            assert removing.wait(60)
            release(base, name, lock)

        monkeypatch.setattr(environment_store, "release", slow)
        leaving = asyncio.create_task(environments.leave(ONE))
        await asyncio.sleep(0)
        closing = asyncio.create_task(environments.close())
        ended, _ = await asyncio.wait({closing}, timeout=0.1)
        removing.set()
        await asyncio.gather(leaving, closing)

        assert (set(), False) == (ended, host.base.exists())

    run(work)


def test_two_applications_have_two_versions_of_a_library_at_the_same_time(host: Host) -> None:
    """And both have the cluster's PySpark and Understudy, which no wheel house has."""
    wheel(host.house, "plum", "1.0", "cherry<2", "pyspark")

    async def work() -> None:
        environments = host.environments(Builders())
        one, two = await asyncio.gather(
            environments.python_for(ONE, host.needs("plum")),
            environments.python_for(TWO, host.needs("cherry==2.0", "# a comment")),
        )
        said = await asyncio.gather(said_by(one, ASK), said_by(two, ASK))
        await environments.close()

        assert ["1.0", "2.0"] == [text.split()[0] for text in said]
        assert said[0].split()[1:] == said[1].split()[1:]
        assert not Path(one).parents[1].is_relative_to(sys.prefix)

    run(work)


def test_the_same_requirements_are_built_once_and_gone_with_the_last_user(host: Host) -> None:
    """Processes of the host share it: here a JobManager's and a TaskManager's."""

    async def work() -> None:
        builders = Builders()
        jobmanager, taskmanager = host.environments(builders), host.environments(builders)
        first, second, third = await asyncio.gather(
            jobmanager.python_for(ONE, host.needs("cherry==1.0")),
            taskmanager.python_for(ONE, host.needs("cherry==1.0")),
            taskmanager.python_for(TWO, host.needs("cherry==1.0")),
        )
        assert first == second == third
        assert 1 == len(host.built())

        await jobmanager.leave(ONE)
        await taskmanager.leave(ONE)
        assert "1.0" in await said_by(third, ASK)
        count = len(builders.started)
        assert first == await jobmanager.python_for(ONE, host.needs("cherry==1.0"))
        assert count == len(builders.started)

        await jobmanager.close()
        await taskmanager.leave(TWO)
        assert not host.base.exists()

    run(work)


def test_a_failed_build_names_the_package_and_the_output_and_leaves_nothing(host: Host) -> None:
    async def work() -> None:
        environments = host.environments(Builders())
        with pytest.raises(EnvironmentFailed) as caught:
            await environments.python_for(ONE, host.needs("cherry==9.0"))
        await environments.leave(ONE)

        said = str(caught.value)
        assert re.search(r"\(requirements\) cannot be built: (uv|pip) ended with 1:", said)
        assert "cherry==9.0" in said
        assert not host.base.exists()

    run(work)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["pyspark-of-others"], "has pyspark 0.1, and this cluster"),
        (["msgspec==0.1"], "msgspec"),
    ],
)
def test_what_the_cluster_cannot_work_with_is_refused(
    host: Host, lines: list[str], expected: str
) -> None:
    """A package of another name that brings modules of ours, and one that we cannot use."""
    wheel(
        host.house,
        "pyspark_of_others",
        "1.0",
        **{"pyspark/__init__": "", "pyspark/version": "__version__ = '0.1'\n"},
    )
    wheel(host.house, "msgspec", "0.1")

    async def work() -> None:
        environments = host.environments(Builders())
        with pytest.raises(EnvironmentFailed, match=expected):
            await environments.python_for(ONE, host.needs(*lines))
        await environments.close()

    run(work)


def test_a_damaged_environment_and_a_half_built_one_are_built_again(host: Host) -> None:
    async def work() -> None:
        environments = host.environments(Builders())
        needs = host.needs("cherry==1.0")
        python = Path(await environments.python_for(ONE, needs))
        [damaged] = python.parents[1].glob("lib/*/site-packages/cherry/__init__.py")
        damaged.unlink()
        again = Path(await environments.python_for(ONE, needs))

        assert "1.0" in await said_by(str(again), ASK)
        assert python != again
        assert not python.exists()

        [mark] = host.built()
        mark.unlink()  # As if the builder had been killed before its last step.
        third = await environments.python_for(ONE, needs)
        assert str(again) != third
        await environments.close()

    run(work)


def test_a_build_is_killed_with_its_application_and_holds_up_no_other(
    host: Host,
) -> None:
    async def work() -> None:
        builders = Builders()
        environments = host.environments(builders)
        stuck = asyncio.create_task(environments.python_for(ONE, host.stuck()))
        await builders.begun.wait()
        process = builders.started[-1]
        other = await environments.python_for(TWO, host.needs("cherry==2.0"))

        assert "2.0" in await said_by(other, ASK)
        assert not process.death.done()
        stuck.cancel()
        await asyncio.wait({stuck})
        await environments.leave(ONE)
        assert "nobody waits" in (await process.death).reason
        await environments.close()
        assert not host.base.exists()

    run(work)


def test_a_build_that_takes_too_long_fails(host: Host) -> None:
    async def work() -> None:
        environments = host.environments(Builders(), timeout_s=2.0)
        with pytest.raises(EnvironmentFailed, match=r"python\.environment-timeout is 2 s"):
            await environments.python_for(ONE, host.stuck())
        await environments.close()

    run(work)


def test_what_a_killed_process_has_left_is_swept_once_it_is_old(host: Host) -> None:
    base = host.base
    lock = environment_store.hold(base, "left")
    (base / "left").mkdir()
    held = environment_store.hold(base, "used")
    (base / "used").mkdir()
    (base / ".draft-left").mkdir()
    os.close(lock)  # By the kernel, when the process is killed.
    environment_store.sweep(base)
    assert {"left", "left.lock", "used", "used.lock"} == {one.name for one in base.iterdir()}

    for one in base.glob("*.lock"):
        os.utime(one, (0, 0))
    environment_store.sweep(base)
    assert {"used", "used.lock"} == {one.name for one in base.iterdir()}
    environment_store.release(base, "used", held)
    assert not base.exists()


@pytest.mark.parametrize("module", quickly(["pip", "ensurepip"], ["pip"]))
def test_where_there_is_no_uv_pip_builds(
    host: Host, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    """The one of this interpreter, or else the one that comes with Python."""
    wheel(host.house, "plum", "1.0", "cherry<2", "pyspark")
    find = importlib.util.find_spec
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pip" != module else find(name)
    )
    directory, _, _ = host.needs("plum")
    file, links = f"{directory}/{requirements.PLACE}", (str(host.house),)
    build(
        EnvironmentOrder(str(host.base), "it", requirements=file, find_links=links, no_index=True)
    )
    python = environment_store.whole(host.base, "it")

    assert "1.0" in asyncio.run(said_by(python, ASK))


def test_an_application_has_the_interpreter_in_its_archive(host: Host, tmp_path: Path) -> None:
    conf = {
        "spark.archives": f"{packed_environment(tmp_path, cherry='3.0')}#env",
        "spark.pyspark.python": "./env/bin/python",
    }

    async def work() -> None:
        environments = host.environments(Builders())
        python = await environments.python_for(ONE, LaidOut("", [], conf))
        assert "3.0" in await said_by(python, ASK)

        missing = conf | {"spark.pyspark.python": "./env/bin/python9"}
        with pytest.raises(EnvironmentFailed, match=r"env\.tar\.gz has no bin/python9"):
            await environments.python_for(TWO, LaidOut("", [], missing))
        for other in ({"spark.pyspark.driver.python": "python3"}, {"spark.archives": ""}):
            assert sys.executable == await environments.python_for(
                TWO, LaidOut("", [], conf | other)
            )
        await environments.close()
        assert not host.base.exists()

    run(work)


def test_an_interpreter_that_only_leads_elsewhere_is_left_as_it_is(
    host: Host, tmp_path: Path
) -> None:
    """A script in an archive that executes this Python: its packages are not ours to change."""
    program = tmp_path / "bin/python"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    with tarfile.open(tmp_path / "env.tgz", "w:gz") as archive:
        archive.add(program, "bin/python")
    conf = {"spark.archives": f"{tmp_path}/env.tgz", "spark.pyspark.python": "env.tgz/bin/python"}

    async def work() -> None:
        environments = host.environments(Builders())
        python = await environments.python_for(ONE, LaidOut("", [], conf))
        assert sys.prefix == await said_by(python, "import sys; print(sys.prefix)")
        assert not [*Path(sys.prefix).rglob(PATH_FILE)]
        await environments.close()

    run(work)
