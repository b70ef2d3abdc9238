"""Starts Spark's JVM with our own death signal, descriptors and flags.

PySpark starts its gateway through shell scripts, as a child that outlives a killed Python by up to
two seconds, or forever if user code has forked. Here Spark's own launcher creates the command line
(class path, memory, module flags), and this module starts it.

Settings and Java options may hold secrets, and every user of a host can read command lines: both
are in files that only the owner can read, and that are removed once the JVM has read them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from understudy.core.executors import OWN_PYTHON
from understudy.errors import SessionLost, UnderstudyError
from understudy.spark import properties
from understudy.spark.addresses import advertised, is_local, on_this_host
from understudy.spark.class_data import Building, share
from understudy.spark.java import VECTOR_MODULE, Java, find_java

LAUNCHER_S = 60.0
"""Timeout of Spark's launcher, which normally takes a quarter of a second."""

GATEWAY_S = 150.0
"""Timeout of a JVM's start, long enough for a machine that starts several at once."""

POLL_S = 0.02
SIGNALLED = 128
PR_SET_PDEATHSIG = 1
USAGE = "--usage-error"
"""When the launcher refuses arguments, its command line has this flag, to print the usage."""

MAIN_CLASS = "org.apache.spark.deploy.SparkSubmit"

RESOLVED = frozenset({"spark.jars", "spark.files", "spark.archives", "spark.submit.pyFiles"})
"""Settings to which the JVM has added the files of ``spark.jars.packages``: a context that sets
them again would not pass those files to executors."""

LOG_MARK = "\x01"
"""Begins each line of Spark's own log, to distinguish it from the output of jobs."""


@dataclass(frozen=True)
class Gateway:
    """A running JVM, and how Py4J reaches it."""

    process: subprocess.Popen[bytes]
    port: int
    secret: str
    python: str | None
    """The Python of executors; None if Spark chooses."""
    building: Building | None = None
    """The archive of classes that the JVM has started without."""


def start_gateway(
    conf: Mapping[str, str],
    descriptors: Iterable[int],
    flags: Sequence[str] = (),
    scratch: str | None = None,
    class_data: str = "",
) -> Gateway:
    """Start a JVM with Py4J's gateway; the JVM dies with the calling process.

    ``conf`` holds all settings: Spark reads no ``spark-defaults.conf`` besides. ``flags`` are
    further arguments of ``spark-submit``. The JVM inherits ``descriptors`` (liveness locks). If
    this process is killed, its guardian removes the files in ``scratch``. ``class_data`` is the
    directory of the archives of classes. Call from the main thread, as the kernel ties the death
    signal to the calling thread. Raises `UnderstudyError` that says how the start failed.
    """
    java = find_java()
    python = executor_python(conf, os.environ)
    environment = _environment(java, conf, python)
    with tempfile.TemporaryDirectory(prefix="understudy-gateway-", dir=scratch) as directory:
        command = _command(java, conf, flags, environment, Path(directory))
        building = None
        if class_data and scratch:
            at, main = _program(command), command.index(MAIN_CLASS)
            shared = share(
                java, command[at + 1 : main], environment, Path(class_data), Path(scratch)
            )
            command[at + 1 : at + 1] = shared.options
            building = shared.building
        command = _with_options_in_file(command, Path(directory) / "options")
        answer = Path(directory) / "gateway"
        environment["_PYSPARK_DRIVER_CONN_INFO_PATH"] = str(answer)
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            env=environment,
            pass_fds=tuple(descriptors),
            preexec_fn=_die_with_parent,  # noqa: PLW1509 -- no thread holds a lock here yet
        )
        port, secret = _await_answer(process, answer)
    return Gateway(process, port, secret, python, building)


def spark_home() -> str:
    """Return the directory of the Spark installation in use."""
    return os.environ.get("SPARK_HOME") or str(_find_spark_home())


def executor_python(conf: Mapping[str, str], environment: Mapping[str, str]) -> str | None:
    """Return the Python of executors; None if Spark chooses.

    The user's setting comes first, with ``spark-submit``'s precedence, then this Python, if all
    executors are on this host. Other hosts may not have it, and get Spark's default. Where this
    Python is the application's own, ``PYSPARK_PYTHON`` says nothing of this host.
    """
    master, set_to = conf.get("spark.master", "local"), conf.get("spark.pyspark.python", "")
    given = set_to or environment.get("PYSPARK_PYTHON")
    # A setting beats the environment; but Spark does not unpack archives for a local master.
    packed = is_local(master) and "/" in set_to and not set_to.startswith("/")
    if environment.get(OWN_PYTHON) and (packed or not set_to) and on_this_host(master):
        return sys.executable
    if given:
        return given
    return sys.executable if on_this_host(master) else None


