"""People who submit applications to a cluster that stays, again until that is acknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.hosts import SimProcess
from understudy.errors import LeadershipLost, SubmissionError
from understudy.jobmanager.submission import Submission
from understudy.model import RunId

if TYPE_CHECKING:
    from tests.sim.world import World

PAUSE_S = 5.0
"""How long whoever submits waits for an answer before asking again."""


def submit(world: World, run: RunId, priority: int) -> None:
    """Ask whoever leads to execute an application, and ask again unless that is acknowledged."""
    if run in world.submitted:
        return
    world.time.after(PAUSE_S, lambda: submit(world, run, priority))
    for process in world.leading():
        manager = world.managers[process.incarnation]
        if manager.term and manager.term.serves:
            world.tell(f"somebody asks {process.name} to execute {run}")
            process.machine.spawn(_ask(world, process, run, priority))
            return


async def _ask(world: World, process: SimProcess, run: RunId, priority: int) -> None:
    term = world.managers[process.incarnation].term
    if term is None:
        return
    configuration = {"application.priority": str(priority)}
    submission = Submission("flights", "app.py", "/app.py", (), "", (), configuration=configuration)
    try:
        await term.dispatcher.submit(submission, run)
    except LeadershipLost:
        return
    except SubmissionError as error:
        # An earlier answer was lost, and the application has ended meanwhile.
        world.watch.demand(run in world.known_runs(), f"{run} is refused: {error}")
    world.tell(f"{process.name} has acknowledged {run}")
    world.submitted.add(run)
