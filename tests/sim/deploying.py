"""A person who starts the unfinished run again: with other code, or to have a job run once more.

What the command works out is worked out here (`cli.redeploying`), and goes along to those that
take the place of the processes it starts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.sim.program import Deployment
from understudy.jobmanager.redeployment import NO_CHANGES, Changes
from understudy.jobmanager.submission import Submission
from understudy.model import ApplicationRecord, JobId

if TYPE_CHECKING:
    from tests.sim.world import World


@dataclass(frozen=True)
class Start:
    """With what a JobManager is started: the code, and what that changes."""

    version: int = 0
    changes: Changes = NO_CHANGES

    def submission(self, first: Submission) -> Submission:
        """Return what it would submit."""
        if not self.version:
            return first
        version = str(self.version)
        return replace(first, args=(*first.args, version), conf={"version": version})


def version_of(record: ApplicationRecord) -> int:
    """Return whose program a record executes."""
    return int(record.profile.conf.get("version", 0))


def deploy(world: World, deployment: Deployment) -> None:
    """Kill some JobManagers, and start others in their place."""
    watch = world.watch
    going_on = [one for one in watch.applications() if one.body.result is None]
    record = watch.record(going_on[0].body.record.path) if going_on else None
    if record is None:
        return
    version = min(deployment.version, len(world.profile.revised))
    over = going_on[0].body.record.digest if version != version_of(record) else ""
    rerun: dict[JobId, str] = {}
    if deployment.rerun:
        ended = [(key, job.result) for key, job in sorted(watch.jobs.items()) if job.result]
        rerun = {key: result.source.digest for key, result in ended[deployment.number :][:1]}
    changes = Changes(over, ("app.py",) if over else (), rerun)
    names = [watch.jobs[key].name for key in rerun]
    world.tell(
        f"somebody starts version {version} over version {version_of(record)}"
        + (f", and wants {', '.join(names)} again" if names else "")
    )
    watch.expect(changes)
    victims = [one for one in world.roots if one.alive and one.kind == "jm"]
    for victim in victims[: deployment.replaces]:
        world.starts[victim.incarnation] = Start(version, changes)
        victim.crash_now("to be replaced")
