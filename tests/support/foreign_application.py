"""A plain PySpark application, without Understudy, beside the application under test.

Run as a script, it counts rows on all cores that it gets, prints the count, and holds the cores
until its standard input ends, at the latest with the process that started it.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from tests.support.zookeeper import LOOPBACK
from understudy.spark.java import find_java

ROWS = 1000
PATIENCE_S = 300.0

SMALL = {
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.memory": "512m",
}


class ForeignApplication:
    """A plain PySpark application on a cluster; ends with the block or its parent process."""

    def __init__(
        self, master: str, name: str, place: Path, conf: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = place / f"{name}.log"
        self._place = place
        self._line = [sys.executable, "-m", __name__, master, name]
        self._line += [f"{key}={text}" for key, text in (conf or {}).items()]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ForeignApplication:
        root = Path(__file__).parents[2]
        environment = {
            **os.environ,
            "JAVA_HOME": str(find_java().home),
            "PYTHONPATH": str(root),
            "SPARK_HOME": os.environ.get("SPARK_HOME") or _find_spark_home(),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_SCALA_VERSION": "2.13",
        }
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._line,
                cwd=self._place,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                process_group=0,
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def counted(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait until the application has counted its rows on the cluster; return the count."""
        process = self._process
        assert process is not None, "it does not run"
        assert process.stdout is not None
        deadline = time.monotonic() + timeout_s
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        line = process.stdout.readline() if ready else b""
        said = self.log.read_text(errors="replace")[-4000:]
        assert line, f"{self.name} has not counted within {timeout_s:g} s\n{said}"
        return int(line)

    def end(self) -> None:
        """Shut the application down; return when its processes are gone. Idempotent."""
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.close()
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE_S)
            raise
        finally:
            process.stdout.close()


def _main(master: str, name: str, *conf: str) -> None:
    builder = SparkSession.builder.master(master).appName(name)
    for key, _, text in (item.partition("=") for item in conf):
        builder = builder.config(key, text)
    for key, text in SMALL.items():
        builder = builder.config(key, text)
    spark = builder.getOrCreate()
    print(spark.sparkContext.range(0, ROWS, numSlices=4).count(), flush=True)
    sys.stdin.read()
    spark.stop()


if __name__ == "__main__":
    _main(*sys.argv[1:])
