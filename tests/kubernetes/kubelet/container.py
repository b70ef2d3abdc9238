"""One container of a pod: started, asked, ended and started again as its pod says."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.kubernetes.kubelet.probes import Probe, executed, got
from tests.kubernetes.kubelet.recipe import ConfigurationError, Recipe
from tests.kubernetes.kubelet.server import Unreachable
from tests.kubernetes.kubelet.status import ContainerState, now
from tests.kubernetes.kubelet.volumes import publish
from understudy.process import guardian

Object = dict[str, Any]

MARK = "KUBELET_CONTAINER"
"""The variable by which what a container has started is known, wherever it went: it has the
container's directory."""

RETRY_S = 0.5
"""After a start that its pod's configuration did not allow."""

BACKOFF_S, BACKOFF_MAX_S, SOUND_S = 0.5, 20.0, 10.0
"""Between a container's end and its next start: doubled each time, until it has run for the last of
these. A real kubelet begins with 10 s, and forgets after 10 minutes."""

KILL_POLL_S = 0.02


@dataclass(frozen=True)
class Place:
    """What a container knows of its pod."""

    address: str
    restart_policy: str
    grace_s: float
    directory: Path


class Container:
    """A container; ``prepare`` says what to run, ``changed`` is told when its state changes."""

    def __init__(
        self,
        spec: Object,
        place: Place,
        prepare: Callable[[Object], Awaitable[Recipe]],
        changed: Callable[[], None],
    ) -> None:
        self.spec = spec
        self.state = ContainerState(spec["name"], spec.get("image", ""))
        self._place = place
        self._prepare = prepare
        self._changed = changed
        self._directory: Path = place.directory / spec["name"]
        self._mark = str(self._directory)
        self._process: asyncio.subprocess.Process | None = None
        self._recipe: Recipe | None = None
        self._stopping = asyncio.Event()

    def log(self, previous: bool = False) -> Path:
        """Return where the output of the present run is, or of the one before it."""
        return self._directory / f"{self.state.restarts - previous}.log"

    def writes_to(self, log: Path) -> bool:
        """Return whether the present run may add to a log."""
        return log == self.log() and self.state.exit_code is None

    async def run(self) -> None:
        """Run it as often as its pod's restart policy says, or until `stop`."""
        self._directory.mkdir(parents=True, exist_ok=True)
        pause_s = BACKOFF_S
        while not self._stopping.is_set():
            try:
                recipe = self._recipe = await self._prepare(self.spec)
            except (ConfigurationError, Unreachable) as error:
                self._tell_waiting("CreateContainerConfigError", str(error))
                await self._pause(RETRY_S)
                continue
            if self._stopping.is_set():
                return
            began = time.monotonic()
            code = await self._once(recipe)
            if time.monotonic() - began > SOUND_S:
                pause_s = BACKOFF_S
            self._tell_ended(code)
            if self._stopping.is_set() or not self._is_started_again(code):
                return
            self.state.last = self.state.state
            self.state.restarts += 1
            self._tell_waiting("CrashLoopBackOff", f"starts again in {pause_s:g} s")
            await self._pause(pause_s)
            pause_s = min(2 * pause_s, BACKOFF_MAX_S)

    async def stop(self, grace_s: float) -> None:
        """End it: `preStop`, SIGTERM to its first process, SIGKILL to all after the grace."""
        self._stopping.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._pre_stop()
                await self._terminate()
        await self._kill_all()

    async def kill(self) -> None:
        """Kill it with all that it has started."""
        self._stopping.set()
        await self._kill_all()

    async def _once(self, recipe: Recipe) -> int:
        self.log().touch()
        try:
            with self.log().open("ab") as log:
                process = await asyncio.create_subprocess_exec(
                    *recipe.argv,
                    env={**recipe.environment, MARK: self._mark},
                    cwd=recipe.directory,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=_die_with_kubelet,
                )
        except OSError as error:  # no such program, or none that can be executed
            self.log().write_text(f"{recipe.argv[0]}: {error}\n")
            return 127
        self._process = process
        publish(self._directory / "pid", str(process.pid).encode())
        self.state.state = {"running": {"startedAt": now()}}
        self.state.ready = "readinessProbe" not in self.spec
        self._changed()
        probes = asyncio.create_task(self._ask(recipe))
        try:
            code = await process.wait()
        finally:
            probes.cancel()
        self._process = None
        await self._kill_all()
        return 128 - code if code < 0 else code

    async def _ask(self, recipe: Recipe) -> None:
        """Ask the container's probes until the process has ended."""
        if startup := self.spec.get("startupProbe"):
            started = asyncio.Event()

            def judge_start(good: bool) -> None:
                started.set() if good else self._signal(signal.SIGKILL)

            task = asyncio.create_task(self._probe(startup, recipe).run(judge_start))
            try:
                await started.wait()
            finally:
                task.cancel()
        async with asyncio.TaskGroup() as group:
            if readiness := self.spec.get("readinessProbe"):
                group.create_task(self._probe(readiness, recipe).run(self._judge_ready))
            if liveness := self.spec.get("livenessProbe"):
                group.create_task(self._probe(liveness, recipe).run(self._judge_alive))

    def _probe(self, spec: Object, recipe: Recipe) -> Probe:
        return Probe(spec, self.spec, recipe, self._place.address)

    def _judge_ready(self, good: bool) -> None:
        if self.state.ready != good:
            self.state.ready = good
            self._changed()

    def _judge_alive(self, good: bool) -> None:
        """End a run that is not alive; its pod's policy says whether there is another one."""
        if not good and (process := self._process) is not None:
            self._signal(signal.SIGTERM)
            loop = asyncio.get_running_loop()
            loop.call_later(self._place.grace_s, _kill, process)

    async def _pre_stop(self) -> None:
        hook = self.spec.get("lifecycle", {}).get("preStop")
        if hook is None or self._process is None or self._recipe is None:
            return
        if "exec" in hook:
            with contextlib.suppress(OSError):
                await executed(hook["exec"]["command"], self._recipe)
        elif "sleep" in hook:
            await asyncio.sleep(hook["sleep"]["seconds"])
        elif "httpGet" in hook:
            ports = {one.get("name"): one["containerPort"] for one in self.spec.get("ports", [])}
            with contextlib.suppress(httpx.HTTPError):
                await got(hook["httpGet"], self._place.address, ports)

    async def _terminate(self) -> None:
        if self._process is not None:
            self._signal(signal.SIGTERM)
            await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _kill_all(self) -> None:
        """Kill what carries the mark until nothing does: a process may fork before it is killed."""
        while kill_marked(self._mark):
            await asyncio.sleep(KILL_POLL_S)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    def _is_started_again(self, code: int) -> bool:
        policy = self._place.restart_policy
        return policy == "Always" or (policy == "OnFailure" and code != 0)

    def _tell_waiting(self, reason: str, message: str) -> None:
        self.state.state = {"waiting": {"reason": reason, "message": message}}
        self.state.ready = False
        self._changed()

    def _tell_ended(self, code: int) -> None:
        reason = "Error" if code else "Completed"
        ended = {"exitCode": code, "reason": reason, "finishedAt": now()}
        self.state.state = {"terminated": ended}
        self.state.ready = False
        self._changed()


def kill_marked(directory: str) -> int:
    """Kill each process of the containers in a directory; return how many there were."""
    found = [*marked(directory)]
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(found)


def marked(directory: str) -> Iterator[int]:
    """Yield the id of each process of the containers in a directory."""
    mark = f"{MARK}={directory}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            # A dead process, or somebody else's, has no environment that can be read.
            with contextlib.suppress(OSError):
                variables = (entry / "environ").read_bytes().split(b"\0")
                if any(one == mark or one.startswith(mark + b"/") for one in variables):
                    yield int(entry.name)


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()


def _die_with_kubelet() -> None:
    guardian.prctl(guardian.PR_SET_PDEATHSIG, signal.SIGKILL)
