"""What befalls a cluster at moments drawn beforehand, and what a person does to it."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING

from tests.sim.hosts import SimProcess
from tests.sim.program import DRIFT, LIMITS, RARE_BLOWS, SILENCE, Blow
from understudy.errors import LeadershipLost
from understudy.jobmanager.application import Application
from understudy.jobmanager.job_manager import JobManager

if TYPE_CHECKING:
    from tests.sim.world import World

WALL_JUMPS_S = (-2 * 86400.0, -600.0, 5.0, 3600.0, 2 * 86400.0, 10 * 86400.0)
"""The last is longer than the life of a tombstone, the one thing that a wall clock decides."""

LEADER_JUMPS_S = 20.0
"""Less than the adoption grace: a leader whose clock alone has jumped beyond it believes that
silent TaskManagers have had their time, and no clock tells it that they have not."""


def strike(world: World, blow: Blow) -> None:
    """Let it happen, if there is whom to strike."""
    until = min(world.time.now + blow.lasts_s, world.profile.faults_end)
    lasts = f"for {until - world.time.now:.1f} s"
    if blow.kind.endswith("is down"):
        service = blow.kind.split()[1]
        world.tell(f"{blow.kind} {lasts}")
        world.down[service] = max(world.down[service], until)
        return
    if blow.kind == SILENCE:
        world.tell(f"{blow.kind} {lasts}")
        world.silent_until = max(world.silent_until, until)
        return
    if blow.kind in RARE_BLOWS:
        _strike_host(world, blow)
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


def _strike_host(world: World, blow: Blow) -> None:
    """Let clocks or connections of a host go wrong."""
    chance = random.Random(f"blow {blow.at} {blow.target}")
    host = world.hosts[blow.target % len(world.hosts)]
    here = [one for one in world.processes() if one.host is host]
    match blow.kind.split():
        case ["the", "wall", *_]:
            jump_s = chance.choice(WALL_JUMPS_S)
            world.tell(f"the wall clock of {host.name} jumps by {jump_s:.0f} s")
            host.wall_offset += jump_s
            for process in here:
                process.machine.clock.wall_offset += jump_s
        case [*_, "ahead"]:
            # A standby whose clock alone jumps would not wait for the leader's lease.
            leading = world.leading()
            if any(one.kind == "jm" and one not in leading for one in here):
                return
            jump_s = chance.choice(LIMITS) * chance.uniform(0.4, 1.6)
            if leading and leading[0].host is host:
                jump_s = min(jump_s, LEADER_JUMPS_S)
            world.tell(f"the clock of {host.name} jumps by {jump_s:.1f} s")
            host.jump(jump_s)
            for process in here:
                process.machine.jump(jump_s)
                process.clock_changed()
        case [*_, "rate"]:
            rate = 1 + DRIFT * chance.uniform(-1, 1)
            world.tell(f"the clock of {host.name} runs {rate - 1:+.3f} from now on")
            host.drift(rate)
            for process in here:
                process.machine.drift(rate)
                process.clock_changed()
        case _:
            world.tell(f"the connections of {host.name} are reset")
            for link in sorted(world.links, key=lambda one: one.number):
                if link.touches(host):
                    link.reset()


def executed(manager: JobManager) -> Application | None:
    """Return the application that a JobManager executes, if it leads and has come so far."""
    linked = manager.term.dispatcher.applications.values() if manager.term else ()
    return next((one.application for one in linked if one.application), None)


def cancel(world: World) -> None:
    """Cancel the application, if somebody leads who knows it."""
    for process in world.leading():
        manager = world.managers[process.incarnation]
        application = executed(manager)
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
    found = [one for one in world.processes() if one.kind == kind]
    if kind == "jm" and blow.target % 4 and (leading := world.leading()):
        return leading[0]
    return found[blow.target % len(found)] if found else None
