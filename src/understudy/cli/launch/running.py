"""A cluster of this machine from its start to its end, as a command shows it.

At the end of a closed run stands the command that resumes the run, with its prospect. A durable
cancel request outlives the cluster: the next start of the run ends it as CANCELED.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import signal
import sys
import time
from typing import Any

import typer

from understudy.cli.launch.cluster import ClusterPlan, LocalCluster
from understudy.cli.launch.compose import EXIT_CODES, open_services
from understudy.cli.launch.notify import notifier
from understudy.cli.launch.show import LiveView, PlainView
from understudy.cli.launch.story import Event, Story
from understudy.config import options
from understudy.config.configuration import redact
from understudy.config.secrets import masked_words
from understudy.errors import UnderstudyError
from understudy.ha.registry import application_document
from understudy.model import ApplicationStatus
from understudy.process.printed import is_terminal

LOOK_S = 3.0
"""How long an interrupted command waits for the register's record of the run."""

GOES_ON = "the data is kept; this continues where it stopped:"
CANCELED = "the run is to be cancelled, durably: nothing of it continues; this ends it as CANCELED:"
UNKNOWN = "the data is kept, the register does not answer: this continues, or ends as CANCELED:"


def print_resume(plan: ClusterPlan, story: Story, *, began: bool) -> None:
    """Print the command that resumes the run.

    Nothing is printed if the cluster never ``began``: the same command would fail again.
    """
    if not began and not story.application_id:
        return
    prospect = _prospect(plan, story)
    typer.echo(f"understudy: {prospect}", err=True)
    run_id = story.run_id or plan.run_id
    settings: dict[str, Any] = {
        **plan.configuration.settings,
        options.CLUSTER_ID.key: plan.cluster_id,
        options.STORAGE_DIR.key: plan.configuration.storage_dir,
    }
    further = plan.configuration.get(options.REDACTED_KEYS)
    shown = redact(settings, further)
    chosen = [word for key, value in shown.items() for word in ("-D", f"{key}={value}")]
    command = ["understudy", "run-application", "--run-id", run_id, *chosen]
    hides = shown != settings
    if spec := plan.application:
        conf, words = redact(spec.conf, further), masked_words([spec.app, *spec.args])
        for key, value in conf.items():
            command += ["--conf", f"{key}={value}"]
        if spec.py_files:
            command += ["--py-files", ",".join(spec.py_files)]
        if spec.requirements:
            command += ["--requirements", spec.requirements]
        if spec.overruled:
            command += ["--as", spec.runs_as.value]
        if spec.python:
            command += ["--python", spec.python]
        command += ["-m", *words] if spec.is_module else words
        hides |= (conf, words) != (spec.conf, [spec.app, *spec.args])
    else:
        command.append("--resume")
    typer.echo(f"  {shlex.join(command)}", err=True)
    if prospect == GOES_ON:
        typer.echo("understudy: this ends the run for good, and drops what it has kept:", err=True)
        typer.echo(f"  {shlex.join(['understudy', 'cancel', *chosen, run_id])}", err=True)
    if hides:
        typer.echo("understudy: fill in the secrets, which are not shown", err=True)


def _prospect(plan: ClusterPlan, story: Story) -> str:
    """Return the sentence on what the command will do."""
    if story.status == ApplicationStatus.CANCELING.value:
        return CANCELED
    try:
        wanted = asyncio.run(_is_to_be_cancelled(plan, story.run_id or plan.run_id))
    except (OSError, TimeoutError, UnderstudyError):
        return UNKNOWN
    return CANCELED if wanted else GOES_ON


async def _is_to_be_cancelled(plan: ClusterPlan, run_id: str) -> bool:
    """Return whether a durable cancel request exists; its leader may have died unheard."""
    services = open_services(plan.configuration, plan.cluster_id)
    async with asyncio.timeout(LOOK_S):
        registry = await services.registry.read()
        for application, link in (registry.applications if registry else {}).items():
            if link.run_id == run_id:
                document = application_document(services.register, link.document, application)
                body = await document.read()
                return body is not None and body.cancel_requested
    return False


def run_cluster(plan: ClusterPlan, *, as_json: bool) -> int:
    """Run a cluster until its application has ended or a person ends it; return the exit code."""
    story = Story(time.time, own=plan.run_id)
    live = LiveView(story) if is_terminal(sys.stderr) and not as_json else None
    view = live or PlainView(sys.stdout if as_json else None)

    def show(event: Event) -> None:
        view.show(event)
        posts.tell(event)

    cluster = LocalCluster(plan, story, show)
    with live or contextlib.nullcontext(), notifier(plan.configuration, cluster.log) as posts:
        asyncio.run(cluster.run())
    if not story.finished:
        if asyncio.run(cluster.continues_elsewhere()):
            typer.echo(f"understudy: run {plan.run_id} continues without this start", err=True)
        elif not plan.configuration.is_standalone:
            print_resume(plan, story, began=not cluster.is_broken)
    if story.finished and not plan.configuration.get(options.SHUTDOWN_ON_FINISH):
        return EXIT_CODES[ApplicationStatus(story.status)]  # It ended before the cluster.
    if cluster.interrupts:
        return 128 + signal.SIGINT
    if cluster.closed_by:
        return 128 + cluster.closed_by
    return EXIT_CODES[ApplicationStatus(story.status)] if story.finished else 1
