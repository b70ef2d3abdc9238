"""A cluster of this machine from its start to its end, as a command shows it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time

import typer

from understudy.cli.launch.cluster import ClusterPlan, LocalCluster
from understudy.cli.launch.compose import EXIT_CODES
from understudy.cli.launch.notify import notifier
from understudy.cli.launch.resuming import print_resume
from understudy.cli.launch.show import LiveView, PlainView
from understudy.cli.launch.story import Event, Story
from understudy.config import options
from understudy.model import ApplicationStatus
from understudy.process.printed import is_terminal


def run_cluster(plan: ClusterPlan, *, as_json: bool) -> int:
    """Run a cluster until its application has ended or a person ends it; return the exit code."""
    story = Story(time.time)
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
