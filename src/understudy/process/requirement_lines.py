"""The lines of a requirements file: which of them an environment can be built from."""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Iterator, Mapping

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from understudy.errors import UsageError

OF_CLUSTER = ("pyspark", "understudy")
"""Packages that all processes of a cluster have in the same version."""

HASHES = "--hash"
"""Part of a requirement that pins its files."""

_PLACES = {"f", "find-links"}
_OPTIONS = {
    "i",
    "index-url",
    "extra-index-url",
    "no-index",
    "no-binary",
    "only-binary",
    "require-hashes",
}
"""Lines that both installers understand, and that name nothing on the host of a command."""


def of_cluster() -> dict[str, str]:
    """Return the versions of the packages that this interpreter shares with the cluster."""
    found = {}
    for name in OF_CLUSTER:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def check(said: str, text: str, cluster: Mapping[str, str]) -> None:
    """Raise `UsageError` for requirements that an environment cannot be built from.

    ``said`` is where they were given; ``cluster`` has the versions that the cluster needs.
    """
    for number, line in _lines(text):
        where = f"{said}, line {number}: {line}"
        if line.startswith("-"):
            _check_option(where, line)
            continue
        try:
            requirement = Requirement(line.partition(" --")[0])
        except InvalidRequirement as error:
            raise UsageError(
                f"{where}: is no requirement such as 'name==1.0' or 'name @ https://…': {error}"
            ) from error
        name = canonicalize_name(requirement.name)
        version = cluster.get(name)
        if version is None or (requirement.marker and not requirement.marker.evaluate()):
            continue
        if requirement.url or not requirement.specifier.contains(version, prereleases=True):
            raise UsageError(
                f"{where}: this cluster has {name} {version}, which all its processes need: leave "
                "the line out, or run the application in a cluster with that version"
            )


def _check_option(where: str, line: str) -> None:
    option, _, value = line.replace("=", " ", 1).partition(" ")
    value = value.strip()
    if option.lstrip("-") in _PLACES:
        if not value.startswith("/") and "://" not in value:
            raise UsageError(f"{where}: give an absolute path, which each host has, or a URL")
    elif option.lstrip("-") not in _OPTIONS:
        raise UsageError(
            f"{where}: {option} has no meaning here, as only this text is stored with the "
            "application: name all packages in it"
        )


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line with its number, continued ones joined, without comments."""
    begun, first = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        is_comment = line.lstrip().startswith("#")
        begun, first = begun + ("" if is_comment else line), first or number
        if begun.endswith("\\"):
            begun = begun[:-1]
            continue
        if content := begun.partition(" #")[0].strip():
            yield first, content
        begun, first = "", 0
    if content := begun.strip():
        yield first, content
