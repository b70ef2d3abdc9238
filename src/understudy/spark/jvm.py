"""Starting Spark's JVM ourselves: so that it gets our death signal, descriptors and flags.

PySpark starts its gateway through shell scripts, as a child that outlives a killed Python by up to
two seconds, or for ever if user code has forked. Here Spark's own launcher makes the command line
(class path, memory, module flags), and this module starts it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from understudy.errors import SessionLost, UnderstudyError
from understudy.spark.java import VECTOR_MODULE, Java, find_java

LAUNCHER_S = 60.0
"""Spark's launcher prints a command line in a quarter of a second."""

GATEWAY_S = 150.0
"""A JVM on a machine that starts several at once needs a while."""

POLL_S = 0.02
SIGNALLED = 128
PR_SET_PDEATHSIG = 1

LOG_MARK = "\x01"
"""Begins each line of Spark's own log, to tell it from what jobs print."""


@dataclass(frozen=True)
class Gateway:
    """A running JVM, and how Py4J reaches it."""

    process: subprocess.Popen[bytes]
    port: int
    secret: str


def start_gateway(
    conf: Mapping[str, str],
    descriptors: Iterable[int],
    submit_args: str = "",
    scratch: str | None = None,
) -> Gateway:
    """Start a JVM with Py4J's gateway; it dies with the calling thread's process.

    ``descriptors`` are inherited by the JVM (liveness locks); what is left in ``scratch`` when this
    process is killed, its guardian removes. Call from the main thread, which the
    kernel ties the death signal to. Raises `UnderstudyError` with what the JVM printed.
    """
    java = find_java()
    environment = _environment(java)
    command = _command(java, conf, submit_args, environment)
    with tempfile.TemporaryDirectory(prefix="understudy-gateway-", dir=scratch) as directory:
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
    return Gateway(process, port, secret)


def was_killed(process: subprocess.Popen[bytes]) -> bool:
    """Say whether a signal has ended a JVM; of some it makes an exit code above 128."""
    code = process.poll()
    return code is not None and (code < 0 or code > SIGNALLED)


def use_gateway(gateway: Gateway) -> None:
    """Let PySpark in this process use the gateway instead of starting its own."""
    os.environ["PYSPARK_GATEWAY_PORT"] = str(gateway.port)
    os.environ["PYSPARK_GATEWAY_SECRET"] = gateway.secret


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _environment(java: Java) -> dict[str, str]:
    home = os.environ.get("SPARK_HOME") or _find_spark_home()
    return {
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        **os.environ,
        "SPARK_HOME": home,
        "JAVA_HOME": str(java.home),
        "SPARK_CONNECT_MODE": "0",
    }


def _command(
    java: Java, conf: Mapping[str, str], submit_args: str, environment: Mapping[str, str]
) -> list[str]:
    """Ask Spark's launcher for the command line, and leave out what this Java does not have."""
    jars = str(Path(environment["SPARK_HOME"]) / "jars" / "*")
    arguments = [part for item in conf.items() for part in ("--conf", "=".join(item))]
    launched = _launch(
        java,
        [
            "-Xmx128m",
            "-cp",
            jars,
            "org.apache.spark.launcher.Main",
            "org.apache.spark.deploy.SparkSubmit",
            *arguments,
            *shlex.split(submit_args),
            "pyspark-shell",
        ],
        environment,
    )
    # An empty line ends what JVM options may have printed; the command line follows.
    _, _, printed = launched.stdout.partition(b"\0\n")
    command = [os.fsdecode(part) for part in printed.split(b"\0") if part]
    if launched.returncode != 0 or not command or not shutil.which(command[0]):
        said = launched.stderr.decode(errors="replace").strip() or "it printed no command line"
        raise UnderstudyError(f"Spark's launcher failed with {java.program}: {said}")
    if not java.has_vector_module:
        command = [part for part in command if part != f"--add-modules={VECTOR_MODULE}"]
    return command


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
        why = f"no answer within {LAUNCHER_S:g} s"
        said = (error.strerror or "it cannot be run") if isinstance(error, OSError) else why
        raise UnderstudyError(f"Spark's launcher failed with {java.program}: {said}") from error


def _await_answer(process: subprocess.Popen[bytes], answer: Path) -> tuple[int, str]:
    """Wait for the file with port and secret, which the JVM publishes by a rename."""
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
