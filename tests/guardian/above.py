"""A worker that itself starts a guarded process, as JobManagers and TaskManagers do.

Tells what it knows, one JSON object a line: the pids below it, then each death.
"""

from __future__ import annotations

import asyncio
import json
import sys

from tests.guardian.ground import WORKER
from understudy.model import Incarnation
from understudy.process.processes import GuardedProcesses, Spec
from understudy.process.worker import GuardianLink


async def main() -> None:
    link = GuardianLink.from_environment()
    lines: asyncio.Queue[str] = asyncio.Queue()
    spec = Spec("below", Incarnation("below"), (*WORKER, *sys.argv[1:]))
    below = await GuardedProcesses(link.settle).start(spec, lines.put_nowait)
    await below.started()
    answers = [await lines.get() for order in sys.argv[1:] if order.startswith("fork")]
    told = {"guardian": below.guardian_pid, "worker": below.pid, "forked": [*map(int, answers)]}
    print(json.dumps(told), flush=True)
    death = await below.death
    print(json.dumps({"reason": death.reason}), flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
