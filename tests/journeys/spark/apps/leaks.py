"""One session of a driver, and jobs that leave every kind of thing behind; tells what it saw.

Not an application: it drives the session as a driver does, so that one start of Spark serves all.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from understudy.core.executors import Assignment, Launch, Tag
from understudy.driver.surroundings import Surroundings
from understudy.errors import StartTimeSettingError
from understudy.spark import defaults
from understudy.spark.session import SparkSessions

SHARED = "io.file.buffer.size"
ENOUGH = threading.Event()
LEFT: list[Any] = []
MASK = os.umask(0o022)
os.umask(MASK)


def set_shared(spark: SparkSession, value: str) -> None:
    assert spark.sparkContext._jsc is not None
    spark.sparkContext._jsc.hadoopConfiguration().set(SHARED, value)


def keep_rdd(spark: SparkSession) -> None:
    LEFT.append(spark.sparkContext.range(3).persist())
    LEFT[-1].count()


def start_thread(spark: SparkSession) -> None:
    LEFT.append(threading.Thread(target=ENOUGH.wait, daemon=True))
    LEFT[-1].start()


def start_child(spark: SparkSession) -> None:
    LEFT.append(subprocess.Popen(["sleep", "1000"]))


def set_mask(mask: int) -> None:
    os.umask(mask)


def end_thread(spark: SparkSession) -> None:
    ENOUGH.set()
    LEFT.pop().join()


def end_child(spark: SparkSession) -> None:
    LEFT[-1].kill()
    LEFT.pop().wait()


def leave_its_own(spark: SparkSession) -> None:
    spark.range(5).createTempView("seen")
    spark.conf.set("spark.sql.shuffle.partitions", "7")
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", "own")
    spark.sparkContext.setJobDescription("own")


LEAKS: dict[str, tuple[Callable[[SparkSession], Any], Callable[[SparkSession], Any]]] = {
    "a cached table": (
        lambda spark: spark.range(5).cache().count(),
        lambda spark: spark.catalog.clearCache(),
    ),
    "a cached RDD": (keep_rdd, lambda spark: LEFT.pop().unpersist(blocking=True)),
    "a global view": (
        lambda spark: spark.range(5).createGlobalTempView("seen"),
        lambda spark: spark.catalog.dropGlobalTempView("seen"),
    ),
    "a table": (
        lambda spark: spark.range(5).write.saveAsTable("kept"),
        lambda spark: spark.sql("DROP TABLE kept"),
    ),
    "a changed Hadoop setting": (
        lambda spark: set_shared(spark, "8192"),
        lambda spark: set_shared(spark, "65536"),
    ),
    "a thread": (start_thread, end_thread),
    "a child process": (start_child, end_child),
    "an environment variable": (
        lambda spark: os.environ.update(LEAKED="1"),
        lambda spark: os.environ.pop("LEAKED"),
    ),
    "another directory": (lambda spark: os.chdir("/"), lambda spark: os.chdir(sys.argv[1])),
    "another module path": (
        lambda spark: sys.path.insert(0, "/nowhere"),
        lambda spark: sys.path.remove("/nowhere"),
    ),
    "another umask": (lambda spark: set_mask(0o777), lambda spark: set_mask(MASK)),
    "what is its own": (
        leave_its_own,
        lambda spark: None,
    ),
}

SETTINGS = {
    "spark.driver.memory": "3g",
    "spark.executor.instances": "4",
    "spark.sql.catalogImplementation": "hive",
    "spark.jars.packages": "org.example:none:1.0",
    "spark.master": "local[7]",
    "spark.app.name": "another name",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.catalog.mine": "org.example.Catalog",
    "spark.sql.extensions": "org.example.Extensions",
    "spark.hadoop.fs.s3a.endpoint": "nowhere",
    "my.own.setting": "x",
}


def ask(key: str, value: str) -> str:
    """Ask for a setting as scripts do; return what is said against it."""
    try:
        SparkSession.builder.config(key, value).getOrCreate()
    except StartTimeSettingError as error:
        return str(error)
    finally:
        SparkSession.builder._options.clear()
    return ""


def main() -> None:
    scratch = Path(sys.argv[1]) / "scratch"
    scratch.mkdir()
    conf = {"spark.master": "local[1]", "spark.sql.warehouse.dir": str(scratch / "warehouse")}
    sessions = SparkSessions()
    sessions.start(Launch(defaults.session_conf(conf, str(scratch), "leaks"), str(scratch)))
    before = Surroundings.now(sessions.jvm_pid)
    told: dict[str, Any] = {"leaks": {}, "pools": [], "asked": {}}
    for name, (leave, clear) in LEAKS.items():
        spark = sessions.open(Assignment(Tag("c", "r", "0" * 32, 1), name, "leaks"))
        told["pools"].append(spark.sparkContext.getLocalProperty("spark.scheduler.pool"))
        leave(spark)
        left = sessions.close()
        told["leaks"][name] = left + Surroundings.now(sessions.jvm_pid).differences(before)
        clear(spark)
    left = sessions.close()
    told["after"] = left + Surroundings.now(sessions.jvm_pid).differences(before)
    sessions.open(Assignment(Tag("c", "r", "1" * 32, 1), "asks", "leaks"))
    told["pools"].append(spark.sparkContext.getLocalProperty("spark.scheduler.pool"))
    told["asked"] = {key: ask(key, value) for key, value in SETTINGS.items()}
    print(json.dumps(told))


main()
