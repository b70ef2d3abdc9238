"""Which Python the processes of an application start with, as one process of ours knows it.

An application without requirements, and without an interpreter in its archives, has the cluster's.
Any other has an environment on each host, built once for the same content, interpreter and
PySpark, shared by all processes of the host, and removed with its last user
(`environment_store`). A build is a guarded process (`environment_builder`): it has a deadline, and
is killed when nobody waits for it any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib
import logging
import os
import platform
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from understudy.clock import Clock
from understudy.config.options import ENVIRONMENT_TIMEOUT
from understudy.config.secrets import masked
from understudy.errors import EnvironmentFailed
from understudy.model import ApplicationId, Artifact, Incarnation
from understudy.process import environment_store, given_files, requirements
from understudy.process.environment_store import REPORT_BYTES_MAX, EnvironmentOrder
from understudy.process.processes import Death, Processes, Spec

UNNEEDED = "nobody waits for the environment any more"

_log = logging.getLogger(__name__)


class Ground(NamedTuple):
    """What the processes of an application stand on, on this host."""

    directory: str = ""
    """Of its code; empty without code."""
    python: str = sys.executable


class LaidOut(NamedTuple):
    """What decides on the Python of an application: its code on this host, and its settings."""

    directory: str
    """Empty without code."""
    artifacts: Sequence[Artifact]
    conf: Mapping[str, str]
    """Spark's settings, which may name an interpreter in an archive."""


class Interpreters(Protocol):
    """Where the interpreters of applications come from."""

    async def python_for(self, user: ApplicationId, laid_out: LaidOut) -> str:
        """Return the interpreter of an application.

        Raises `EnvironmentFailed`, after minutes perhaps. The application uses what is returned
        until `leave`.
        """
        ...

    async def leave(self, user: ApplicationId) -> None:
        """Let go of what an application has used; none of its processes lives."""
        ...

    async def close(self) -> None:
        """Let go of everything."""
        ...


class OneInterpreter:
    """All applications have the interpreter of this process."""

    async def python_for(self, user: ApplicationId, laid_out: LaidOut) -> str:
        """See `Interpreters.python_for`."""
        return sys.executable

    async def leave(self, user: ApplicationId) -> None:
        """See `Interpreters.leave`."""

    async def close(self) -> None:
        """See `Interpreters.close`."""


ONE_INTERPRETER = OneInterpreter()


@dataclass(frozen=True)
class EnvironmentSettings:
    """How environments are built."""

    base: Path
    """The directory of all environments on this host."""
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    timeout_s: float = 900.0


@dataclass(eq=False)
class _Used:
    """An environment that applications of this process use."""

    order: EnvironmentOrder
    users: set[ApplicationId] = field(default_factory=set)
    lock: asyncio.Task[int] | None = None
    building: asyncio.Task[str] | None = None
    waiting: int = 0


class Environments:
    """The environments of this host; see `Interpreters`."""

    def __init__(self, settings: EnvironmentSettings, processes: Processes, clock: Clock) -> None:
        self._settings = settings
        self._processes = processes
        self._clock = clock
        self._used: dict[str, _Used] = {}
        self._ending: set[asyncio.Task[None]] = set()

    async def python_for(self, user: ApplicationId, laid_out: LaidOut) -> str:
        """See `Interpreters.python_for`."""
        order = await asyncio.to_thread(order_for, self._settings, laid_out)
        if order is None:
            return sys.executable
        used = self._used.setdefault(order.name, _Used(order))
        used.users.add(user)
        while used.building and used.building.cancelling() and not used.building.done():
            await asyncio.wait({used.building})  # Its builder is being killed.
        if used.building is None or used.building.done():
            used.building = asyncio.create_task(self._whole(used))
            used.building.add_done_callback(_note_failure)
        building = used.building
        used.waiting += 1
        try:
            return await asyncio.shield(building)
        finally:
            used.waiting -= 1
            if not used.waiting:
                _cancel(building)

    async def leave(self, user: ApplicationId) -> None:
        """See `Interpreters.leave`."""
        for name, used in list(self._used.items()):
            used.users.discard(user)
            if not used.users:
                del self._used[name]
                await asyncio.shield(self._end(used))

    async def close(self) -> None:
        """See `Interpreters.close`."""
        while self._used:
            self._end(self._used.popitem()[1])
        await asyncio.gather(*self._ending)

    async def sweep(self) -> None:
        """Remove what killed processes have left on this host."""
        await asyncio.to_thread(environment_store.sweep, self._settings.base)

    def _end(self, used: _Used) -> asyncio.Task[None]:
        """Let go of an environment in a task, which `close` waits for, too."""
        task = asyncio.create_task(self._let_go(used))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    async def _let_go(self, used: _Used) -> None:
        if used.building:
            _cancel(used.building)
            await asyncio.wait({used.building})
        if used.lock:
            lock = (await asyncio.gather(used.lock, return_exceptions=True))[0]
            if isinstance(lock, int):
                name = used.order.name
                await asyncio.to_thread(environment_store.release, self._settings.base, name, lock)

    async def _whole(self, used: _Used) -> str:
        base, name = self._settings.base, used.order.name
        if used.lock is None or (used.lock.done() and used.lock.exception()):
            used.lock = asyncio.create_task(asyncio.to_thread(environment_store.hold, base, name))
        lock = await asyncio.shield(used.lock)
        for built in (False, True):
            found = await asyncio.to_thread(environment_store.whole, base, name)
            if found or built:
                break
            await self._build(used.order, lock)
        if not found:
            raise EnvironmentFailed(
                f"the Python environment in {base / name} was damaged as soon as it was built: see "
                "what removes files there, or set io.tmp.dirs to another directory"
            )
        return found

    async def _build(self, order: EnvironmentOrder, lock: int) -> None:
        """Run the builder; it holds the lock as well, so that nobody removes what it builds."""
        name = order.name
        reader, writer = os.pipe()
        try:
            try:
                _log.info("a Python environment is built: %s", name)
                process = await self._processes.start(
                    _builder(msgspec.structs.replace(order, report=writer), lock),
                    lambda text: _log.info("environment %s: %s", name[:8], masked(text)),
                )
            finally:
                os.close(writer)
            process.until(self._clock.now() + self._settings.timeout_s)
            try:
                death = await asyncio.shield(process.death)
            except asyncio.CancelledError:
                process.kill(UNNEEDED)
                await asyncio.shield(process.death)  # At most as long as a guardian is waited for.
                raise
            if death.code or death.signal:
                raise EnvironmentFailed(self._why(order, death, _said(reader)))
        finally:
            os.close(reader)

    def _why(self, order: EnvironmentOrder, death: Death, said: str) -> str:
        what = "requirements" if order.requirements else Path(order.archive).name
        begin = f"the Python environment of the application ({what}) cannot be built"
        if death.reason != "ended":
            limit = f"{ENVIRONMENT_TIMEOUT.key} is {self._settings.timeout_s:g} s"
            return f"{begin}: the build {death}; {limit}"
        return masked(f"{begin}: {said or f'the build {death}'}")


