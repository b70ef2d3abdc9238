"""A ZooKeeper server from PySpark's jars: its command line, and its answers to status queries.

PySpark ships ZooKeeper because Spark's standalone Master can elect its leader there. The server
is in the same jar, so that nothing else must be installed. This module starts no process.
"""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from understudy.errors import ConfigurationError
from understudy.spark.java import Java
from understudy.spark.zookeeper_config import ServerConfig

MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

NEEDED = (
    "zookeeper-",
    "slf4j-api-",
    "log4j-",
    "netty-",
    "metrics-core-",
    "snappy-java-",
    "commons-io-",
    "commons-cli-",
    "audience-annotations-",
    "jackson-",
)
"""Prefixes of the jars that a server loads; all 250 jars of Spark would cost 25 MB and 0.2 s."""

ANSWER_BYTES_MAX = 1 << 20
"""Longest answer to a four-letter word that is read; `cons` with 1,000 connections has 200 kB."""

LOG_PATTERN = "%d{ISO8601} %-5p %c{1}: %m%n"
LOG_BYTES_MAX = 10 << 20
LOGS_KEPT = 3


class Mute(Enum):
    """Why a server's status is unknown; the value completes a sentence."""

    SILENT = "does not answer"
    WAITING = "runs, and does not serve: too few of the other members are there"
    SECURE = "answers, with TLS only: its mode cannot be asked"


@dataclass(frozen=True)
class Serving:
    """A server's status (``srvr``)."""

    mode: str
    """``standalone``, ``leader``, ``follower`` or ``observer``."""

    version: str
    connections: int
    """Open connections, including the one of this query."""

    zxid: int
    nodes: int

    @property
    def transactions(self) -> int:
        """Return how many transactions the current leader, or a lone server, has written."""
        return self.zxid & 0xFFFFFFFF


def server_command(
    java: Java, configuration: Path, log_configuration: Path, options: Iterable[str]
) -> list[str]:
    """Return the command line of a server; ``options`` are the JVM's.

    Raises `ConfigurationError` if PySpark has no ZooKeeper.
    """
    return [
        java.program,
        *options,
        f"-Dlog4j2.configurationFile={log_configuration.absolute().as_uri()}",
        "-Dzookeeper.jmx.log4j.disable=true",
        "-cp",
        ":".join(map(str, find_jars())),
        MAIN,
        # ZooKeeper warns about a relative path.
        str(configuration.absolute()),
    ]


def find_jars() -> list[Path]:
    """Return the jars that a server needs: PySpark's, or those of the Spark at $SPARK_HOME.

    Raises `ConfigurationError` that names the searched directories.
    """
    places = []
    # Importing PySpark would take longer than starting the server.
    found = importlib.util.find_spec("pyspark")
    if found is not None and found.submodule_search_locations:
        places.append(Path(found.submodule_search_locations[0]) / "jars")
    if os.environ.get("SPARK_HOME"):
        places.append(Path(os.environ["SPARK_HOME"]) / "jars")
    for place in places:
        if any(place.glob("zookeeper-[0-9]*.jar")):
            return sorted(jar for jar in place.glob("*.jar") if jar.name.startswith(NEEDED))
    looked = " or ".join(map(str, places)) or "any PySpark, which is not installed"
    raise ConfigurationError(
        f"no ZooKeeper in {looked}: install PySpark with its jars, or set SPARK_HOME"
    )


def log_to_console(level: str = "info") -> str:
    """Return a Log4j configuration that prints to stderr."""
    return (
        "status = error\n"
        f"rootLogger.level = {level}\n"
        "rootLogger.appenderRef.out.ref = out\n"
        "appender.out.type = Console\n"
        "appender.out.name = out\n"
        "appender.out.target = SYSTEM_ERR\n"
        "appender.out.layout.type = PatternLayout\n"
        f"appender.out.layout.pattern = {LOG_PATTERN}\n"
    )


def log_to_file(log: Path) -> str:
    """Return a Log4j configuration that writes a log file of bounded size."""
    return (
        "status = error\n"
        "rootLogger.level = info\n"
        "rootLogger.appenderRef.out.ref = out\n"
        "appender.out.type = RollingFile\n"
        "appender.out.name = out\n"
        f"appender.out.fileName = {log}\n"
        f"appender.out.filePattern = {log}.%i\n"
        "appender.out.layout.type = PatternLayout\n"
        f"appender.out.layout.pattern = {LOG_PATTERN}\n"
        "appender.out.policies.type = Policies\n"
        "appender.out.policies.size.type = SizeBasedTriggeringPolicy\n"
        f"appender.out.policies.size.size = {LOG_BYTES_MAX}\n"
        "appender.out.strategy.type = DefaultRolloverStrategy\n"
        f"appender.out.strategy.max = {LOGS_KEPT}\n"
    )


def ask(host: str, port: int, word: str, timeout_s: float) -> str:
    """Return a server's answer to a four-letter word; raises ``OSError`` without an answer."""
    until = time.monotonic() + timeout_s
    answer = b""
    with socket.create_connection((host, port), timeout_s) as connection:
        connection.sendall(word.encode())
        while len(answer) < ANSWER_BYTES_MAX:
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise TimeoutError(f"{host}:{port} has not answered {word!r} in {timeout_s:g} s")
            connection.settimeout(left_s)
            if not (more := connection.recv(65_536)):
                break
            answer += more
    return answer.decode(errors="replace")


def parse_serving(answer: str) -> Serving | None:
    """Parse the answer to ``srvr``; None if the server runs but does not serve (no quorum)."""
    facts = dict(re.findall(r"(?m)^([A-Z][\w ]*): (.*)$", answer))
    if "Mode" not in facts:
        return None
    return Serving(
        mode=facts["Mode"].strip(),
        version=facts.get("Zookeeper version", "").partition("-")[0],
        connections=int(facts.get("Connections", "0")),
        zxid=int(facts.get("Zxid", "0x0"), 16),
        nodes=int(facts.get("Node count", "0")),
    )


def ask_serving(host: str, port: int, timeout_s: float) -> Serving | Mute:
    """Query a server's status; return the reason if it is unknown."""
    try:
        answer = ask(host, port, "srvr", timeout_s)
    except OSError:
        return Mute.SILENT
    # A server that starts or stops closes the connection without an answer.
    return parse_serving(answer) or (Mute.WAITING if answer.strip() else Mute.SILENT)


def look_at(config: ServerConfig, timeout_s: float) -> Serving | Mute:
    """Query the status of a configured server."""
    if config.client is not None:
        return ask_serving(config.client.asked, config.client.port, timeout_s)
    try:
        socket.create_connection((config.address.asked, config.address.port), timeout_s).close()
    except OSError:
        return Mute.SILENT
    return Mute.SECURE
