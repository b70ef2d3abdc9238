"""Refuses settings that Spark reads only at its start, when a job requests them later."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from understudy.errors import StartTimeSettingError


def _is_a_sessions_own(session: SparkSession, key: str) -> bool:
    """Return whether Spark reads a setting from the session, not only at its start."""
    if not key.startswith("spark.") or session.conf.isModifiable(key):
        return True
    # Settings that Spark does not declare: those of catalogs and the like, or of a cluster.
    assert session._jvm is not None
    sql_conf = session._jvm.org.apache.spark.sql.internal.SQLConf
    return key.startswith("spark.sql.") and not sql_conf.isStaticConfigKey(key)


def refuse_start_time_settings(started_with: Mapping[str, str]) -> None:
    """Make ``builder.getOrCreate()`` refuse settings that only a new driver can have.

    Each call reads ``started_with`` again, as a new SparkContext may have other settings.
    """
    original = SparkSession.Builder.getOrCreate

    def get_or_create(self: SparkSession.Builder) -> SparkSession:
        session = SparkSession._instantiatedSession
        if session is not None and session._sc._jsc is not None:
            for key, value in self._options.items():
                wanted = str(value)
                if key in {"spark.app.name", "spark.master"} and not wanted.startswith("sc://"):
                    if key == "spark.app.name" or wanted == started_with.get(key):
                        continue
                elif started_with.get(key) == wanted or _is_a_sessions_own(session, key):
                    continue
                raise StartTimeSettingError(
                    f"{key}={wanted} can only be set when a driver starts (it was started with "
                    f"{started_with.get(key, 'nothing')}): give it to the command as "
                    f"--conf {key}={wanted}"
                )
        return original(self)

    SparkSession.Builder.getOrCreate = get_or_create  # type: ignore[method-assign]
