"""Standing clusters on one host or many: understudy cluster start|stop|status.

conf/masters and conf/workers list the hosts. Each process runs in the background on its host, and
nothing here watches it. The start command may be repeated: it starts the missing processes.
"""

from __future__ import annotations

import asyncio
import sys
import uuid

import typer

from understudy.cli.commands.ask import print_json
from understudy.cli.commands.common import ConfigDir, Json, Overrides
from understudy.cli.commands.restoring import NewRun, Resume, restored_spec
from understudy.cli.commands.run import (
    PASS_THROUGH,
    answer_ended_run,
    checked_run_id,
    continued_run,
    read_registry,
    say_how_it_runs,
)
from understudy.cli.commands.standing import (
    StandingCluster,
    StartOrder,
    bring_up,
    check_hosts,
    described,
    end_all,
    last_run,
    leader_json,
    leader_of,
    print_rows,
    rows_of,
    status_of,
)
from understudy.cli.launch.flags import grouped
from understudy.cli.launch.hosts import is_this_host
from understudy.cli.launch.joining import check_first_job_id, refuse_session
from understudy.cli.launch.reaching import answer_to
from understudy.cli.launch.redeploying import AskedStart, changes_of, tell_continued
from understudy.cli.launch.spark_submit import check_configured
from understudy.cli.launch.spec import check_handed_on
from understudy.cli.launch.submitting import application_spec
from understudy.cli.launch.typed import TypedApp
from understudy.errors import UsageError
from understudy.jobmanager.redeployment import Changes
from understudy.process.given_files import check_storable


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(
        help="A cluster that stands on its own, on one host or many: conf/masters, conf/workers.",
        no_args_is_help=True,
    )
    group.command("start", context_settings=PASS_THROUGH)(start)
    group.command("stop")(stop)
    group.command("status")(status)
    group.command("member", hidden=True)(member)
    app.add_typer(group, name="cluster")


# --- start ----------------------------------------------------------------------------------------


@grouped
def start(
    typed: TypedApp,
    run: NewRun,
    resume: Resume = False,
    overrides: Overrides = None,
    config_dir: ConfigDir = None,
) -> None:
    """Start the missing processes of a cluster on all its hosts, and run APP there.

    Exit code: 0 all processes run, 1 some could not be started, 2 bad usage.
    """
    standing = described(config_dir, overrides)
    configuration = standing.configuration
    refuse_session(configuration)
    spec = application_spec(configuration, typed)
    check_configured(configuration, spec.conf)
    check_handed_on(configuration, spec)
    run_id = checked_run_id(run.run_id)
    check_hosts(standing)
    if standing.others:
        check_storable(spec.conf)
    here = [one for one in standing.masters if is_this_host(one.host)]
    if not here:
        raise UsageError(
            "this host is not in the masters file: start the cluster on one that is, as a "
            "JobManager there has to bring the application"
        )
    run_id, changes = _continued(standing, AskedStart(run_id, spec, resume=resume))
    check_first_job_id(configuration, standing.cluster_id, run_id)
    spec = restored_spec(spec, run.restore, configuration, standing.cluster_id)
    say_how_it_runs(spec)
    order = StartOrder(standing, run_id or uuid.uuid4().hex[:12], spec, changes)
    # The first JobManager brings the application and leads: the others find it.
    told = bring_up(order, here[0], "understudy cluster stop")
    typer.echo(f"cluster {standing.cluster_id!r} runs {order.run_id}: {len(told)} processes")
    if changes.over and not any(
        one.state == "started" and one.role == "jobmanager" and is_this_host(one.host)
        for one in told
    ):
        typer.echo(
            "understudy: the other code is not deployed, as the JobManagers of this host run "
            "already: stop the cluster, and start it again",
            err=True,
        )


def _continued(standing: StandingCluster, asked: AskedStart) -> tuple[str | None, Changes]:
    """Return the run to execute, and its changes; exit with the result of a run that has ended."""
    configuration, run_id = standing.configuration, asked.run_id
    registry = asyncio.run(read_registry(configuration, standing.cluster_id))
    changes = changes_of(configuration, standing.cluster_id, asked)
    if registry:
        answer_ended_run(configuration, standing.cluster_id, registry, run_id, as_json=False)
        run_id = continued_run(configuration, registry, run_id, resume=asked.resume)
        if run_id != asked.run_id:
            tell_continued(run_id)
    return run_id, changes


# --- stop -----------------------------------------------------------------------------------------


def stop(overrides: Overrides = None, config_dir: ConfigDir = None) -> None:
    """Stop all processes of a cluster on all its hosts; keep its data.

    Exit code: 0 all processes have ended, 1 otherwise.
    """
    standing = described(config_dir, overrides)
    end_all(standing)
    typer.echo(f"cluster {standing.cluster_id!r} is stopped; its data is kept")


# --- status ---------------------------------------------------------------------------------------


def status(
    overrides: Overrides = None, config_dir: ConfigDir = None, as_json: Json = False
) -> None:
    """Show the processes of a cluster: their hosts and states, the leader, the busy slots.

    Exit code: 0 all processes run, or no run is unfinished and nothing failed; 1 otherwise.
    """
    standing = described(config_dir, overrides)
    found = status_of(standing)
    leader = asyncio.run(leader_of(standing))
    rows = rows_of(standing, found, leader)
    missing = any(one.state == "missing" for one in found)
    over = asyncio.run(last_run(standing)) if missing and leader is None else ""
    if as_json:
        shown = {"cluster_id": standing.cluster_id, "leader": leader_json(leader)}
        print_json({**shown, "processes": rows})
    else:
        print_rows(rows, leader, over)
    fine = {"runs", "missing"} if over else {"runs"}
    sys.exit(0 if all(one.state in fine for one in found) else 1)


def member() -> None:
    """Carry out an order of `understudy cluster` on another host, read from standard input."""
    sys.stdout.write(answer_to(sys.stdin.buffer.read()) + "\n")
