"""One session of a driver, and jobs that leave every kind of thing behind; tells what it saw.

Not an application: it drives the session as a driver does, so that one start of Spark serves all.
"""

import json
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import msgspec
from pyspark.sql import SparkSession

from understudy.core.executors import AssignedAttempt, Launch, Tag
from understudy.core.handover import Handover
from understudy.driver.fork_server import ForkServer
from understudy.errors import StartTimeSettingError
from understudy.spark import defaults
from understudy.spark.attaching import AttachedSession
from understudy.spark.session import SparkSessions

SHARED = "io.file.buffer.size"


def set_shared(spark: SparkSession, value: str) -> None:
    assert spark.sparkContext._jsc is not None
    spark.sparkContext._jsc.hadoopConfiguration().set(SHARED, value)


def jvm(spark: SparkSession) -> Any:
    assert spark._jvm is not None
    return spark._jvm


def keep_rdd(spark: SparkSession) -> None:
    spark.sparkContext.range(3).persist().count()


def drop_rdds(spark: SparkSession) -> None:
    assert spark.sparkContext._jsc is not None
    for rdd in spark.sparkContext._jsc.getPersistentRDDs().values():
        rdd.unpersist(True)


def set_zone(spark: SparkSession, zone: str) -> None:
    jvm(spark).java.util.TimeZone.setDefault(jvm(spark).java.util.TimeZone.getTimeZone(zone))


def set_locale(spark: SparkSession, tag: str) -> None:
    jvm(spark).java.util.Locale.setDefault(jvm(spark).java.util.Locale.forLanguageTag(tag))


def add_file(spark: SparkSession) -> None:
    path = Path(sys.argv[1]) / "added.txt"
    path.write_text("added")
    spark.sparkContext.addFile(str(path))


def set_checkpoints(spark: SparkSession) -> None:
    spark.sparkContext.setCheckpointDir(str(Path(sys.argv[1]) / "points"))


def leave_thread(spark: SparkSession) -> None:
    timer = jvm(spark).java.util.Timer("left")
    # A timer to which nothing refers is collected, and ends its thread.
    jvm(spark).java.lang.System.getProperties().put("left", timer)


def add_listener(spark: SparkSession) -> None:
    """Add a listener of Spark that is not Spark's own."""
    assert spark.sparkContext._jsc is not None
    compiler = jvm(spark).org.codehaus.janino.SimpleCompiler()
    compiler.cook(
        "package left; public class Listener extends org.apache.spark.scheduler.SparkListener {}"
    )
    listener = compiler.getClassLoader().loadClass("left.Listener").newInstance()
    spark.sparkContext._jsc.sc().addSparkListener(listener)


def set_handler(spark: SparkSession, handler: Any) -> None:
    jvm(spark).java.lang.Thread.setDefaultUncaughtExceptionHandler(handler)


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
    "a cached RDD": (keep_rdd, drop_rdds),
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
    "a database": (
        lambda spark: spark.sql("CREATE DATABASE kept"),
        lambda spark: spark.sql("DROP DATABASE kept"),
    ),
    "a system property": (
        lambda spark: jvm(spark).java.lang.System.setProperty("left.behind", "1"),
        lambda spark: jvm(spark).java.lang.System.clearProperty("left.behind"),
    ),
    "a system property that is no string": (
        lambda spark: jvm(spark).java.lang.System.getProperties().put("left.list", ["x"]),
        lambda spark: jvm(spark).java.lang.System.getProperties().remove("left.list"),
    ),
    "a handler of exceptions": (
        lambda spark: set_handler(
            spark, jvm(spark).org.apache.spark.util.SparkUncaughtExceptionHandler(False)
        ),
        lambda spark: set_handler(spark, None),
    ),
    "a listener": (add_listener, lambda spark: None),
    "the time zone": (
        lambda spark: set_zone(spark, "Asia/Tokyo"),
        lambda spark: set_zone(spark, "UTC"),
    ),
    "the locale": (
        lambda spark: set_locale(spark, "de-AT"),
        lambda spark: set_locale(spark, "en"),
    ),
    "a checkpoint directory": (set_checkpoints, lambda spark: None),
    "an added file": (add_file, lambda spark: None),
    "a thread of Java": (leave_thread, lambda spark: None),
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


def name_of(handover: Handover) -> str:
    return handover.label.partition(" #")[0]


def batches(spark: SparkSession) -> list[int]:
    """Have the JVM call this process back: once for each batch of a stream."""
    place = Path(tempfile.mkdtemp(dir=sys.argv[1]))
    (place / "in").mkdir()
    (place / "in" / "one.txt").write_text("1\n2\n")
    seen: list[int] = []
    rows = spark.readStream.schema("value STRING").text(str(place / "in"))
    sink = rows.writeStream.foreachBatch(lambda df, _: seen.append(df.count()))
    sink = sink.option("checkpointLocation", str(place / "points")).trigger(availableNow=True)
    sink.start().awaitTermination()
    return seen


