"""Builds one Python environment; run as a process of its own, which may be killed at any moment.

An environment is a virtual environment with the requirements, or an unpacked archive (venv-pack,
conda-pack). The packages of the cluster's interpreter come last on its path, so that it has
PySpark, Understudy and all that they need. While an installer runs, it sees those packages as
installed: it does not bring PySpark along for a package that needs PySpark, and a requirement that
Understudy cannot work with is a conflict that the installer explains.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import site
import subprocess
import sys
import tarfile
import uuid
import venv
from pathlib import Path

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from understudy.errors import EnvironmentFailed, UnderstudyError
from understudy.ha import own_directory
from understudy.process import archives, environment_store, requirement_lines
from understudy.process.environment_store import EnvironmentOrder

ANSWER_S = 120.0
"""How long an interpreter may take to answer; a cold one takes a second."""

LINES_MAX, LINE_CHARS_MAX = 20, 1_000
"""What is told of an installer's output: its last lines."""

INSTALLER = "understudy"
"""What the noted packages say they were installed by."""

PATH_FILE = "zz_understudy.pth"
"""Read by the environment's interpreter after the other files of its kind."""

_ASK = """
import importlib.util, json, os, sys, sysconfig
def version(name):
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.origin:
        return ""
    names = {"__name__": name + ".version"}
    with open(os.path.join(os.path.dirname(spec.origin), "version.py")) as file:
        exec(file.read(), names)
    return names.get("VERSION") or names.get("__version__") or ""
print(json.dumps({
    "python": list(sys.version_info[:2]),
    "packages": sysconfig.get_path("purelib"),
    "versions": {name: version(name) for name in ("pyspark", "understudy")},
}))
"""


class Answer(msgspec.Struct, frozen=True):
    """What an interpreter says of itself."""

    python: tuple[int, int]
    packages: str
    versions: dict[str, str]


def build(order: EnvironmentOrder) -> None:
    """Build an environment unless it is there, and whole. Raises `UnderstudyError`, ``OSError``."""
    base = own_directory.make(Path(order.base), levels=2)
    home = base / order.name
    with environment_store.building(home):
        if environment_store.whole(base, order.name):
            return
        environment_store.clear(home)
        directory = home / uuid.uuid4().hex[:8]
        try:
            python = _unpacked(order, directory) if order.archive else _installed(order, directory)
            _join_cluster(python, directory)
            environment_store.seal(home, directory, python)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise


def _installed(order: EnvironmentOrder, directory: Path) -> Path:
    """Make a virtual environment, and install the requirements."""
    file = Path(order.requirements)
    text = file.read_text(encoding="utf-8")
    requirement_lines.check(file.name, text, requirement_lines.of_cluster())
    venv.EnvBuilder(symlinks=True).create(directory)
    python = directory / "bin/python"
    packages = Path(_ask(python, isolated=True).packages)
    noted = _note_packages_of_cluster(packages)
    command = [*_installer(python), "--requirement", str(file)]
    for place in order.find_links:
        command += ["--find-links", place]
    if order.no_index:
        command.append("--no-index")
    if (
        requirement_lines.HASHES not in text
    ):  # Where files are pinned, what is named here must be, too.
        command += [
            f"{name}=={version}"
            for name, version in requirement_lines.of_cluster().items()
            if canonicalize_name(name) in noted
        ]
    _run(command)
    for path in packages.glob("*.dist-info"):
        if (path / "INSTALLER").read_text().strip() == INSTALLER:
            shutil.rmtree(path)
    return python


def _note_packages_of_cluster(packages: Path) -> set[str]:
    """Note what the cluster's interpreter has for PySpark and Understudy; return the names."""
    noted: set[str] = set()
    found: list[str] = [*requirement_lines.OF_CLUSTER]
    while found:
        name = canonicalize_name(found.pop())
        if name in noted:
            continue
        try:
            one = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        noted.add(name)
        described = one.read_text("METADATA") or one.read_text("PKG-INFO") or ""
        place = packages / f"{name.replace('-', '_')}-{one.version}.dist-info"
        place.mkdir()
        (place / "METADATA").write_text(described, encoding="utf-8")
        (place / "INSTALLER").write_text(INSTALLER)
        # Who replaces the package removes these files, and nothing of the cluster.
        files = ("METADATA", "INSTALLER", "RECORD")
        (place / "RECORD").write_text("".join(f"{place.name}/{file},,\n" for file in files))
        for line in one.requires or ():
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                found.append(needed.name)
    return noted


