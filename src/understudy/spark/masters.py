"""Where Spark may run: the values of ``spark.master`` that we accept, and no driver but ours.

Spark itself refuses a bad master only after a JVM has started, in each driver. A driver that Spark
puts outside our processes is refused, too: nobody here can start such a driver or prove its death,
so two attempts of a job could run. PySpark chooses Connect by settings, or by the environment,
which goes before ``spark.master``. This module imports nothing of Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from understudy.errors import UsageError

_LOCAL = re.compile(r"local(\[([1-9][0-9]*|\*)(\s*,\s*[0-9]+)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*[0-9]+\s*,\s*[0-9]+\s*,\s*[0-9]+\s*\]")
_PLACE = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):([0-9]{1,5})")
_KUBERNETES = re.compile(r"k8s://\S+")

PORT_MAX = 65535

KNOWN = "local[*], local[2], spark://host:7077, yarn or k8s://https://host:443"

ELSEWHERE = (
    "drivers run in the TaskManagers' slots; point --master at the Spark cluster that runs the "
    "executors"
)

_ENVIRONMENT = {"SPARK_REMOTE": "", "SPARK_CONNECT_MODE_ENABLED": "", "SPARK_API_MODE": "connect"}
"""Variables that choose Connect: with this value, or with any."""


def problem_of(master: str) -> str:
    """Return why Spark would refuse this master; empty where it would not."""
    if master == "yarn" or any(
        known.fullmatch(master) for known in (_LOCAL, _LOCAL_CLUSTER, _KUBERNETES)
    ):
        return ""
    if not master.startswith("spark://"):
        return f"Spark knows no such master: give {KNOWN}"
    places = master.removeprefix("spark://").split(",")
    wrong = [place for place in places if not _is_place(place)]
    return f"{wrong[0]!r} is no host:port, such as spark://host:7077" if wrong else ""


def places_of(master: str) -> list[tuple[str, int]]:
    """Return host and port of each Master of a valid ``spark://`` URL; empty for other masters."""
    if not master.startswith("spark://"):
        return []
    found = (_PLACE.fullmatch(place) for place in master.removeprefix("spark://").split(","))
    return [(one[1].strip("[]"), int(one[2])) for one in found if one]


def _is_place(place: str) -> bool:
    found = _PLACE.fullmatch(place)
    return found is not None and 0 < int(found[2]) <= PORT_MAX


def refuse_others(conf: Mapping[str, str], environment: Mapping[str, str]) -> None:
    """Raise `UsageError` for a setting or variable that puts the driver elsewhere, by its name."""
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