def in_threads(session: AttachedSession, spark: SparkSession, tell: TextIO) -> dict[str, Any]:
    """Compute in threads until the job is cancelled; return how that went."""
    context = spark.sparkContext

    def sleep() -> str:
        try:
            spark.range(0, 1, 1, 1).selectExpr(
                "reflect('java.lang.Thread', 'sleep', 40000L)"
            ).collect()
        except Exception as error:
            return "cancelled" if "cancelled" in str(error) else str(error)
        return "slept"

    def sleep_in_own_group() -> str:
        context.setJobGroup("own", "own", interruptOnCancel=True)
        return sleep()

    with ThreadPoolExecutor(2) as pool, ThreadPoolExecutor(1) as own:
        asleep = [own.submit(sleep_in_own_group), *(pool.submit(sleep) for _ in range(4))]
        while len(active := context.statusTracker().getActiveJobsIds()) < 3:
            time.sleep(0.05)
        jobs = [context._jsc.sc().statusStore().job(number) for number in active]
        tell.write(json.dumps(sorted(job.description().toString() for job in jobs)) + "\n")
        tell.flush()
        tell.readline()
        cancelled = time.monotonic()
        canceller = threading.Thread(target=session.interrupt)
        canceller.start()
        ends = [future.result() for future in asleep]
        canceller.join()
    return {
        "ends": ends,
        "seconds": time.monotonic() - cancelled,
        "cleaning up": spark.range(3).count(),
    }


def in_process(end: socket.socket) -> None:
    """Be the process of one job: told by the handover's label what to do."""
    with end.makefile("rb") as lines:
        handover = msgspec.json.decode(lines.readline(), type=Handover)
    session = AttachedSession()
    session.get_ready(replace(handover, group="", label=""))
    spark = session.open(handover)
    told: Any = spark.sparkContext.getLocalProperty("spark.scheduler.pool")
    if name_of(handover).startswith("batches"):
        told = batches(spark)
    name, _, what = name_of(handover).partition(": ")
    if name in LEAKS:
        LEAKS[name][what == "clear"](spark)
    elif name == "threads":
        with end.makefile("rw") as tell:
            told = in_threads(session, spark, tell)
    elif name == "attributes":
        _ = spark.sparkContext._javaAccumulator
        told = [sorted(vars(spark.sparkContext)), sorted(vars(spark))]
    elif name == "asks":
        told = {key: ask(key, value) for key, value in SETTINGS.items()}
    session.close()
    end.sendall(json.dumps(told).encode() + b"\n")


class Jobs:
    """Runs each in a process of its own, as a driver does."""

    def __init__(self, scratch: Path) -> None:
        self.sessions = SparkSessions()
        self._server = ForkServer.start(in_process, 5.0)
        self._server.watch(lambda: None, lambda: None)
        conf = {
            "spark.master": "local[1]",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        }
        self.sessions.start(
            Launch(defaults.session_conf(conf, str(scratch), "leaks"), str(scratch))
        )

    def run(self, name: str) -> tuple[Any, list[str]]:
        """Return what the process has told, and what is left of it."""
        child = self._server.fork()
        handover = self.sessions.open(AssignedAttempt(Tag("c", "r", "0" * 32, 1), name, "leaks"))
        child.line.sendall(msgspec.json.encode(handover) + b"\n")
        with child.line.makefile() as lines:
            told = json.loads(lines.readline())
        child.ended.wait()
        return told, self.sessions.close()

    def cancel_in_threads(self) -> dict[str, Any]:
        """Cancel a job that computes in threads; return what was seen of it."""
        child = self._server.fork()
        tag = Tag("c", "r", "1" * 32, 1)
        handover = self.sessions.open(AssignedAttempt(tag, "threads", "leaks"))
        child.line.sendall(msgspec.json.encode(handover) + b"\n")
        with child.line.makefile("rw") as lines:
            found = {"descriptions": json.loads(lines.readline())}
            found["tasks"] = self.sessions.progress()[1]
            lines.write("cancel\n")
            lines.flush()
            found |= json.loads(lines.readline())
        child.ended.wait()
        return found | {"left": self.sessions.close()}


def main() -> None:
    scratch = Path(sys.argv[1]) / "scratch"
    scratch.mkdir()
    jobs = Jobs(scratch)
    told: dict[str, Any] = {"leaks": {}, "pools": []}
    for name in LEAKS:
        pool, told["leaks"][name] = jobs.run(name)
        told["pools"].append(pool)
        jobs.run(f"{name}: clear")
    told["asked"], told["after"] = jobs.run("asks")
    told["attributes"], _ = jobs.run("attributes")
    told["batches"] = [jobs.run(f"batches {number}") for number in range(2)]
    told["threads"] = jobs.cancel_in_threads()
    root = jobs.sessions._root
    assert root is not None
    told["as PySpark has them"] = [sorted(vars(root.sparkContext)), sorted(vars(root))]
    print(json.dumps(told))


main()
