"""Builds an archive of class data (`spark.class_data`) beside a warm driver, and publishes it.

Run as ``python -m understudy.driver.class_data_building BUILDING PARENT``, as a child of the
driver, and dies with it. Nothing waits for it. It gets only CPU time that nobody else wants, is the
first that the kernel kills when memory is short, and has a deadline. One builder at a time works
for all processes of a user.

An archive appears under its name by a rename, once a JVM has accepted it. A build that fails leaves
a note with the reason, and no archive.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from understudy.process.disk import Disk, locked
from understudy.process.guardian import PR_SET_PDEATHSIG, prctl
from understudy.process.worker import lock_descriptors
from understudy.spark.class_data import FAILED, RETRY_S, SUFFIX, Building

BUILD_S = 900.0
"""Deadline of a build, which takes a minute of CPU time that nobody else wants."""

VERIFY_S = 120.0

ARCHIVES_MAX = 3
"""Archives that are kept, those used last: one is for one Java, Spark and class path."""

ARCHIVE_BYTES_MAX = 512 << 20
"""Largest archive; that of Spark 4 has 170 MB."""

OUTPUT_BYTES_MAX = 4096
"""Of a failed build's output, its note keeps this much."""

LOCK = "lock"
PART = ".part"
FIRST_TO_KILL = "1000"

_log = logging.getLogger(__name__)


class _BuildError(Exception):
    """A JVM did not build or accept an archive; the text says why."""


def start(building: Building | None) -> subprocess.Popen[bytes] | None:
    """Start a builder beside this process; return None if there is nothing to build."""
    if building is None:
        return None
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, building.encode(), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=lock_descriptors(),
        )
    except OSError as error:
        _log.info("no archive of class data is built: %s", error)
        return None


def build(building: Building) -> bool:
    """Build and publish an archive; return whether it is there.

    Returns False, too, if another process is building one.
    """
    archive = Path(building.archive)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    lock = os.open(archive.parent / LOCK, flags, 0o600)
    try:
        if not locked(lock):
            return False
        if not archive.exists():
            _build(building, archive, lock)
        return archive.exists()
    finally:
        os.close(lock)


def _build(building: Building, archive: Path, lock: int) -> None:
    _remove_all(archive.parent.glob(f"*{PART}*"))  # Of builders that were killed.
    part = archive.with_name(f"{archive.stem}-{os.getpid()}{PART}")
    classes = part.with_name(part.name + "-classes")
    disk = Disk()
    try:
        if shutil.disk_usage(archive.parent).free < 2 * ARCHIVE_BYTES_MAX:
            raise _BuildError("too little space is free")
        classes.write_bytes(_whole_lines(Path(building.class_list)))
        options = ("-Xshare:dump", f"-XX:SharedClassListFile={classes}")
        _java(building, part, options, lock, BUILD_S)
        # A JVM that insists on the archive: what it accepts, drivers will.
        _java(building, part, ("-Xshare:on", "-XX:+VerifySharedSpaces"), lock, VERIFY_S)
        disk.sync(part)
        disk.rename(part, archive)
        disk.sync(archive.parent)
        _bound(archive.parent)
    except (OSError, subprocess.TimeoutExpired, _BuildError) as error:
        with contextlib.suppress(OSError):
            archive.with_suffix(FAILED).write_text(f"{error}\n")
    finally:
        _remove_all((part, classes))


def _whole_lines(class_list: Path) -> bytes:
    """Return the list without a line that the JVM is writing."""
    return class_list.read_bytes().rpartition(b"\n")[0] + b"\n"


def _java(
    building: Building, part: Path, options: tuple[str, ...], lock: int, timeout_s: float
) -> None:
    command = [building.java, *building.options, *options, f"-XX:SharedArchiveFile={part}"]
    done = subprocess.run(
        [*command, "-cp", building.class_path, "-version"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout_s,
        check=False,
        env={name: text for name, text in os.environ.items() if "JAVA_" not in name},
        pass_fds=(lock, *lock_descriptors()),
        preexec_fn=functools.partial(_bounded, ARCHIVE_BYTES_MAX),
    )
    if done.returncode != 0:
        printed = done.stdout[-OUTPUT_BYTES_MAX:].decode(errors="replace").strip()
        raise _BuildError(f"{options[0]} exited with {done.returncode}: {printed}")


def _bounded(file_bytes: int) -> None:
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _bound(directory: Path) -> None:
    """Remove the archives that were used least recently, and old notes."""
    archives = sorted(directory.glob(f"*{SUFFIX}"), key=lambda one: one.stat().st_mtime)
    _remove_all(archives[:-ARCHIVES_MAX])
    old = time.time() - RETRY_S
    _remove_all(one for one in directory.glob(f"*{FAILED}") if one.stat().st_mtime < old)


def _remove_all(files: Iterable[Path]) -> None:
    for file in files:
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)


def _stand_back(parent: int) -> None:
    """Die with the driver, and take what nobody else wants."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(0)
    with contextlib.suppress(OSError):
        os.nice(19)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        Path("/proc/self/oom_score_adj").write_text(FIRST_TO_KILL)


def main() -> None:
    """Build what the command line says."""
    _stand_back(int(sys.argv[2]))
    with contextlib.suppress(OSError):  # The cache is of no use; drivers start without.
        build(Building.decode(sys.argv[1]))


if __name__ == "__main__":
    main()
