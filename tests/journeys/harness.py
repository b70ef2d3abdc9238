"""One run of a real cluster, as an outsider sees it: a command, its JSON events, REST, files."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.support import kubernetes
from understudy.config.configuration import Configuration, load_configuration
from understudy.ha.storage import open_storage

Event = dict[str, Any]

PATIENCE_S = 200.0
"""How long anything may take before a test gives up: where others compute too, a cold JVM takes a
minute until its first batch is through."""

WHOLE_S = 4 * PATIENCE_S
"""... and a run from its start to its end."""

BY_PROOF_S = 10.0
"""A takeover by proof of death takes a tenth of a second, and one by the lease 15 s by default."""

COMMAND = (sys.executable, "-m", "understudy")
SESSION_LESS = ("-D", "taskmanager.driver.type=session-less")
IMPATIENT = (
    "-D high-availability.leader-election.lease-duration=8s",
    "-D high-availability.leader-election.renew-deadline=6s",
    "-D high-availability.leader-election.retry-period=500ms",
    "-D high-availability.zookeeper.client.session-timeout=8s",
    "-D taskmanager.orphan-timeout=10s",
    "-D jobmanager.adoption-grace=13s",
    "-D heartbeat.interval=1s",
    "-D taskmanager.driver.heartbeat-timeout=6s",
    "-D jobmanager.application-process.heartbeat-timeout=6s",
)
"""Timeouts that a test can wait for, and that a machine which stalls for a second or two bears."""

LASTING = ("-D", "taskmanager.orphan-timeout=20s", "-D", "jobmanager.adoption-grace=25s")
"""With these, drivers outlive a takeover that waits for the lease, however busy the machine is."""


def impatient() -> list[str]:
    """Return the arguments that set short timeouts."""
    return [word for option in IMPATIENT for word in option.split(" ", 1)]


class GoneError(AssertionError):
    """The run ended, or took too long, before what a test waited for."""


class Run:
    """A running ``understudy run-application --json``."""

    def __init__(
        self,
        command: list[str],
        place: Path,
        log: Path,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.place = place
        self.events: list[Event] = []
        self.log = log
        self.shown: dict[str, str] = {}
        """Headers that say who asks REST."""
        self.tls: ssl.SSLContext | None = None
        self.alone = False
        """No standby was asked for."""
        self._queue: queue.Queue[Event | None] = queue.Queue()
        self._seen = 0
        self.process = subprocess.Popen(
            command,
            cwd=place,
            env={**environment(place), **(variables or {})},
            stdout=subprocess.PIPE,
            stderr=log.open("w"),
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)
            self.events.append(event)
            self._queue.put(event)
        self._queue.put(None)

    # --- events -----------------------------------------------------------------------------------

    def wait(self, kind: str, patience_s: float = PATIENCE_S, **fields: Any) -> Event:
        """Return the next event of a kind with these fields; earlier ones are passed over."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                event = self._queue.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise GoneError(f"no {kind} {fields}\n{self.story()}") from None
            if event is None:
                raise GoneError(f"the run ended before {kind} {fields}\n{self.story()}")
            if event["event"] == kind and fields.items() <= event.items():
                return event

    def of(self, kind: str, **fields: Any) -> list[Event]:
        """Return all events so far of a kind with these fields."""
        return [e for e in self.events if e["event"] == kind and fields.items() <= e.items()]

    def running(self, name: str, **fields: Any) -> Event:
        """Wait until a job runs."""
        return self.wait("job-status", name=name, status="RUNNING", **fields)

    def at_work(self) -> None:
        """Wait until the function of the second job has begun: its driver runs before that."""
        self.running("second job")
        self.grown("jobs.txt", 2)

    def finish(self, patience_s: float = PATIENCE_S) -> int:
        """Wait for the command's end and return its exit code."""
        try:
            code = self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise GoneError(f"the run does not end\n{self.story()}") from None
        self._reader.join(5.0)
        return code

    def story(self) -> str:
        """Return what has happened, for the message of a failing test."""
        told = "\n".join(json.dumps(event) for event in self.events[-40:])
        return f"{told}\n--- stderr ---\n{self.log.read_text(errors='replace')[-6000:]}"

    # --- the cluster ------------------------------------------------------------------------------

    @property
    def rest(self) -> str:
        """Return the address of whoever leads, as last told; files may tell of jobs before that."""
        deadline = time.monotonic() + PATIENCE_S
        while not (told := self.of("leader")):
            if time.monotonic() > deadline or self._is_over():
                raise GoneError(f"nobody leads\n{self.story()}")
            time.sleep(0.02)
        return str(told[-1]["rest"])

    def get(self, path: str, base: str | None = None) -> Any:
        """Return what REST answers; asks again while nobody leads."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                request = urllib.request.Request((base or self.rest) + path, headers=self.shown)
                with urllib.request.urlopen(request, timeout=10, context=self.tls) as answer:
                    return json.load(answer)
            except (OSError, urllib.error.URLError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def until(self, path: str, holds: Callable[[Any], bool]) -> Any:
        """Ask again until an answer holds; return it."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds(answer := self.get(path)):
            if time.monotonic() > deadline:
                raise GoneError(f"{path} stays {answer}\n{self.story()}")
            time.sleep(0.05)
        return answer

    def leader(self) -> dict[str, Any]:
        """Return who leads."""
        found: dict[str, Any] = self.get("/ha/status")["leader"]
        return found

    def standby_is_ready(self) -> dict[str, Any]:
        """Wait until a standby has said that it is ready; return the status."""
        assert not self.alone, "this run has no standby: say start(…, standbys=1)"
        found: dict[str, Any] = self.until(
            "/ha/status", lambda answer: any(one["ready"] for one in answer["standbys"])
        )
        return found

    def busy(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Wait until a slot is busy and another driver is warm; return TaskManager and slot."""

        def ready(answer: Any) -> bool:
            drivers = [
                driver
                for one in answer["taskmanagers"]
                for driver in (*one["slots"], *one["spare_drivers"])
            ]
            states = [driver["state"] for driver in drivers]
            return "busy" in states and "warm" in states

        answer = self.until("/taskmanagers", ready)
        return next(
            (one, slot)
            for one in answer["taskmanagers"]
            for slot in one["slots"]
            if slot["state"] == "busy"
        )

    def main_pid(self) -> int:
        """Return the process of ``main``, as it has noted in ``main.pid``."""
        return int((self.place / "main.pid").read_text())

    # --- files ------------------------------------------------------------------------------------

    def lines(self, name: str) -> list[str]:
        """Return the lines of a file that the application writes; none if it is not there."""
        return lines(self.place, name)

    def grown(self, name: str, count: int, patience_s: float = PATIENCE_S) -> list[str]:
        """Wait until a file has that many lines."""
        deadline = time.monotonic() + patience_s
        while len(lines := self.lines(name)) < count:
            if time.monotonic() > deadline or self._is_over():
                raise GoneError(f"{name} has {len(lines)} lines, not {count}\n{self.story()}")
            time.sleep(0.005)
        return lines

    def until_line(
        self, name: str, holds: Callable[[str], bool], patience_s: float = PATIENCE_S
    ) -> None:
        """Wait until a line of a file holds."""
        deadline = time.monotonic() + patience_s
        while not any(holds(line) for line in self.lines(name)):
            if time.monotonic() > deadline or self._is_over():
                raise GoneError(f"{name} has no such line\n{self.story()}")
            time.sleep(0.005)

    def said(self, words: str, patience_s: float = PATIENCE_S) -> None:
        """Wait until the command has told a person something."""
        deadline = time.monotonic() + patience_s
        while words not in self.log.read_text(errors="replace"):
            if time.monotonic() > deadline:
                raise GoneError(f"{words!r} was not said\n{self.story()}")
            time.sleep(0.005)

    def _is_over(self) -> bool:
        return self.process.poll() is not None

    def release(self) -> None:
        """Let the long job end."""
        (self.place / "go").touch()


quorum = ""
"""The ZooKeeper servers that all journeys use; empty for those of the default backend."""

kubeconfig = ""
"""The kubeconfig of the API server that all journeys use; empty for those of another backend."""

bucket = ""
"""The URL below which all journeys keep their data; empty where that is a local directory."""


def lines(place: Path, name: str) -> list[str]:
    """Return the lines of a file that an application writes; none if it is not there."""
    try:
        return (place / name).read_text().splitlines()
    except FileNotFoundError:
        return []


def environment(place: Path) -> dict[str, str]:
    """Return the environment of a command: its state lies in the test's place."""
    kept = {key: text for key, text in os.environ.items() if not key.startswith("UNDERSTUDY_")}
    if directory := _configured(place):
        kept["UNDERSTUDY_CONF_DIR"] = str(directory)
    return {**kept, "XDG_STATE_HOME": str(place / "state"), "PYTHONUNBUFFERED": "1"}


def configurations() -> Path:
    """Return below which directory the configurations of this test run lie."""
    return Path(tempfile.gettempdir(), f"understudy-journeys-{os.getpid()}")


def configured_for_zookeeper(place: Path) -> Path:
    """Return a configuration directory with which commands use the quorum, each place its part."""
    directory = configurations() / _part(place)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.yaml").write_text(
        "high-availability:\n"
        "  type: zookeeper\n"
        "  zookeeper:\n"
        f"    quorum: {quorum}\n"
        f"    path.root: /{_part(place)}\n"
        + (f"  storageDir: {storage(place)}\n" if bucket else "")
    )
    return directory


