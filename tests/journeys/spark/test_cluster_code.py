"""What executors get that share neither directory nor variables with their driver.

The cluster encrypts, and lets nobody in without a secret.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys import harness
from tests.journeys.harness import COMMAND, Run
from tests.journeys.spark.conftest import APPS, left_behind
from tests.support.command_lines import Watcher
from tests.support.spark_cluster import SparkCluster

pytestmark = pytest.mark.spark

SECRET, PASSWORD, OPTION = "secret-of-the-cluster", "pass word\\of a store", "secret-of-java"

KNOT = base64.b64decode(
    "yv66vgAAAD0AEwoAAgADBwAEDAAFAAYBABBqYXZhL2xhbmcvT2JqZWN0AQAGPGluaXQ+AQADKClWCAAIAQAFdGllZCAK"
    "AAoACwcADAwADQAOAQAQamF2YS9sYW5nL1N0cmluZwEABmNvbmNhdAEAJihMamF2YS9sYW5nL1N0cmluZzspTGphdmEv"
    "bGFuZy9TdHJpbmc7BwAQAQAES25vdAEABENvZGUBAAN0aWUAIQAPAAIAAAAAAAIAAQAFAAYAAQARAAAAEQABAAEAAAAF"
    "KrcAAbEAAAAAAAkAEgAOAAEAEQAAABMAAgABAAAABxIHKrYACbAAAAAAAAA="
)
"""``class Knot { public static String tie(String x) { return "tied ".concat(x); } }``"""

POM = (
    "<project><modelVersion>4.0.0</modelVersion><groupId>com.example</groupId>"
    "<artifactId>knot</artifactId><version>1.0</version></project>"
)
IVY = (
    '<ivysettings><settings defaultResolver="own"/><resolvers>'
    '<ibiblio name="own" m2compatible="true" root="file://{root}"/></resolvers></ivysettings>'
)
PYTHON = '#!/bin/sh\nPACKED=yes exec "{program}" "$@"\n'


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Start a cluster that has a home of its own, and knows nothing of our modules."""
    place = tmp_path_factory.mktemp("elsewhere")
    conf = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": SECRET,
        "spark.network.crypto.enabled": "true",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(place / "home"))
        patch.delenv("PYTHONPATH", raising=False)
        found = SparkCluster(place / "cluster", workers=1, cores=1, conf=conf).start()
    with contextlib.ExitStack() as stack:
        stack.callback(found.kill)
        yield found


def zipped(path: Path, **members: str | bytes) -> None:
    """Write an archive; in the names of members ``__`` stands for a slash, ``_`` for a dot."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, body in members.items():
            archive.writestr(name.replace("__", "/").replace("_", "."), body)


def given(home: Path) -> None:
    """Put the script and all that it is given into a directory."""
    home.mkdir()
    for name in ("cluster_code.py", "neighbour.py"):
        shutil.copy(APPS / name, home)
    shutil.copytree(APPS / "parts", home / "parts")
    (home / "parts/degree.txt").write_text("90")
    (home / "brought.py").write_text('WORD = "brought along"\n')
    (home / "data.txt").write_text("data")
    with zipfile.ZipFile(home / "library.zip", "w") as archive:
        archive.writestr("archived/__init__.py", "def third(number): return number // 3\n")
    with zipfile.ZipFile(home / "gauge-1.0-py3-none-any.whl", "w") as wheel:
        unit = "from pathlib import Path\nUNIT = Path(__file__).with_name('unit.txt').read_text()\n"
        wheel.writestr("gauge/__init__.py", unit)
        wheel.writestr("gauge/unit.txt", "knots")
    zipped(home / "model.zip", weights_txt="1 2 3")
    zipped(home / "own.jar", own_txt="own")
    with tarfile.open(home / "env.tar.gz", "w:gz") as archive:
        program = PYTHON.format(program=sys.executable).encode()
        info = tarfile.TarInfo("bin/python")
        info.size, info.mode = len(program), 0o755
        archive.addfile(info, io.BytesIO(program))


def repository(place: Path) -> Path:
    """Make a Maven repository with one package; return Ivy's settings for it."""
    package = place / "repository/com/example/knot/1.0"
    package.mkdir(parents=True)
    (package / "knot-1.0.pom").write_text(POM)
    zipped(package / "knot-1.0.jar", Knot_class=KNOT)
    settings = place / "ivysettings.xml"
    settings.write_text(IVY.format(root=place / "repository"))
    return settings


KINDS = ("launcher.Main", "deploy.SparkSubmit", "CoarseGrainedExecutorBackend", "understudy.driver")


def test_code_and_environment_reach_executors_of_each_job_and_secrets_no_command_line(
    cluster: SparkCluster, tmp_path: Path
) -> None:
    home = tmp_path / "home of the script"
    given(home)
    settings = tmp_path / "spark.conf"
    settings.write_text(
        "spark.authenticate true\n"
        f"spark.authenticate.secret {SECRET}\n"
        "spark.network.crypto.enabled: true\n"
        f"spark.hadoop.fs.s3a.secret.key = {PASSWORD.replace(chr(92), chr(92) * 2)}\n"
        f"spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 \\\n  -Dpassword={OPTION}\n"
        "spark.executor.memory 600m\n"
    )
    settings.chmod(0o600)
    line = [
        *COMMAND,
        *("run-application", "--json", "--jobmanagers", "1", "--slots", "1"),
        *("-D", "taskmanager.spare-drivers=0"),
        *("-D", f"io.tmp.dirs={tmp_path / 'tmp'}", "--master", cluster.url),
        *("--properties-file", str(settings)),
        *("--conf", "spark.pyspark.python=./env/bin/python"),
        *("--conf", f"spark.jars.ivySettings={repository(tmp_path)}"),
        *("--conf", f"spark.jars.ivy={tmp_path / 'ivy'}"),
        *("--packages", "com.example:knot:1.0", "--jars", f"{home}/own.jar"),
        *("--archives", f"{home}/env.tar.gz#env,{home}/model.zip#model"),
        *("--files", f"{home}/data.txt"),
        "--py-files",
        f"{home}/brought.py,{home}/library.zip,{home}/gauge-1.0-py3-none-any.whl",
        *(str(home / "cluster_code.py"), str(home)),
    ]
    with Watcher((SECRET, PASSWORD, OPTION), KINDS) as watcher:
        run = Run(line, tmp_path, tmp_path / "stderr.log")
        try:
            run.running("one")
            shutil.rmtree(home)
            code = run.finish(harness.WHOLE_S)
        finally:
            harness.end(run)
    assert 0 == code, run.story()
    [printed] = [text for text in run.log.read_text().splitlines() if text.startswith("[main] [{")]
    one, two = json.loads(printed.removeprefix("[main] "))
    expected = {
        "modules": [8, "A!", "brought along", 3, "knots"],
        "beside": "90",
        "file": "data",
        "archive": "1 2 3",
        "jars": ["com.example_knot-1.0.jar", "own.jar"],
        "python": "yes",
        "home": str(cluster.directory.parent / "home"),
    }
    for job in (one, two):
        directories = {task.pop("directory") for task in job["tasks"]}

        assert [expected] * 4 == job["tasks"]
        assert ["tied 0", "tied 1"] == job["tied"]
        assert "127.0.0.1" == job["host"]
        assert all(Path(each).is_relative_to(cluster.directory) for each in directories)
    assert one["pid"] == two["pid"]
    assert one["application"] != two["application"]
    assert set(KINDS) == watcher.kinds
    assert set() == watcher.found
    assert {} == left_behind(tmp_path)
    cluster.await_idle()
