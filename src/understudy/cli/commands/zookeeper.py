"""Commands that run a ZooKeeper server: understudy zookeeper start, stop, status.

The server is the real one, from the jars that PySpark ships; users with an ensemble do not need
it. The commands find a server by the record in its data directory, which names its process, and by
a request to its client port.
"""

from __future__ import annotations

import errno
import os
import shlex
import socket
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from understudy.cli.commands.ask import print_json
from understudy.cli.commands.common import Json
from understudy.cli.launch import background
from understudy.cli.launch.background import Background
from understudy.cli.launch.hosts import is_this_host
from understudy.errors import ConfigurationError, UnderstudyError
from understudy.ha.drafts import published
from understudy.process.reporter import printable_lines
from understudy.spark import zookeeper_config, zookeeper_server
from understudy.spark.java import find_java
from understudy.spark.zookeeper_config import Address, ServerConfig
from understudy.spark.zookeeper_server import Mute, Serving

START_S = 60.0
"""A server serves after about a second; a slow disk or much data take longer."""

GRACE_S = 10.0
"""A server ends within a second; acknowledged writes are on disk in any case."""

ANSWER_S = 5.0
POLL_S = 0.05
LINES = 12
"""Log lines printed if a server does not start."""

JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError")
"""Enough for a few hundred clients; $SERVER_JVMFLAGS comes later and wins."""

PURPOSE = "It is for trying out and for small clusters: a large one has an ensemble of its own."

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="ZOO.CFG",
        help="ZooKeeper's own configuration file, on each host its own. Without one: a single "
        "server at 127.0.0.1:2181.",
        show_default=False,
    ),
]
MyId = Annotated[
    int | None,
    typer.Option(
        "--myid",
        metavar="N",
        help="Which server.N this is; where it is not said: the one on this host.",
        show_default=False,
    ),
]
Foreground = Annotated[
    bool, typer.Option("--foreground", help="Be the server; its log goes to stderr.")
]

commands = typer.Typer(
    help="Run a real ZooKeeper server, or a member of a quorum, from the jars of PySpark. "
    f"{PURPOSE}",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(commands, name="zookeeper")


@commands.command()
def start(
    config_file: ConfigFile = None, my_id: MyId = None, foreground: Foreground = False
) -> None:
    """Start the server in the background, and return when it serves.

    Start each member of a quorum on its host: until a majority runs, a member does not serve.
    $SERVER_JVMFLAGS holds JVM options, for instance for memory or TLS.
    """
    config = _read(config_file, my_id, write=True)
    _prepare_data(config)
    with background.alone(config.data_dir):
        running = background.recorded(_record(config))
        if running is not None and running.lives:
            typer.echo(f"already runs: {_told(config, zookeeper_server.look_at(config, ANSWER_S))}")
            return
        _check_ports(config)
        if foreground:
            _become(config)
        found = _start(config)
    typer.echo(_told(config, found))
    typer.echo(f"data and log: {config.data_dir}")
    typer.echo(PURPOSE)
    typer.echo(
        "use it with: -D high-availability.type=zookeeper "
        f"-D high-availability.zookeeper.quorum={config.quorum}"
    )


@commands.command()
def stop(config_file: ConfigFile = None) -> None:
    """Stop the server, and return when it has ended. Its data is kept."""
    config = _read(config_file, None)
    if not config.data_dir.is_dir():
        typer.echo(f"does not run: {config.address}")
        return
    with background.alone(config.data_dir):
        running = background.recorded(_record(config))
        if running is None or not running.lives:
            found = zookeeper_server.look_at(config, ANSWER_S)
            if found is not Mute.SILENT:
                raise UnderstudyError(
                    f"what answers at {config.address} was not started in the background by this "
                    "command: end it where it was started"
                )
            typer.echo(f"does not run: {config.address}")
            return
        if not background.end(running, GRACE_S):
            raise UnderstudyError(f"process {running.pid} does not end, not even by SIGKILL")
        _record(config).unlink(missing_ok=True)
    typer.echo(f"stopped: {config.address} (pid {running.pid})")


@commands.command()
def status(config_file: ConfigFile = None, as_json: Json = False) -> None:
    """Show whether the server serves, and in which mode; exit code 1 if it does not serve."""
    config = _read(config_file, None)
    running = background.recorded(_record(config))
    pid = running.pid if running is not None and running.lives else None
    found = zookeeper_server.look_at(config, ANSWER_S)
    serves = found not in {Mute.SILENT, Mute.WAITING}
    said = {
        "serves": serves,
        "mode": found.mode if isinstance(found, Serving) else None,
        "version": found.version if isinstance(found, Serving) else None,
        "address": str(config.address),
        "quorum": config.quorum,
        # Without this command's own connection.
        "connections": found.connections - 1 if isinstance(found, Serving) else None,
        "pid": pid,
        "data": str(config.data_dir),
    }
    if as_json:
        print_json(said)
    else:
        typer.echo(_told(config, found))
        if isinstance(found, Serving):
            typer.echo(f"connections: {said['connections']}")
        if pid is not None or serves:
            typer.echo(f"pid: {pid or 'not started in the background by this command'}")
        typer.echo(f"data and log: {config.data_dir}")
        typer.echo(PURPOSE)
    if not serves:
        raise typer.Exit(1)


def _read(file: Path | None, my_id: int | None, *, write: bool = False) -> ServerConfig:
    """Read the configuration file; with ``write``, create the default one if missing."""
    if file is not None:
        return zookeeper_config.read_config(file, my_id, is_this_host)
    directory = zookeeper_config.default_directory()
    server = zookeeper_config.default_server(directory)
    if not server.file.exists():
        if not write:
            return server
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            _publish(server.file, zookeeper_config.default_config(directory))
        except OSError as error:
            raise ConfigurationError(
                f"{server.file} cannot be written: {error.strerror}"
            ) from error
    return zookeeper_config.read_config(server.file, my_id)


def _publish(file: Path, text: str) -> None:
    """Write a file atomically: two commands may write it at once."""
    with published(file) as draft:
        draft.write(text.encode())


def _record(config: ServerConfig) -> Path:
    return config.data_dir / "understudy-zookeeper.json"


def _prepare_data(config: ServerConfig) -> None:
    """Create the data directory, and the member's ``myid`` file in it."""
    try:
        config.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=config.data_dir):
            pass
        if config.my_id is not None and not (config.data_dir / "myid").exists():
            _publish(config.data_dir / "myid", f"{config.my_id}\n")
    except OSError as error:
        raise UnderstudyError(
            f"dataDir {config.data_dir} cannot be written: {error.strerror}: choose another one in "
            f"{config.file}"
        ) from error


