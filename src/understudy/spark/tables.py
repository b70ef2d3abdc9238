"""Writes DataFrames to directories of ours, and reads them with the same schema."""

from __future__ import annotations

import json
import logging
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StructType

from understudy.errors import UsageError
from understudy.spark.object_stores import check_reachable

FORMATS = ("parquet", "orc")
"""Formats that preserve all types and the case of names, and need no schema inference."""

_AS_IT_IS = ("__globPaths__", "false")
"""Spark's internal option for paths in which ``*`` and brackets are plain characters."""

_log = logging.getLogger(__name__)


def check(df: Any, format_: str, what: str) -> DataFrame:
    """Return the DataFrame if it can be stored, without computing it; raises `UsageError`."""
    if not isinstance(df, DataFrame):
        raise UsageError(f"{what} takes a DataFrame, not a {type(df).__name__}")
    if format_ not in FORMATS:
        raise UsageError(f"{what}: format {format_!r} is none of {', '.join(FORMATS)}")
    if df.isStreaming:
        raise UsageError(
            f"{what}: the DataFrame is a stream, which has no end: start a query on it, whose "
            "checkpoints are kept by themselves"
        )
    return df


def check_schema(df: DataFrame, what: str) -> None:
    """Raise `UsageError` for a schema that a file cannot hold."""
    if not df.schema.fields:
        raise UsageError(f"{what}: the DataFrame has no columns: there is nothing to keep")
    setting = str(df.sparkSession.conf.get("spark.sql.caseSensitive", "false"))
    _check_names(df.schema, what, "", case_sensitive=setting.lower() == "true")


def _check_names(kind: DataType, what: str, path: str, *, case_sensitive: bool) -> None:
    match kind:
        case StructType():
            seen: dict[str, str] = {}
            for field in kind.fields:
                key = field.name if case_sensitive else field.name.lower()
                if key in seen:
                    raise UsageError(
                        f"{what}: two columns are named {path + field.name!r}"
                        f"{'' if seen[key] == field.name else ' but for upper and lower case'}: "
                        "rename one, with withColumnRenamed or an alias"
                    )
                seen[key] = field.name
                inside = f"{path}{field.name}."
                _check_names(field.dataType, what, inside, case_sensitive=case_sensitive)
        case ArrayType():
            _check_names(kind.elementType, what, path, case_sensitive=case_sensitive)
        case MapType():
            for part in (kind.keyType, kind.valueType):
                _check_names(part, what, path, case_sensitive=case_sensitive)
        case NullType():
            raise UsageError(
                f"{what}: column {path.rstrip('.')!r} has no type, since all of it is NULL: cast "
                "it to one"
            )


def write(df: DataFrame, url: str, format_: str) -> str:
    """Write a DataFrame to a new directory; return its schema as JSON."""
    check_reachable(df.sparkSession, url)
    df.write.format(format_).mode("errorifexists").save(url)
    return df.schema.json()


def read(spark: SparkSession, url: str, format_: str, schema: str) -> DataFrame:
    """Return a DataFrame that reads the output of `write`, with the same schema."""
    check_reachable(spark, url)
    wanted = StructType.fromJson(json.loads(schema))
    key, text = _AS_IT_IS
    found = spark.read.format(format_).schema(wanted).option(key, text).load(url)
    return found if found.schema == wanted else _as_strict(found, wanted)


def differs(df: DataFrame, schema: str) -> bool:
    """Return whether the columns differ from a written schema; nullability is ignored."""
    now = [(field.name, field.dataType.simpleString()) for field in df.schema.fields]
    wanted = StructType.fromJson(json.loads(schema))
    return now != [(field.name, field.dataType.simpleString()) for field in wanted.fields]


def _as_strict(found: DataFrame, wanted: StructType) -> DataFrame:
    """Restore the nullability of columns, which Spark drops for every file that it reads.

    Only the relation's output attributes change, so filters and columns are still pushed down to
    the files.
    """
    try:
        spark = found.sparkSession
        jvm: Any = spark._jvm
        plan = found._jdf.queryExecution().analyzed()
        jschema = spark._jsparkSession.parseDataType(wanted.json())
        strict = [
            plan.output().apply(i).withDataType(field.dataType()).withNullability(field.nullable())
            for i, field in enumerate(jschema.fields())
        ]
        output = jvm.PythonUtils.toSeq(strict)
        relation = plan.copy(
            plan.relation(), output, plan.catalogTable(), plan.isStreaming(), plan.stream()
        )
        jdf = jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, relation)
        return DataFrame(jdf, spark)
    except Exception as error:  # Internals of Spark, which may change.
        _log.warning("what holds no NULL is not known of a table that is read again: %s", error)
        return found
