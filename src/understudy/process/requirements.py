"""The requirements of an application: what may stand in them, and how they are stored.

Their text is an artifact of the application, beside its code. So it is durable with the
application, is laid out on each host, and is part of the code's digest. Whatever another line would
name on the host of a command (``-r other.txt``, ``./a.whl``) is refused: other hosts lack it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from understudy.config.options import PYTHON_REQUIREMENTS
from understudy.errors import ConfigurationError, UsageError
from understudy.process import given_files
from understudy.process.code import SourceFile

PLACE = "requirements/requirements.txt"
"""The name of the artifact, and its path in a layout."""


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
    lines = _lines()
    lines.check(said, text, lines.of_cluster())
    return [file]


def check_one_python(conf: Mapping[str, str], *, has_requirements: bool) -> None:
    """Raise `UsageError` for requirements beside an interpreter that has its own packages."""
    packed = given_files.packed_python(conf)
    if packed and has_requirements:
        raise UsageError(
            f"the application's Python is {packed.program} in {packed.archive}, and there are "
            "requirements besides: pack them into the archive, or leave out PYSPARK_PYTHON and "
            "spark.pyspark.python, so that an environment is built from the requirements"
        )


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


def _lines() -> ModuleType:
    """Return the module that reads requirements, which few applications have."""
    return importlib.import_module("understudy.process.requirement_lines")
