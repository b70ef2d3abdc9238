"""The command that goes on where a closed run stopped, and what it will come to.

A wish to cancel that is durable outlives the cluster: whoever starts the run again ends it.
"""

from __future__ import annotations

import asyncio
import shlex
from typing import Any

import typer

from understudy.cli.launch.cluster import ClusterPlan
from understudy.cli.launch.compose import open_services
from understudy.cli.launch.story import Story
from understudy.config import options
from understudy.config.configuration import redact
from understudy.config.secrets import masked_words
from understudy.errors import UnderstudyError
from understudy.ha.registry import application_document
from understudy.model import ApplicationStatus

LOOK_S = 3.0
"""How long a person who wants all to end at once waits for what the register says of the run."""

GOES_ON = "the data is kept; this goes on where it stopped:"
CANCELED = "the run is to be cancelled, durably: nothing of it goes on; this ends it as CANCELED:"
UNKNOWN = "the data is kept, the register does not answer: this goes on, or ends as CANCELED:"


def print_resume(plan: ClusterPlan, story: Story, *, began: bool) -> None:
    """Print the command that goes on where this one stopped.

    A cluster that never ``began`` would not begin with the same command either.
    """
    if not began and not story.application_id:
        return
    typer.echo(f"understudy: {_prospect(plan, story)}", err=True)
    spec = plan.application
    command = ["understudy", "run-application", "--run-id", story.run_id or plan.run_id]
    settings: dict[str, Any] = {
        **plan.configuration.settings,
        options.CLUSTER_ID.key: plan.cluster_id,
        options.STORAGE_DIR.key: plan.configuration.storage_dir,
    }
    further = plan.configuration.get(options.REDACTED_KEYS)
    shown, conf = redact(settings, further), redact(spec.conf, further)
    for key, value in shown.items():
        command += ["-D", f"{key}={value}"]
    for key, value in conf.items():
        command += ["--conf", f"{key}={value}"]
    if spec.py_files:
        command += ["--py-files", ",".join(spec.py_files)]
    words = masked_words([spec.app, *spec.args])
    command += words
    typer.echo(f"  {shlex.join(command)}", err=True)
    if (shown, conf, words) != (settings, spec.conf, [spec.app, *spec.args]):
        typer.echo("understudy: fill in the secrets, which are not shown", err=True)


def _prospect(plan: ClusterPlan, story: Story) -> str:
    """Return what the command will come to."""
    if story.status == ApplicationStatus.CANCELING.value:
        return CANCELED
    try:
        wanted = asyncio.run(_is_to_be_cancelled(plan, story.run_id or plan.run_id))
    except (OSError, TimeoutError, UnderstudyError):
        return UNKNOWN
    return CANCELED if wanted else GOES_ON


async def _is_to_be_cancelled(plan: ClusterPlan, run_id: str) -> bool:
    """Say whether the wish to cancel the run is durable; a leader may have died before it said."""
    services = open_services(plan.configuration, plan.cluster_id)
    async with asyncio.timeout(LOOK_S):
        registry = await services.registry.read()
        for application, link in (registry.applications if registry else {}).items():
            if link.run_id == run_id:
                document = application_document(services.register, link.document, application)
                body = await document.read()
                return body is not None and body.cancel_requested
    return False
