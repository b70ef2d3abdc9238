"""The requirements of an application: what may stand in them, and how they are stored.

Their text is an artifact of the application, beside its code. So it is durable with the
application, is laid out on each host, and is part of the code's digest. Whatever another line would
name on the host of a command (``-r other.txt``, ``./a.whl``) is refused: other hosts lack it.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from understudy.config.options import PYTHON_REQUIREMENTS
from understudy.errors import ConfigurationError, UsageError
from understudy.process.code import SourceFile

PLACE = "requirements/requirements.txt"
"""The name of the artifact, and its path in a layout."""

OF_CLUSTER = ("pyspark", "understudy")
"""Packages that all processes of a cluster have in the same version."""

HASHES = "--hash"
"""Part of a requirement that pins its files."""

_PLACES = {"-f", "--find-links"}
_OPTIONS = {
    "-i",
    "--index-url",
    "--extra-index-url",
    "--no-index",
    "--no-binary",
    "--only-binary",
    "--require-hashes",
}
"""Lines that both installers understand, and that name nothing on the host of a command."""


@dataclass(frozen=True)
class RequirementsText(SourceFile):
    """Requirements that were given as text."""

    text: str = ""

    def read(self) -> bytes:
        """Return what is stored."""
        return self.text.encode()

    def is_there(self) -> bool:
        """Return True: the text was given."""
        return True


def given(path: str, text: str) -> list[SourceFile]:
    """Return the file of ``--requirements``, else that with the option's text; checked.

    Raises `UsageError`.
    """
    if not path and not text:
        return []
    said = f"--requirements {path}" if path else PYTHON_REQUIREMENTS.key
    if path:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{said}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise UsageError(f"{said}: not text in UTF-8") from error
        try:
            PYTHON_REQUIREMENTS.parse(text)
        except ValueError as error:
            raise UsageError(f"{said}: expected {error}") from error
        file = SourceFile(Path(path), PLACE)
    else:
        file = RequirementsText(Path(PYTHON_REQUIREMENTS.key), PLACE, text=text)
    check(said, text, of_cluster())
    return [file]


def with_configured(
    files: Iterable[SourceFile], configuration: Mapping[str, str]
) -> list[SourceFile]:
    """Return an application's files with the requirements of its configuration, if there are any.

    Raises `ConfigurationError`.
    """
    files = list(files)
    if any(file.name == PLACE for file in files):
        return files
    try:
        return [*files, *given("", configuration.get(PYTHON_REQUIREMENTS.key, ""))]
    except UsageError as error:
        raise ConfigurationError(str(error)) from error


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
    if option in _PLACES:
        if not value.startswith("/") and "://" not in value:
            raise UsageError(f"{where}: give an absolute path, which each host has, or a URL")
    elif option not in _OPTIONS:
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