def _builder(order: EnvironmentOrder, lock: int) -> Spec:
    """Return the process that builds, with the descriptors that it inherits."""
    assert order.report is not None
    return Spec(
        name=f"environment-{order.name[:8]}",
        incarnation=Incarnation(uuid.uuid4().hex),
        argv=(
            *(sys.executable, "-P", "-m", "understudy.process.environment_builder"),
            msgspec.json.encode(order).decode(),
        ),
        env={"PYTHONUNBUFFERED": "1"},
        fds=(lock, order.report),
    )


def _said(pipe: int) -> str:
    """Return what a process that is dead has written."""
    os.set_blocking(pipe, False)
    with contextlib.suppress(BlockingIOError):
        return os.read(pipe, REPORT_BYTES_MAX).decode(errors="replace")
    return ""


def brings_python(artifacts: Iterable[Artifact], conf: Mapping[str, str]) -> bool:
    """Return whether an application has an environment of its own."""
    has_requirements = any(one.name == requirements.PLACE for one in artifacts)
    return has_requirements or given_files.packed_python(conf) is not None


def order_for(settings: EnvironmentSettings, laid_out: LaidOut) -> EnvironmentOrder | None:
    """Return the environment of an application; None where it has the cluster's interpreter."""
    directory, artifacts, conf = laid_out
    stored = {one.name: one for one in artifacts}
    base = str(settings.base)
    if requirements.PLACE in stored:
        how = (settings.find_links, settings.no_index)
        name = _name(stored[requirements.PLACE].digest, how)
        file = f"{directory}/{requirements.PLACE}"
        return EnvironmentOrder(base, name, requirements=file, find_links=how[0], no_index=how[1])
    packed = given_files.packed_python(given_files.resolved(conf, directory, stored.values()))
    if packed is None:
        return None
    if one := stored.get(packed.place):
        name = _name(one.digest, (packed.program,))
    else:
        found = Path(packed.archive).stat()
        content = (packed.archive, found.st_size, found.st_mtime_ns, packed.program)
        name = _name("", content)
    return EnvironmentOrder(base, name, archive=packed.archive, program=packed.program)


def _name(digest: str, further: tuple[object, ...]) -> str:
    """Return what an environment is called: the same only where another would be equal."""
    about = (
        digest,
        further,
        sys.version,
        platform.platform(),
        sys.prefix,
        sorted(_versions_of_cluster().items()),
    )
    return hashlib.sha256(msgspec.json.encode(about)).hexdigest()[:24]


def _versions_of_cluster() -> dict[str, str]:
    lines = importlib.import_module("understudy.process.requirement_lines")
    found: dict[str, str] = lines.of_cluster()
    return found


def _cancel(building: asyncio.Task[str]) -> None:
    """Cancel a build, once: a second time it would not wait for the end of its builder."""
    if not building.cancelling():
        building.cancel()


def _note_failure(building: asyncio.Task[str]) -> None:
    """Take the failure of a build that nobody waits for any more."""
    if not building.cancelled() and building.exception():
        _log.warning("%s", building.exception())
