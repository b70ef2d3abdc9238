"""``python -m tests.journeys.scale.fleet COUNT``: many TaskManagers in one process.

Each is the shipped one with a link, a liveness lock and drivers of its own. Only their drivers'
processes are simulated, by threads at the other end of the drivers' real channels.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from understudy.cli.commands.common import DEFAULT_CLUSTER_ID
from understudy.cli.launch.compose import open_services
from understudy.cli.launch.spec import lock_of
from understudy.clock import SystemClock
from understudy.config.configuration import Configuration, load_configuration
from understudy.driver.attempt import Attempt
from understudy.driver.checkpointing import LinkRecorder
from understudy.ha.retrieval import retrieve
from understudy.ha.services import HighAvailabilityServices
from understudy.model import Incarnation
from understudy.process import channels
from understudy.process.processes import Death, Output, Spec
from understudy.process.reporter import Silent
from understudy.process.worker import GuardianLink
from understudy.rpc import messages, wire
from understudy.rpc.gateway import Link
from understudy.rpc.messages import AttemptEnded, DriverMessage, LinkMessage
from understudy.taskmanager.driver_pool import PoolSettings
from understudy.taskmanager.task_manager import (
    Identity,
    TaskManager,
    TaskManagerContext,
    TaskManagerSettings,
)

LEASE_S, ORPHAN_S, HEARTBEAT_S = 15.0, 30.0, 5.0
"""As by default."""


class Simulated:
    """The process of a driver, in this one; see `Process`."""

    guardian_pid = 0
    pid = 0

    def __init__(self, incarnation: Incarnation) -> None:
        self.incarnation = incarnation
        self.death: asyncio.Future[Death] = asyncio.get_running_loop().create_future()

    def until(self, deadline: float) -> None:
        """See `Process.until`."""

    def stop(self, grace_s: float) -> None:
        """See `Process.stop`."""
        self.kill("it was stopped")

    def kill(self, reason: str) -> None:
        """See `Process.kill`."""
        if not self.death.done():
            self.death.set_result(Death(137, 9, SystemClock().now(), reason))

    async def started(self) -> None:
        """See `Process.started`."""


class SimulatedDrivers:
    """Starts drivers that run the stored plans, each in a thread; see `Processes`."""

    def __init__(self, services: HighAvailabilityServices, threads: ThreadPoolExecutor) -> None:
        self._storage = services.storage.blocking
        self._threads = threads
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, spec: Spec, output: Output | None) -> Simulated:
        """See `Processes.start`."""
        [descriptor] = spec.fds
        end = socket.socket(fileno=os.dup(descriptor))
        link = await wire.over_socket(end, channels.driver_codec, spec.incarnation)
        process = Simulated(spec.incarnation)
        serving = asyncio.create_task(self._serve(link))
        self._tasks.add(serving)
        process.death.add_done_callback(lambda _: link.close())
        return process

    async def _serve(self, link: Link[DriverMessage]) -> None:
        while (envelope := await link.receive()) is not None:
            match envelope.message:
                case messages.StartSession():
                    link.send(messages.Warm())
                case messages.RunAttempt() as order:
                    deploy = order.deploy
                    entered = messages.Entered(job_id=deploy.job_id, attempt=deploy.attempt)
                    link.send(entered)
                    loop = asyncio.get_running_loop()
                    link.send(await loop.run_in_executor(self._threads, self._run, order))
                    link.send(messages.Warm())

    def _run(self, order: messages.RunAttempt) -> AttemptEnded:
        deploy = order.deploy
        attempt = Attempt(deploy, order.term, self._storage, SystemClock())
        recorder = LinkRecorder(_keeps_nothing, deploy.job_id, deploy.attempt, SystemClock())
        try:
            value = attempt.call(attempt.context(lambda: None, recorder), lambda value: value)
        except Exception as error:
            attempt.failed(error)
        else:
            attempt.finished(value)
        return attempt.stage()


def _keeps_nothing(message: messages.CheckpointsTaken) -> None:
    raise NotImplementedError("the jobs of a fleet keep nothing")


def taskmanager(
    number: int,
    configuration: Configuration,
    services: HighAvailabilityServices,
    threads: ThreadPoolExecutor,
) -> TaskManager:
    """Return one of the fleet, who holds its liveness lock until this process ends."""
    clock = SystemClock()
    incarnation = Incarnation(uuid.uuid4().hex)
    lock = Path(lock_of(configuration, DEFAULT_CLUSTER_ID, incarnation))
    lock.parent.mkdir(parents=True, exist_ok=True)
    fcntl.flock(os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC), fcntl.LOCK_EX)
    pool = PoolSettings("session-less", 1, 0, 30.0, 60.0, 5.0, services.storage.url, Path())
    network: wire.UnixNetwork[LinkMessage] = wire.UnixNetwork(channels.link_codec)
    return TaskManager(
        Identity(incarnation, f"taskmanager-{number}", os.getpid(), 0, "here", str(lock)),
        TaskManagerSettings(pool, services.locations.cluster, ORPHAN_S, HEARTBEAT_S),
        TaskManagerContext(
            SimulatedDrivers(services, threads),
            network,
            services.storage.blocking,
            clock,
            GuardianLink(None),
            Silent(),
            lambda: retrieve(services.register, clock, LEASE_S),
        ),
    )


async def main(count: int) -> None:
    """Be so many TaskManagers until killed."""
    directory = os.environ.get("UNDERSTUDY_CONF_DIR")
    configuration = load_configuration(Path(directory) if directory else None, ())
    services = open_services(configuration, DEFAULT_CLUSTER_ID)
    with ThreadPoolExecutor(count) as threads:
        fleet = [taskmanager(number, configuration, services, threads) for number in range(count)]
        await asyncio.gather(*(one.run() for one in fleet))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
