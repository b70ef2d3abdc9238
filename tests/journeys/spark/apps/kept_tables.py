"""What ctx.checkpoint and ctx.read make of what they are given, and of what became of it.

Attempts are played one after the other in one job of ``python kept_tables.py``: so one JVM does.
"""

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession, types

import understudy
from understudy import JobContext
from understudy.clock import SystemClock
from understudy.driver.kept_tables import TableKeeper
from understudy.ha.storage import LocalStorage
from understudy.model import ApplicationId, Checkpoint, Incarnation, JobId, Pointer, RunId
from understudy.rpc.messages import Deploy

STRUCT = types.StructType(
    [
        types.StructField("Ab C", types.IntegerType(), False),
        types.StructField("d", types.DecimalType(9, 2), True),
    ]
)
SCHEMA = types.StructType(
    [
        types.StructField("Id", types.LongType(), False),
        types.StructField("name", types.StringType(), True),
        types.StructField("list", types.ArrayType(types.IntegerType(), False), False),
        types.StructField("map", types.MapType(types.StringType(), STRUCT, True), True),
        types.StructField("inner", STRUCT, False),
        types.StructField("at", types.TimestampNTZType(), True),
    ]
)
ROWS = [(1, "a", [1, 2], {"k": (1, None)}, (3, None), None), (2, None, [], {}, (4, None), None)]


class Register:
    """Records at once, for ever."""

    def __init__(self) -> None:
        self.taken: list[Checkpoint] = []
        self._numbers = itertools.count(1)

    def record(self, *taken: Checkpoint) -> tuple[int, ...]:
        numbered = [replace(one, number=next(self._numbers)) for one in taken]
        self.taken += numbered
        return tuple(one.number for one in numbered)

    def report(self, *taken: Checkpoint) -> None:
        raise NotImplementedError

    def failed(self, one: Checkpoint) -> None:
        raise AssertionError(one)

    def finish(self) -> None:
        raise NotImplementedError

    def settle(self, timeout_s: float) -> bool:
        return True


def attempt(number: int, register: Register) -> TableKeeper:
    deploy = Deploy(
        application_id=ApplicationId("a" * 32),
        run_id=RunId("monday"),
        job_id=JobId("b" * 32),
        name="job",
        attempt=number,
        driver=Incarnation("d"),
        plan=Pointer(path="", digest="", size=0),
        staged="",
        writer="w",
        result_size_max=1000,
        checkpoints=str(Path("points").absolute()),
        tables="tables",
        restored=tuple(register.taken),
    )
    return TableKeeper(deploy, register, LocalStorage(Path("ha").absolute()), SystemClock())


def error_of(function: Callable[[], object]) -> str:
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def kept_whole(keeper: TableKeeper, spark: SparkSession, df: DataFrame, way: str) -> dict[str, Any]:
    kept = keeper.checkpoint(spark, df, f"whole {way} */[x]", way)
    empty = keeper.checkpoint(spark, df.limit(0), f"empty {way}", way)
    plan = kept.filter("Id > 1").select("Id")._jdf.queryExecution().executedPlan().toString()
    return {
        "same schema": kept.schema == df.schema,
        "same rows": sorted(map(repr, kept.collect())) == sorted(map(repr, df.collect())),
        "pushed": "GreaterThan(Id,1)" in plan,
        "empty": [empty.schema == df.schema, empty.count()],
    }


def refusals(keeper: TableKeeper, spark: SparkSession) -> dict[str, str]:
    one = spark.range(1)
    stream = spark.readStream.format("rate").load()
    bad: dict[str, tuple[Any, str, str]] = {
        "twice": (one, "empty orc", "parquet"),
        "two": (one.selectExpr("id as a", "id as a"), "x", "parquet"),
        "case": (one.selectExpr("named_struct('q', id, 'Q', id) as s"), "x", "parquet"),
        "void": (one.selectExpr("null as v"), "x", "parquet"),
        "none": (one.select(), "x", "parquet"),
        "stream": (stream, "x", "parquet"),
        "list": ([1], "x", "parquet"),
        "csv": (one, "x", "csv"),
        "name": (one, " ", "parquet"),
    }
    return {
        why: error_of(lambda df=df, name=name, way=way: keeper.checkpoint(spark, df, name, way))  # type: ignore[misc]
        for why, (df, name, way) in bad.items()
    }


