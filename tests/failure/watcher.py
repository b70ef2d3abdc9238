"""Retrievals: ``python -m tests.failure.watcher SPEC`` notes each leader that is seen.

Some sessions, with several retrievals in each: ``sessions``, ``each``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path

from tests.failure.contender import open_cluster
from tests.failure.history import Pen
from understudy.clock import SystemClock
from understudy.ha.register import Register
from understudy.ha.retrieval import retrieve
from understudy.ha.services import BoundedRegister


async def watch(register: Register, pen: Pen, number: int, lease_s: float) -> None:
    """Note each change, for ever."""
    async for leader in retrieve(register, SystemClock(), lease_s):
        pen.note("seen", n=number, term=leader.term if leader else 0, rpc=leader and leader.rpc)


async def main() -> None:
    """Watch until killed."""
    spec = json.loads(sys.argv[1])
    logging.basicConfig(format="%(asctime)s %(name)s %(message)s", level=logging.WARNING)
    pen = Pen(Path(spec["history"]), f"watcher-{spec['host']}")
    sessions, each = spec.get("sessions", 1), spec.get("each", 1)
    registers = [BoundedRegister(open_cluster(spec["settings"])) for _ in range(sessions)]
    await asyncio.gather(
        *(
            watch(register, pen, place * each + n, spec["session_s"])
            for place, register in enumerate(registers)
            for n in range(each)
        )
    )


if __name__ == "__main__":
    asyncio.run(main())
