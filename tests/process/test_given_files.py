"""``--files``, ``--jars``, ``--archives``: stored with the code, read where it is laid out."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from understudy.clock import SystemClock
from understudy.errors import UsageError
from understudy.ha.blobs import BlobStore
from understudy.ha.storage import LocalStorage
from understudy.model import (
    ApplicationId,
    Artifact,
    Incarnation,
    RunId,
    SessionProfile,
)
from understudy.process import channels, code, given_files
from understudy.process.environments import ONE_INTERPRETER
from understudy.process.processes import Death, Spec
from understudy.process.reporter import Silent
from understudy.rpc.messages import Prepare, StartSession
from understudy.rpc.wire import BlockingLink
from understudy.taskmanager.driver import Grounds, Opening
from understudy.taskmanager.driver_pool import DriverPool, PoolSettings
from understudy.taskmanager.outbox import Outbox

ELSEWHERE = "hdfs://there/data.txt,s3a://bucket/data.txt#d,file:///mnt/data.txt,local:/opt/data.txt"


@pytest.fixture
def conf(tmp_path: Path) -> dict[str, str]:
    """Return settings that name files of this host, which lie in two directories."""
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "data.txt").write_text(f"data {place}")
    (tmp_path / "a.jar").write_bytes(b"jar")
    (tmp_path / "model.zip").write_bytes(b"zip")
    return {
        "spark.files": f"{tmp_path}/one/data.txt,{ELSEWHERE},{tmp_path}/two/data.txt#other.txt",
        "spark.jars": f"{tmp_path}/a.jar",
        "spark.archives": f"{tmp_path}/model.zip#model",
        "spark.driver.extraClassPath": f"{tmp_path}/a.jar",
    }


def stored(place: Path, conf: dict[str, str]) -> tuple[LocalStorage, tuple[Artifact, ...]]:
    """Store what the settings name, and remove it."""
    storage, files = LocalStorage(place / "ha"), given_files.gathered(conf)
    artifacts = code.store(BlobStore(storage, "c", "d"), files)
    for file in files:
        file.path.unlink()
    return storage, artifacts


def test_settings_name_the_copies_once_the_files_are_gone(
    tmp_path: Path, conf: dict[str, str]
) -> None:
    storage, artifacts = stored(tmp_path, conf)
    base = code.lay_out(storage, "c", "d", artifacts)
    found = given_files.resolved(conf, str(base), artifacts)
    one, *elsewhere, two = found["spark.files"].split(",")

    assert "data one" == Path(one).read_text()
    assert ELSEWHERE == ",".join(elsewhere)
    assert ("data two", "other.txt") == (Path(two.split("#")[0]).read_text(), two.split("#")[1])
    assert ("data.txt", "data.txt") == (Path(one).name, Path(two.split("#")[0]).name)
    assert b"jar" == Path(found["spark.jars"]).read_bytes()
    assert b"zip" == Path(found["spark.archives"].removesuffix("#model")).read_bytes()
    assert conf["spark.driver.extraClassPath"] == found["spark.driver.extraClassPath"]


def test_they_are_no_code_on_the_path_of_python(tmp_path: Path, conf: dict[str, str]) -> None:
    _, artifacts = stored(tmp_path, conf)

    assert ("/x/app", "/x/files") == code.python_path("/x", artifacts)


def test_what_was_stored_without_them_keeps_its_settings(conf: dict[str, str]) -> None:
    assert conf == given_files.resolved(conf, "/layout", ())


@pytest.mark.parametrize("base", ["/a,b", "/a#b"])
def test_a_layout_that_spark_would_misread_is_not_named(
    tmp_path: Path, conf: dict[str, str], base: str
) -> None:
    _, artifacts = stored(tmp_path, conf)

    assert conf == given_files.resolved(conf, base, artifacts)


def test_directories_and_what_is_not_here_stay_what_they_are(tmp_path: Path) -> None:
    conf = {"spark.files": f"{tmp_path},{tmp_path}/nowhere.txt,relative.txt,"}

    assert [] == given_files.gathered(conf)
    assert conf == given_files.resolved(conf, "/layout", ())


def test_a_changed_file_is_named_once_however_the_files_are_ordered(
    tmp_path: Path, conf: dict[str, str]
) -> None:
    one, two = tmp_path / "one/data.txt", tmp_path / "two/data.txt"
    storage = LocalStorage(tmp_path / "ha")
    given = given_files.gathered({"spark.files": f"{one},{two}"})
    artifacts = code.store(BlobStore(storage, "c", "d"), given)
    swapped = given_files.gathered({"spark.files": f"{two},{one}"})

    assert [] == code.changed(artifacts, given)
    assert ["data.txt"] == code.changed(artifacts, swapped)


def test_a_file_that_is_too_large_stays_where_it_is_and_is_refused_for_other_hosts(
    tmp_path: Path,
) -> None:
    large = tmp_path / "large.jar"
    large.touch()
    os.truncate(large, given_files.GIVEN_BYTES_MAX + 1)
    conf = {"spark.jars": str(large)}

    assert [] == given_files.gathered(conf)
    with pytest.raises(UsageError) as refused:
        given_files.check_storable(conf)

    assert (
        f"--jars {large}: takes more than the 64 MB that are stored for other hosts: put it in "
        f"one place on each of them and give file://{large}, or give its URL"
    ) == str(refused.value)


class _Child:
    """A driver's process that is never there."""

    def __init__(self, spec: Spec) -> None:
        self.incarnation, self.pid, self.guardian_pid = spec.incarnation, 1, 1
        self.channel = socket.socket(fileno=os.dup(spec.fds[0]))
        self.death: asyncio.Future[Death] = asyncio.get_running_loop().create_future()


def test_a_driver_is_started_with_the_copies_and_known_by_the_settings_as_they_were_given(
    tmp_path: Path, conf: dict[str, str]
) -> None:
    storage, artifacts = stored(tmp_path, conf)
    profile = SessionProfile(conf=conf, code=code.code_digest(artifacts))
    prepare = Prepare(
        application_id=ApplicationId("application"),
        run_id=RunId("run"),
        directory="d",
        profile=profile,
        artifacts=artifacts,
    )
    children: list[_Child] = []

    class Children:
        async def start(self, spec: Spec, _: Any) -> Any:
            children.append(_Child(spec))
            return children[-1]

    async def main() -> tuple[StartSession, str]:
        settings = PoolSettings("session-less", 1, 0, 30.0, 180.0, 5.0, "", tmp_path / "scratch")
        grounds = Grounds(storage, "c", ONE_INTERPRETER)
        pool = DriverPool(settings, Children(), SystemClock(), Outbox(), Silent(), grounds)
        await pool._start(Opening(Incarnation("driver"), 1, prepare))
        with children[0].channel as channel:
            link = BlockingLink(channel, channels.driver_codec, Incarnation("driver"))
            envelope = await asyncio.to_thread(link.receive)
        [driver] = pool.drivers()
        for task in pool._tasks:
            task.cancel()
        assert envelope is not None
        assert isinstance(envelope.message, StartSession)
        return envelope.message, driver.report().profile

    said, digest = asyncio.run(main())

    assert "data one" == Path(said.conf["spark.files"].split(",")[0]).read_text()
    assert b"jar" == Path(said.conf["spark.jars"]).read_bytes()
    assert said.python_path[0].endswith("/app")
    assert profile.digest == digest
