"""Drivers with Spark, and their tasks, run in the environment of their application."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.journeys.harness import command
from tests.support.sampling import quickly
from tests.support.wheels import packed_environment, wheel

pytestmark = pytest.mark.spark

APP = """
import cherry
import understudy

env = understudy.get_environment()


def versions(ctx):
    import cherry
    from pyspark.sql.functions import udf

    in_a_task = udf(lambda _: __import__("cherry").VERSION)
    [row] = ctx.spark.range(1).select(in_a_task("id").alias("version")).collect()
    return [cherry.VERSION, row.version]


print("cherry is", [cherry.VERSION, *env.execute(versions, name="versions").value])
"""


@pytest.mark.parametrize("way", quickly(["requirements", "archive"], ["requirements"]))
def test_main_jobs_and_tasks_have_what_the_application_brings(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive with its interpreter is named as for spark-submit."""
    (tmp_path / "app.py").write_text(APP)
    options = [
        *("--slots", "1", "-D", "taskmanager.spare-drivers=0", "--master", "local[1]"),
        *("-D", f"io.tmp.dirs={tmp_path}/tmp"),
    ]
    if way == "archive":
        monkeypatch.setenv("PYSPARK_PYTHON", "./environment/bin/python")
        options += ["--archives", f"{packed_environment(tmp_path, cherry='3.0')}#environment"]
    else:
        wheel(tmp_path / "wheels", "cherry", "3.0")
        (tmp_path / "needs.txt").write_text(f"cherry\n--find-links {tmp_path}/wheels\n--no-index\n")
        options += ["--requirements", "needs.txt"]
    done = command(tmp_path, "run-application", *options, "app.py")

    assert "cherry is ['3.0', '3.0', '3.0']" in done.stdout + done.stderr
    assert [] == [*tmp_path.glob("tmp/*/environments")]