def _check_ports(config: ServerConfig) -> None:
    """Raise `UnderstudyError` for a port in use: ZooKeeper would report it late and at length."""
    wanted = [one for one in (config.client, config.secure) if one is not None]
    if config.my_id is not None:
        member = config.members[config.my_id]
        wanted.append(Address(member.host, member.quorum_port))
        wanted.append(Address(member.host, member.election_port))
    for address in wanted:
        try:
            family, *_, place = socket.getaddrinfo(
                address.host or None, address.port, flags=socket.AI_PASSIVE
            )[0]
            with socket.socket(family) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
        except OSError as error:
            # ZooKeeper judges names that only other hosts resolve to this one.
            if error.errno == errno.EADDRINUSE:
                raise UnderstudyError(
                    f"port {address.port} of {address.host or 'this host'} is taken: end what "
                    f"listens there, or choose another one in {config.file}"
                ) from error


def _command(config: ServerConfig, logging: str) -> list[str]:
    place = config.data_dir / "understudy-log4j2.properties"
    _publish(place, logging)
    os.chdir(config.file.parent)  # The base of its relative paths.
    options = [*JVM, *shlex.split(os.environ.get("SERVER_JVMFLAGS", ""))]
    return zookeeper_server.server_command(find_java(), config.file, place, options)


def _become(config: ServerConfig) -> None:
    """Replace this process by the server: signals and the exit code are the server's."""
    command = _command(config, zookeeper_server.log_to_console())
    typer.echo(f"ZooKeeper at {config.address}. {PURPOSE}", err=True)
    os.execv(command[0], command)  # noqa: S606


def _start(config: ServerConfig) -> Serving | Mute:
    """Start the server and wait for its answer; raise with the end of its log on failure."""
    log = config.data_dir / "zookeeper.log"
    command = _command(config, zookeeper_server.log_to_file(log))
    before = log.stat().st_size if log.exists() else 0
    try:
        server = background.start(
            command,
            _record(config),
            config.data_dir / "zookeeper.out",
            about={"config": str(config.file)},
        )
    except OSError as error:
        raise UnderstudyError(f"{command[0]} cannot be started: {error.strerror}") from error
    found, why = _await_answer(config, server)
    if why is None:
        return found
    background.end(server, GRACE_S)
    lines = _complaints(log, before) or background.last_lines(Path(server.log), LINES)
    said = "\n".join(["", *(f"  {line}" for line in lines)])
    raise UnderstudyError(f"ZooKeeper {why}; the end of its log, {log}:{said}")


def _await_answer(config: ServerConfig, server: Background) -> tuple[Serving | Mute, str | None]:
    """Wait until a server answers; return the reason if it ends or takes too long.

    A member without a quorum counts as answering: the other members may start later.
    """
    until = time.monotonic() + START_S
    try:
        handle = os.pidfd_open(server.pid)
    except ProcessLookupError:
        return Mute.SILENT, "has ended"
    try:
        while True:
            found = zookeeper_server.look_at(config, ANSWER_S)
            if found is Mute.WAITING and not config.has_quorum:
                found = Mute.SILENT  # Still reading its data.
            ended = background.is_over(handle, POLL_S if found is Mute.SILENT else 0.0)
            if ended:
                return found, "has ended"
            if found is not Mute.SILENT:
                return found, None
            if time.monotonic() > until:
                return found, f"has not answered in {START_S:.0f} s"
    finally:
        os.close(handle)


def _complaints(log: Path, before: int) -> list[str]:
    """Return the last log lines after offset ``before``, without INFO lines and stack frames."""
    try:
        with log.open("rb") as file:
            file.seek(before if before <= log.stat().st_size else 0)
            text = file.read(zookeeper_server.LOG_BYTES_MAX).decode(errors="replace")
    except OSError:
        return []
    lines = [
        line
        for line in text.splitlines()
        if line.strip() and " INFO " not in line and not line.startswith(("\t", "    "))
    ]
    return [printable_lines(line) for line in lines[-LINES:]]


def _told(config: ServerConfig, found: Serving | Mute) -> str:
    """Return one sentence on a server's state."""
    member = f", member {config.my_id} of {len(config.members)}" if config.has_quorum else ""
    if isinstance(found, Mute):
        return f"ZooKeeper at {config.address}{member} {found.value}"
    return f"ZooKeeper {found.version} serves at {config.address} ({found.mode}{member})"