def was_killed(process: subprocess.Popen[bytes]) -> bool:
    """Return whether a signal ended a JVM; some signals appear as an exit code above 128."""
    code = process.poll()
    return code is not None and (code < 0 or code > SIGNALLED)


def use_gateway(gateway: Gateway) -> None:
    """Make PySpark in this process use the gateway instead of starting its own."""
    os.environ["PYSPARK_GATEWAY_PORT"] = str(gateway.port)
    os.environ["PYSPARK_GATEWAY_SECRET"] = gateway.secret
    if gateway.python:
        os.environ["PYSPARK_PYTHON"] = gateway.python


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _environment(java: Java, conf: Mapping[str, str], python: str | None) -> dict[str, str]:
    address = advertised(conf.get("spark.master", "local"))
    return {
        "SPARK_SCALA_VERSION": "2.13",
        **({"SPARK_LOCAL_IP": address} if address else {}),
        **os.environ,
        **({"PYSPARK_PYTHON": python} if python else {}),
        "SPARK_HOME": spark_home(),
        "JAVA_HOME": str(java.home),
        "SPARK_CONNECT_MODE": "0",
    }


def _command(
    java: Java,
    conf: Mapping[str, str],
    flags: Sequence[str],
    environment: Mapping[str, str],
    directory: Path,
) -> list[str]:
    """Get the command line from Spark's launcher, without the modules that this Java lacks."""
    jars = str(Path(environment["SPARK_HOME"]) / "jars" / "*")
    settings = directory / "settings"
    properties.write(settings, conf)
    launched = _launch(
        java,
        [
            *("-Xmx128m", "-cp", jars, "org.apache.spark.launcher.Main", MAIN_CLASS),
            *("--properties-file", str(settings), *flags, "pyspark-shell"),
        ],
        environment,
    )
    # JVM options may print something first; an empty line separates it from the command line.
    _, _, printed = launched.stdout.partition(b"\0\n")
    command = [os.fsdecode(part) for part in printed.split(b"\0") if part]
    refused = launched.returncode != 0 or USAGE in command
    if refused or not command or not shutil.which(command[0]):
        problem = launched.stderr.decode(errors="replace").strip() or "it printed no command line"
        problem = problem.removeprefix("Error: ")
        raise UnderstudyError(f"Spark's launcher failed with {java.program}: {problem}")
    if not java.has_vector_module:
        command = [part for part in command if part != f"--add-modules={VECTOR_MODULE}"]
    return command


def _with_options_in_file(command: list[str], path: Path) -> list[str]:
    """Move the options between ``java`` and the main class into an argument file."""
    main = command.index(MAIN_CLASS)
    program = _program(command)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        for part in command[program + 1 : main]:
            file.write(b'"%s"\n' % os.fsencode(part.translate(_QUOTED)))
    return [*command[: program + 1], f"@{path}", *command[main:]]


def _program(command: Sequence[str]) -> int:
    """Return where ``java`` is; ``env`` with the library path may come before it."""
    return next(at for at, part in enumerate(command) if part.endswith("/bin/java"))


_QUOTED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r"})


def _launch(
    java: Java, arguments: list[str], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            [java.program, *arguments],
            env=dict(environment),
            capture_output=True,
            timeout=LAUNCHER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        late = f"no answer within {LAUNCHER_S:g} s"
        problem = (error.strerror or "it cannot be run") if isinstance(error, OSError) else late
        raise UnderstudyError(f"Spark's launcher failed with {java.program}: {problem}") from error


def _await_answer(process: subprocess.Popen[bytes], answer: Path) -> tuple[int, str]:
    """Wait for the file with port and secret, which the JVM creates by a rename."""
    deadline = time.monotonic() + GATEWAY_S
    while not answer.exists():
        if was_killed(process):
            raise SessionLost(f"the JVM was killed before it was ready ({process.returncode})")
        if process.poll() is not None:
            raise UnderstudyError(f"the JVM exited with {process.returncode} before it was ready")
        if time.monotonic() > deadline:
            process.kill()
            raise UnderstudyError(f"the JVM was not ready within {GATEWAY_S:g} s")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(POLL_S)
    data = answer.read_bytes()
    port, length = struct.unpack_from(">ii", data)
    return port, data[8 : 8 + length].decode()