def _configured_for_kubernetes(place: Path) -> Path:
    """Return a configuration directory with which commands use the API server."""
    directory = configurations() / _part(place)
    if not directory.exists():
        kubernetes.create_namespace(kubeconfig, _namespace(place))
        directory.mkdir(parents=True)
        (directory / "config.yaml").write_text(
            "high-availability.type: kubernetes\n"
            f"kubernetes.config.file: {kubeconfig}\n"
            f"kubernetes.namespace: {_namespace(place)}\n"
            + (f"high-availability.storageDir: {storage(place)}\n" if bucket else "")
        )
    return directory


def _configured(place: Path) -> Path | None:
    """Return the configuration directory of the chosen backend; None if it needs none."""
    if kubeconfig:
        return _configured_for_kubernetes(place)
    return configured_for_zookeeper(place) if quorum else None


def _namespace(place: Path) -> str:
    """Return the namespace in which a test has its clusters."""
    return f"test-{_part(place)}"


def configuration(place: Path, settings: Mapping[str, str]) -> Configuration:
    """Return what a command there would be configured with."""
    return load_configuration(
        _configured(place), [f"{key}={text}" for key, text in settings.items()]
    )


def command(place: Path, *arguments: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; check its exit code unless None is given."""
    return program(place, *COMMAND, *arguments, code=code)


def python(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script under plain Python to its end; check that it succeeds."""
    return program(place, sys.executable, *arguments)


def program(place: Path, *arguments: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; check its exit code unless None is given."""
    done = subprocess.run(
        arguments,
        cwd=place,
        env=environment(place),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    if code is not None:
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stderr[-4000:]}"
    return done


def storage(place: Path) -> str:
    """Return the storage directory of a cluster that is started there without saying one."""
    return f"{bucket}/{_part(place)}" if bucket else str(place / "state" / "understudy" / "ha")


def stored(place: Path) -> list[str]:
    """Return every file and directory in the storage directory, and every node of the register."""
    local = place / "state" / "understudy" / "ha"
    found = {str(path.relative_to(local)) for path in local.rglob("*")}
    if bucket:
        found |= set(open_storage(storage(place)).sizes(""))
    if kubeconfig:
        found |= set(kubernetes.entries(kubeconfig, _namespace(place)))
    return sorted(found | set(_znodes(f"/{_part(place)}")))


def _znodes(part: str) -> list[str]:
    if not quorum:
        return []
    client = KazooClient(quorum)
    client.start()
    try:
        return [path.removeprefix(f"{part}/") for path in _below(client, part)]
    finally:
        client.stop()
        client.close()


def _below(client: KazooClient, path: str) -> Iterator[str]:
    with contextlib.suppress(NoNodeError):
        for name in client.get_children(path):
            yield f"{path}/{name}"
            yield from _below(client, f"{path}/{name}")


def _part(place: Path) -> str:
    """Return the node of the quorum below which a test has its clusters."""
    return hashlib.sha256(str(place).encode()).hexdigest()[:12]


def descendants_of(pids: set[int]) -> set[int]:
    """Return the living processes that descend from these, themselves included."""
    found = {pid for pid in pids if Path(f"/proc/{pid}").exists()}
    while True:
        more = {pid for pid in _processes() if parent(pid) in found} - found
        if not more:
            return found
        found |= more


def processes_of(place: Path) -> dict[int, str]:
    """Return all processes whose environment names this place: ours, whatever became of them."""
    mark = f"XDG_STATE_HOME={place / 'state'}".encode()
    found = {}
    for pid in _processes():
        with contextlib.suppress(OSError):
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
                found[pid] = line.decode(errors="replace")[:200]
    return found


def _processes() -> Iterator[int]:
    return (int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit())


def parent(pid: int) -> int:
    """Return the process that a process descends from; 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def end(run: Run) -> None:
    """End a run that a test has left behind, with everything that belongs to it."""
    if run.process.poll() is None:
        run.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.process.wait(20)
    for pid in processes_of(run.place):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        run.process.wait(5)
    if run.process.stdout:
        run.process.stdout.close()


def kill(pids: Iterable[int]) -> None:
    """Kill processes as at one moment: all are stopped first, so that none sees another's death."""
    pids = list(pids)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def thaw(pids: Iterable[int]) -> None:
    """Let processes go on that were stopped, those that are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def put_app(place: Path, name: str) -> Path:
    """Copy one of the applications in ``apps`` into a test's place."""
    source = Path(__file__).parent / "apps" / name
    return Path(shutil.copy(source, place / name))
