"""Refuses settings that put Spark's driver outside our processes.

Nobody here can start such a driver or prove its death: two attempts of a job could run. PySpark
chooses Connect by settings, or by the environment, which goes before ``spark.master``. This module
imports nothing of Spark.
"""

from __future__ import annotations

from collections.abc import Mapping

from understudy.errors import UsageError

ELSEWHERE = (
    "drivers run in the TaskManagers' slots; point --master at the Spark cluster that runs the "
    "executors"
)

_ENVIRONMENT = {"SPARK_REMOTE": "", "SPARK_CONNECT_MODE_ENABLED": "", "SPARK_API_MODE": "connect"}
"""Variables that choose Connect: with this value, or with any."""


def refuse_others(conf: Mapping[str, str], environment: Mapping[str, str]) -> None:
    """Raise `UsageError` that names the setting or variable."""
    if chosen := _connect(conf, environment):
        raise UsageError(
            f"{chosen}: a Spark Connect server keeps the driver in another process, whose death "
            "nobody here can prove: give the cluster's own master to --master (local[*], "
            "spark://host:7077, yarn, k8s://…)"
        )
    if conf.get("spark.submit.deployMode", "client") != "client":
        raise UsageError(
            f"spark.submit.deployMode={conf['spark.submit.deployMode']}: {ELSEWHERE}; leave it "
            "out, or set it to client"
        )


def _connect(conf: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """Return what chooses Spark Connect; empty if nothing does."""
    if conf.get("spark.master", "").startswith("sc://"):
        return f"spark.master={conf['spark.master']}"
    if conf.get("spark.remote"):
        return f"spark.remote={conf['spark.remote']}"
    if conf.get("spark.api.mode", "").lower() == "connect":
        return f"spark.api.mode={conf['spark.api.mode']}"
    for name, value in _ENVIRONMENT.items():
        given = environment.get(name)
        if given is not None and (not value or given.lower() == value):
            return f"{name}={given} in the environment"
    return ""