def exploding(spark: SparkSession) -> DataFrame:
    return spark.range(1).selectExpr("raise_error('computed') as Id")


def raising(keeper: TableKeeper, spark: SparkSession) -> dict[str, Any]:
    """Let the write of a table raise; look what is left, and keep it again."""
    error = error_of(lambda: half(keeper, spark, 7))
    left = [path.name for path in Path("points/tables").glob("raises*")]
    return {"error": error, "left": left, "then": half(keeper, spark, 8).count()}


def half(keeper: TableKeeper, spark: SparkSession, until: int) -> DataFrame:
    """Keep eight rows in two partitions, of which the second cannot be computed all."""
    rows = spark.range(0, 8, 1, 2).selectExpr(
        f"if(id < {until}, id, raise_error('half of it')) as id"
    )
    return keeper.checkpoint(spark, rows, "raises", "parquet")


def restarted(register: Register, spark: SparkSession) -> dict[str, Any]:
    """Play an attempt that finds a half-written table, and what was recorded."""
    half = Path("points/tables/half-1-9")
    half.mkdir()
    (half / "part-0.parquet").write_text("half")
    keeper = attempt(2, register)
    again = keeper.checkpoint(spark, exploding(spark), "whole parquet */[x]", "parquet")
    handle = keeper.table(exploding(spark), "totals")
    return {"rows": again.count(), "half": half.exists(), "handle": handle}


def damages(register: Register, spark: SparkSession) -> dict[str, str]:
    """Damage what was recorded, each time another way, and ask a new attempt for it."""
    (one,) = [taken for taken in register.taken if taken.name == "whole parquet */[x]"]
    place = Path(one.location)
    shutil.copytree(place, "sound")
    found: dict[str, str] = {}
    for why in ("gone", "shorter", "more", "manifest", "all"):
        part = next(place.glob("part-*"))
        match why:
            case "gone":
                part.unlink()
            case "shorter":
                part.write_bytes(part.read_bytes()[:-1])
            case "more":
                shutil.copy(part, place / "part-00009.parquet")
            case "manifest":
                manifest = place / "_manifest.json"
                manifest.write_text(manifest.read_text().replace("parquet", "orc", 1))
            case "all":
                shutil.rmtree(place)
        keeper = attempt(3, register)
        found[why] = error_of(
            lambda keeper=keeper: keeper.checkpoint(  # type: ignore[misc]
                spark, exploding(spark), "whole parquet */[x]", "parquet"
            )
        )
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree("sound", place)
    return found


def look(ctx: JobContext) -> dict[str, Any]:
    spark, register = ctx.spark, Register()
    df = spark.createDataFrame(ROWS, SCHEMA)
    first = attempt(1, register)
    handle = first.table(df, "totals")
    seen: dict[str, Any] = {way: kept_whole(first, spark, df, way) for way in ("parquet", "orc")}
    seen["refused"] = refusals(first, spark)
    seen["raised"] = raising(first, spark)
    seen["again"] = restarted(register, spark)
    seen["same handle"] = seen["again"].pop("handle") == handle
    bad = ["x", {**handle, "application": "0" * 32}, {**handle, "location": f"{'b' * 32}/../x"}]
    seen["handles"] = [error_of(lambda one=one: first.read(spark, one)) for one in bad]  # type: ignore[misc]
    seen["read"] = first.read(spark, json.loads(json.dumps(handle))).count()
    seen["damaged"] = damages(register, spark)
    # The same methods as a job calls them, where the storage is in memory.
    kept = ctx.checkpoint(df, "embedded")
    seen["embedded"] = [kept.schema == df.schema, kept.count(), ctx.read(ctx.table(df)).count()]
    return seen


Path("seen.json").write_text(json.dumps(understudy.get_environment().execute(look).value))
