"""What befalls a cluster at moments drawn beforehand, and what a person does to it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tests.sim.hosts import SimProcess
from tests.sim.program import Blow
from understudy.errors import LeadershipLost
from understudy.runtime.application import Application

if TYPE_CHECKING:
    from tests.sim.world import World


def strike(world: World, blow: Blow) -> None:
    """Let it happen, if there is whom to strike."""
    until = min(world.time.now + blow.lasts_s, world.profile.faults_end)
    lasts = f"for {until - world.time.now:.1f} s"
    if blow.kind.endswith("is down"):
        service = blow.kind.split()[1]
        world.tell(f"{blow.kind} {lasts}")
        world.down[service] = max(world.down[service], until)
        return
    if blow.kind == "freeze a host":
        host = world.hosts[blow.target % len(world.hosts)]
        world.tell(f"{host.name} is frozen {lasts}")
        for process in [one for one in world.roots if one.host is host]:
            thaw = process.freeze(children=True)
            world.time.at(until, thaw)
        return
    target = _target(world, blow)
    if target is None:
        return
    if blow.kind.startswith("crash"):
        target.crash_now("by somebody's hand")
    elif blow.kind.startswith("pause"):
        world.pause(target, "by somebody's hand", until - world.time.now)
    elif blow.kind.startswith("freeze"):
        world.pause(target, "by somebody's hand", until - world.time.now, guardian=True)
    else:
        world.tell(f"{target.host.name} is cut off {lasts}")
        target.host.cut_until = max(target.host.cut_until, until)


def cancel(world: World) -> None:
    """Cancel the application, if somebody leads who knows it."""
    for process in world.leading():
        manager = world.managers[process.incarnation]
        application = manager.dispatcher.application if manager.dispatcher else None
        if application is None:
            continue

        world.tell(f"somebody asks {process.name} to cancel the application")
        world.watch.cancelled = True
        process.machine.spawn(_cancel(world, process, application))
        return


async def _cancel(world: World, process: SimProcess, application: Application) -> None:
    with contextlib.suppress(LeadershipLost):
        await application.cancel()
        world.tell(f"{process.name} has noted the wish to cancel")


def _target(world: World, blow: Blow) -> SimProcess | None:
    word = blow.kind.split()[2] if blow.kind.split()[1] == "a" else ""
    kind = {"JobManager": "jm", "TaskManager": "tm", "driver": "driver", "main": "main"}[word]
    roots = [one for one in world.roots if one.alive]
    children = [child for root in roots for child in root.children if child.alive]
    found = [one for one in (*roots, *children) if one.kind == kind]
    if kind == "jm" and blow.target % 4 and (leading := world.leading()):
        return leading[0]
    return found[blow.target % len(found)] if found else None