def _installer(python: Path) -> list[str]:
    """Return the command that installs into an environment: uv where it is, else pip."""
    beside = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    if uv := shutil.which("uv", path=beside):
        return [uv, "pip", "install", "--python", str(python), "--no-progress", "--color", "never"]
    quiet = ["install", "--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "--python", str(python), *quiet]
    if importlib.util.find_spec("ensurepip"):
        _run([str(python), "-I", "-m", "ensurepip"])
        return [str(python), "-m", "pip", *quiet]
    raise EnvironmentFailed(
        f"neither uv nor pip is there to install requirements: install one of them for "
        f"{sys.executable}"
    )


def _run(command: list[str]) -> None:
    """Run an installer, and pass its output on. Raises `EnvironmentFailed` with the last lines."""
    name = "uv" if Path(command[0]).name == "uv" else "pip"
    lines: list[str] = []
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=_clean(),
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines = [*lines[-LINES_MAX:], line.rstrip()[:LINE_CHARS_MAX]]
    if process.returncode:
        said = "\n".join(line for line in lines if line)
        raise EnvironmentFailed(f"{name} ended with {process.returncode}:\n{said}")


def _clean() -> dict[str, str]:
    """Return the variables of this process without what would change an interpreter's path."""
    left_out = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    return {name: value for name, value in os.environ.items() if name not in left_out}


def _unpacked(order: EnvironmentOrder, directory: Path) -> Path:
    """Unpack an archive that was packed with its interpreter; return the interpreter."""
    file = Path(order.archive)
    if not file.name.endswith(archives.TARS):
        raise EnvironmentFailed(
            f"{file.name}: a packed environment with its Python is one of "
            f"{', '.join(archives.TARS)}"
        )
    archives.check_members("archives", file)
    with tarfile.open(file) as packed:
        packed.extractall(directory, filter="tar")
    python = directory / order.program
    if not python.is_file() or not os.access(python, os.X_OK):
        raise EnvironmentFailed(
            f"{file.name} has no {order.program} that can be executed, which is to be the "
            "application's Python; where it is a link, this host lacks what it leads to"
        )
    return python


def _join_cluster(python: Path, directory: Path) -> None:
    """Put the cluster's packages last on an interpreter's path, and check what it has then.

    A program that only leads to another interpreter has no packages in the environment: that other
    interpreter is left as it is.
    """
    here, there = _ask(Path(sys.executable)), _ask(python, isolated=True)
    if there.python != here.python:
        wanted, has = (".".join(map(str, one.python)) for one in (here, there))
        raise EnvironmentFailed(
            f"the environment has Python {has}, and this cluster Python {wanted}, whose minor "
            "version must be the same"
        )
    places = [*site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        places.append(site.getusersitepackages())
    added = "; ".join(f"site.addsitedir({place!r})" for place in places)
    packages = Path(there.packages).resolve()
    if packages.is_relative_to(directory.resolve()):
        (packages / PATH_FILE).write_text(f"import site; {added}\n", encoding="utf-8")
    versions = _ask(python).versions
    for name, version in here.versions.items():
        if versions.get(name) != version:
            raise EnvironmentFailed(
                f"the environment has {name} {versions.get(name) or '(none)'}, and this cluster "
                f"{version}, which all its processes need: leave {name} out of the environment"
            )


def _ask(python: Path, *, isolated: bool = False) -> Answer:
    """Return what an interpreter says; ``isolated``: as if nothing but it were installed."""
    flag = "-I" if isolated else "-P"
    try:
        done = subprocess.run(
            [python, flag, "-c", _ASK],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=ANSWER_S,
        )
        return msgspec.json.decode(done.stdout, type=Answer)
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError) as error:
        told = getattr(error, "stderr", None) or b""
        last = (told.decode(errors="replace").strip().splitlines() or [str(error)])[-1]
        raise EnvironmentFailed(f"the environment's Python does not work: {last}") from error


def main() -> None:
    """Build the environment that the command line orders."""
    order = msgspec.json.decode(sys.argv[1], type=EnvironmentOrder)
    if order.report is not None:
        os.set_inheritable(order.report, False)
    try:
        build(order)
    except (UnderstudyError, OSError) as error:
        if order.report is not None:
            os.write(
                order.report,
                str(error).encode(errors="replace")[: environment_store.REPORT_BYTES_MAX],
            )
        sys.exit(str(error))


if __name__ == "__main__":
    main()
