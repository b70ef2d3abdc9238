"""Processes to measure, from their start to their end, and what they answer over HTTP."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests.support.zookeeper import launch
from understudy.errors import ConfigurationError
from understudy.spark.java import SUPPORTED, Java, find_java, javas

PATIENCE_S = 240.0
ANSWER_S = 0.3
"""A server that is about to die may keep a question; the next one is asked soon."""

POLL_S = 0.01
END_S = 20.0

_OPENED = (
    "java.lang java.lang.invoke java.lang.reflect java.io java.net java.nio java.text java.time "
    "java.util java.util.concurrent java.util.concurrent.atomic java.util.concurrent.locks "
    "sun.nio.ch sun.nio.cs sun.security.action sun.util.calendar"
)
OPENS = (
    "--add-exports=java.base/sun.net.util=ALL-UNNAMED",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED.split()),
)
"""What the scripts of Flink and Spark tell a JVM."""

LOGGING = """\
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
appender.out.name = out
appender.out.type = Console
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{UNIX_MILLIS} %-5p %c{1} - %m%n
"""

Found = TypeVar("Found")


@dataclass
class Process:
    """One process, which is killed when this one ends; its output is in ``log``."""

    name: str
    log: Path
    popen: subprocess.Popen[bytes]

    @property
    def ended(self) -> bool:
        """Say whether it is gone, and reap it."""
        return self.popen.poll() is not None

    def kill(self) -> None:
        """End it at once, if it runs."""
        self.popen.kill()
        self.popen.wait(END_S)

    def stop(self) -> None:
        """Let it end in order; one that does not is killed."""
        self.popen.terminate()
        try:
            self.popen.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def story(self) -> str:
        """Return its last lines, for the message of a failure."""
        lines = self.log.read_text(errors="replace").splitlines()[-30:]
        return "\n".join([f"--- {self.name}", *(line[:300] for line in lines)])


def start(
    name: str, command: Sequence[object], place: Path, variables: Mapping[str, str] | None = None
) -> Process:
    """Start a command in a directory; its log is appended to ``<name>.log`` there."""
    words = [f"{key}={text}" for key, text in (variables or {}).items()]
    log = place / f"{name}.log"
    with log.open("ab") as output:
        # env is replaced by the command: the process id is the command's.
        line = ["env", "-C", str(place), *words, *map(str, command)]
        return Process(name, log, launch(line, output.fileno()))


def java_command(
    main: str, classpath: Sequence[object], options: Sequence[str], arguments: Sequence[object]
) -> list[str]:
    """Return the command line of a Java program."""
    path = os.pathsep.join(map(str, classpath))
    return [find_java().program, *options, *OPENS, "-cp", path, main, *map(str, arguments)]


def compiled(source: Path, classpath: Sequence[object], place: Path) -> Path:
    """Compile one Java source into a jar; raise `ConfigurationError` where there is no compiler."""
    compiler, archiver = _development_kit()
    classes = place / f"{source.stem}-classes"
    shutil.rmtree(classes, ignore_errors=True)
    classes.mkdir(parents=True)
    jar = place / f"{source.stem}.jar"
    path = os.pathsep.join(map(str, classpath))
    line = [compiler, "-nowarn", "-cp", path, "-d", str(classes), str(source)]
    subprocess.run(line, check=True)
    subprocess.run([archiver, "cf", str(jar), "-C", str(classes), "."], check=True)
    return jar


@functools.cache
def _development_kit() -> tuple[str, str]:
    usable = (java for java in javas() if java.version in SUPPORTED)
    for java in usable:
        tools = [_tool(java, name) for name in ("javac", "jar")]
        if all(tool.exists() for tool in tools):
            return str(tools[0]), str(tools[1])
    raise ConfigurationError(
        "Flink's jobs are compiled, and no Java 17 or 21 here has javac: install a JDK, and set "
        "JAVA_HOME"
    )


def _tool(java: Java, name: str) -> Path:
    return java.home / "bin" / name


def get(url: str, timeout_s: float = ANSWER_S) -> tuple[Any, Mapping[str, str]]:
    """Return the JSON that a URL gives and its headers; None where it gives none."""
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as answer:
            return json.load(answer), answer.headers
    except (OSError, ValueError, urllib.error.URLError):
        return None, {}


def until(
    what: str,
    look: Callable[[], Found | None],
    processes: Sequence[Process] = (),
    patience_s: float = PATIENCE_S,
    pause_s: float = 0.05,
) -> Found:
    """Look again until something true is found; fail with the processes' last words."""
    deadline = time.monotonic() + patience_s
    while not (found := look()):
        if time.monotonic() > deadline:
            told = "\n".join(process.story() for process in processes)
            raise AssertionError(f"{what}: not within {patience_s:g} s\n{told}")
        time.sleep(pause_s)
    return found


def send(number: signal.Signals, *pids: int) -> float:
    """Send a signal to processes, one right after the other; return the wall clock before."""
    now = time.time()
    for pid in pids:
        os.kill(pid, number)
    return now
