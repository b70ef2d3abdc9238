"""The entry point of a JobManager process.

Run as ``python -m understudy.cli.launch.jobmanager_process`` under a guardian.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import random
import socket
from pathlib import Path

from understudy.api import endpoint
from understudy.api.authentication import RestSecurity
from understudy.cli.launch.compose import EXIT_CODES
from understudy.cli.launch.joining import shared_settings
from understudy.cli.launch.kubernetes_leader import provider_of, remove_deployment
from understudy.cli.launch.securing import network_of, rest_host, warn_of_open_token
from understudy.cli.launch.standalone import bind_rest, standing_alone
from understudy.cli.launch.story import reason_of
from understudy.cli.launch.submitting import submission_of
from understudy.cli.launch.worker import SHUT_DOWN, Parts, environments_of, main, running
from understudy.config import options
from understudy.core.lease import Timing
from understudy.errors import DataError, NotFoundError
from understudy.jobmanager.dispatcher import Binding
from understudy.jobmanager.job_manager import JobManager, JobManagerSettings
from understudy.jobmanager.main_process import WarmMainProcesses
from understudy.jobmanager.retention import read_tombstone
from understudy.jobmanager.surroundings import RunEnd, Surroundings
from understudy.model import LeaderRecord, RunId
from understudy.process import channels
from understudy.process.environments import Environments
from understudy.process.limits import Limit
from understudy.rpc.gateway import Network
from understudy.rpc.messages import LinkMessage


async def run(parts: Parts) -> int:
    """Run a JobManager until its run ends or the cluster is shut down; return the exit code."""
    async with standing_alone(parts.configuration, parts.services):
        return await _run_jobmanager(parts)


async def _run_jobmanager(parts: Parts) -> int:
    spec, configuration = parts.spec, parts.configuration
    listening = bind_rest(configuration)
    security = RestSecurity.of(configuration)
    warn_of_open_token(configuration, security)
    security.server()  # Bad certificates are refused at the start, not at the first request.
    network: Network[LinkMessage] = network_of(
        configuration, spec.cluster_id, channels.link_codec, is_jobmanager=True
    )
    url = endpoint.url_of(listening, rest_host(configuration), security)
    me = _leader_record(parts, url, network.address_of(spec.incarnation))
    identity = {
        "id": spec.name,
        "pid": me.pid,
        "guardian_pid": me.guardian_pid,
        "rest": me.rest,
    }
    reported = False

    def main_changed() -> None:
        nonlocal reported
        manager.main_changed()
        if mains.ready and not reported:
            reported = True
            parts.reporter.event("jobmanager-ready", **identity)

    mains = WarmMainProcesses(
        parts.processes,
        configuration.get(options.MAIN_HEARTBEAT),
        Path(spec.scratch),
        main_changed,
        Limit.of(parts.configuration, options.MAIN_MEMORY, options.MAIN_PROCESSES),
    )
    environments = environments_of(parts)
    manager = _job_manager(parts, me, mains, network, environments)
    serving = endpoint.served_once_asked(
        listening,
        "understudy.api.rest",
        lambda rest: rest.serving(manager, listening, security),
    )
    try:
        async with serving, running(mains.run()):
            parts.reporter.event("jobmanager-started", **identity)
            try:
                ended = await manager.run()
            finally:
                await environments.close()
            if ended:
                await _report_end(parts, ended)
            await remove_deployment(configuration, ended.run_id if ended else spec.run_id)
    except asyncio.CancelledError:
        parts.guardian.released()
        raise
    parts.guardian.released()
    return EXIT_CODES[ended.status] if ended else SHUT_DOWN


def _leader_record(parts: Parts, rest_url: str, rpc_address: str) -> LeaderRecord:
    """Return the record that this JobManager publishes as leader."""
    return LeaderRecord(
        holder=parts.spec.incarnation,
        term=0,
        session="",
        lease_s=Timing.of(parts.configuration).lease_s,
        name=parts.spec.name,
        pid=os.getpid(),
        guardian_pid=os.getppid(),
        host=socket.gethostname(),
        lock=parts.spec.lock,
        rest=rest_url,
        rpc=rpc_address,
        settings=shared_settings(parts.configuration),
    )


def _job_manager(
    parts: Parts,
    me: LeaderRecord,
    mains: WarmMainProcesses,
    network: Network[LinkMessage],
    environments: Environments,
) -> JobManager:
    spec, configuration = parts.spec, parts.configuration
    around = Surroundings(
        me.holder,
        me.name,
        me.rest,
        configuration,
        parts.services,
        mains,
        parts.locks,
        parts.reporter,
        parts.clock,
        random.Random(),  # noqa: S311 -- jitter, not secrets
        functools.partial(_report_end, parts),
        environments,
        provider_of(configuration, spec.cluster_id, os.environ),
    )
    binding = Binding(
        RunId(spec.run_id) if spec.run_id else None,
        spec.ephemeral,
        submission_of(spec.application, configuration) if spec.application else None,
        spec.changes,
        session=configuration.get(options.SESSION),
    )
    return JobManager(
        me,
        around,
        binding,
        JobManagerSettings.of(configuration),
        network,
        parts.guardian,
    )


async def _report_end(parts: Parts, ended: RunEnd) -> None:
    """Report the end of the run, with each of its jobs."""
    jobs: list[dict[str, object]] = []
    reason = None
    with contextlib.suppress(OSError, TimeoutError, DataError, NotFoundError):
        registry = await parts.services.registry.read()
        stone = registry.tombstones.get(ended.run_id) if registry else None
        if stone:
            file = await read_tombstone(parts.services, stone)
            reason = reason_of(file.result.failure)
            jobs = [
                {
                    "job_id": job.job_id,
                    "name": job.name,
                    "status": job.status.value,
                    "attempt": job.attempt,
                }
                for job in file.jobs
            ]
    parts.reporter.event(
        "application-finished",
        run_id=ended.run_id,
        status=ended.status.value,
        failure=reason,
        jobs=jobs,
    )


if __name__ == "__main__":
    main(run)
