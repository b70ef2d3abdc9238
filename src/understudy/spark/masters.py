"""Which values of ``spark.master`` Spark accepts, and where such a master listens.

Spark itself says so only after a JVM has started, in each driver anew. This module imports nothing
of Spark.
"""

from __future__ import annotations

import re

_LOCAL = re.compile(r"local(\[([1-9][0-9]*|\*)(\s*,\s*[0-9]+)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*[0-9]+\s*,\s*[0-9]+\s*,\s*[0-9]+\s*\]")
_PLACE = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):([0-9]{1,5})")
_KUBERNETES = re.compile(r"k8s://\S+")

PORT_MAX = 65535

KNOWN = "local[*], local[2], spark://host:7077, yarn or k8s://https://host:443"


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
