"""Class data sharing: a JVM that maps an archive of parsed classes starts Spark with half the CPU.

This module decides: which archive belongs to a JVM's command line, and what to build if there is
none. `driver.class_data_building` builds archives. The name of an archive is a digest of everything
that it depends on, so a change of anything leads to another archive.

The JVM checks an archive before it uses it, and starts without one that it refuses. Its checksums
are verified, too: a flipped bit would otherwise crash the JVM, and the check costs a tenth of a
second.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from understudy.spark.installed import pyspark_version
from understudy.spark.java import Java

SUFFIX, FAILED = ".jsa", ".failed"
"""Of archives, and of the notes why one could not be built."""

RETRY_S = 3600.0
"""How long a failed build is not tried again: it costs as much as two starts of Spark."""

QUIET = ("-Xlog:cds=off", "-Xlog:cds*=off")
"""A refused archive is no news for users."""

CLASS_LIST = "class-list"

_NARROW_HEAP_BYTES = 32 << 30
"""A JVM with a larger heap lays out objects in another way, for which archives differ."""

_HEAP = re.compile(r"(?:-Xmx|-XX:MaxHeapSize=)(\d+)([kKmMgGtT]?)")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}

_FORMAT = "1"

_FROM_ENVIRONMENT = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")

_TAKEN = re.compile(
    r"-Xshare:.*|-XX:.*(Share|Archive|ClassList|DynamicDump|AOT|CDS).*|-XX:(Flags|VMOptionsFile)=.*"
    r"|@.*|-Xbootclasspath.*|--(limit-modules|patch-module|upgrade-module-path|module-path)\b.*"
    r"|-Djava\.system\.class\.loader=.*"
)
"""Options of users who share class data themselves, or with which a JVM shares none."""

_SHAPING = re.compile(
    r"-XX:[+-]Use\w+GC|-XX:[+-]UseCompressed\w+|-XX:ObjectAlignmentInBytes=.*"
    r"|-XX:\+Unlock(Experimental|Diagnostic)VMOptions|--add-modules=.*"
)
"""Options that change what an archive contains."""


@dataclass(frozen=True)
class Building:
    """An archive to build, from the classes that a JVM has loaded."""

    java: str
    options: tuple[str, ...]
    class_path: str
    class_list: str
    archive: str

    def encode(self) -> str:
        """Return this as one word of a command line."""
        return json.dumps(self.__dict__)

    @staticmethod
    def decode(text: str) -> Building:
        """Parse the output of `encode`."""
        read = json.loads(text)
        return Building(**{**read, "options": tuple(read["options"])})


@dataclass(frozen=True)
class ClassDataSharing:
    """How a JVM shares class data."""

    options: tuple[str, ...] = ()
    """Of its command line, before the users' own."""
    building: Building | None = None
    """To build once the JVM is warm."""


def share(
    java: Java,
    given: Sequence[str],
    environment: Mapping[str, str],
    directory: Path,
    scratch: Path,
) -> ClassDataSharing:
    """Decide how a JVM shares class data; an unusable directory means that it shares none.

    ``given`` is the command line between the program and the main class. ``scratch`` gets the list
    of the classes that the JVM loads, if there is no archive yet.
    """
    try:
        further = [
            word for name in _FROM_ENVIRONMENT for word in shlex.split(environment.get(name, ""))
        ]
        class_path = given[given.index("-cp") + 1]
        options = [*given, *further]
        if any(map(_TAKEN.fullmatch, options)) or ":" in str(directory):  # A JVM splits there.
            return ClassDataSharing()
        shaping = tuple(_shaping(options))
        parts = list(_parts(java, class_path, shaping))
    except (OSError, ValueError):
        return ClassDataSharing()
    key = hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:32]
    archive = directory / (key + SUFFIX)
    if archive.is_file():
        with contextlib.suppress(OSError):
            os.utime(archive)  # The least recently used archives are removed.
        return ClassDataSharing(
            (*QUIET, "-XX:+VerifySharedSpaces", f"-XX:SharedArchiveFile={archive}")
        )
    if _failed_lately(archive.with_suffix(FAILED)):
        return ClassDataSharing()
    classes = scratch / CLASS_LIST
    building = Building(java.program, shaping, class_path, str(classes), str(archive))
    return ClassDataSharing((*QUIET, f"-XX:DumpLoadedClassList={classes}"), building)


def _failed_lately(note: Path) -> bool:
    try:
        return abs(time.time() - note.stat().st_mtime) < RETRY_S
    except OSError:
        return False


def _shaping(options: Sequence[str]) -> Iterator[str]:
    for option in options:
        if _SHAPING.fullmatch(option):
            yield option
        heap = _HEAP.fullmatch(option)
        if heap and int(heap[1]) * _UNITS[heap[2].lower()] >= _NARROW_HEAP_BYTES:
            yield "-XX:-UseCompressedOops"


def _parts(java: Java, class_path: str, shaping: Sequence[str]) -> Iterator[str]:
    """Yield what an archive depends on; raises ``ValueError`` if a JVM cannot archive this path."""
    yield from (_FORMAT, platform.machine(), pyspark_version() or "", *shaping)
    home = java.home.resolve()
    yield from (str(home), (home / "release").read_text(), _stamp(home / "lib/server/libjvm.so"))
    for entry in class_path.split(os.pathsep):
        path = Path(entry)
        if path.name == "*":
            yield entry
            # Unsorted: the order in which the JVM finds them, too, is a part of an archive.
            with os.scandir(path.parent) as found:
                yield from (_stamp(jar) for jar in found if jar.name.lower().endswith(".jar"))
        elif not entry or (path.is_dir() and any(path.iterdir())):
            raise ValueError(f"{entry!r}: a directory of classes")
        elif path.is_file():
            yield _stamp(path)
        else:
            yield entry


def _stamp(file: Path | os.DirEntry[str]) -> str:
    found = file.stat()
    return f"{os.fspath(file)}:{found.st_size}:{found.st_mtime_ns}"
