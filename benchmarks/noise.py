"""How much of the machine others used while something was measured."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

IDLE = (3, 4)
"""Which numbers in the first line of ``/proc/stat`` are not work: idle, and waiting for a disk."""

GUEST = 8
"""From here on the numbers are counted a second time."""


@dataclass
class Foreign:
    """What others used, known once the block is over."""

    cores: float = 0.0


@contextlib.contextmanager
def measured() -> Iterator[Foreign]:
    """Measure what others use meanwhile; our own processes are all reaped by the block's end."""
    foreign = Foreign()
    began, busy, own = time.monotonic(), _busy_s(), _own_s()
    yield foreign
    used_s = (_busy_s() - busy) - (_own_s() - own)
    foreign.cores = max(0.0, used_s / (time.monotonic() - began))


def _busy_s() -> float:
    numbers = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    work = sum(number for at, number in enumerate(numbers[:GUEST]) if at not in IDLE)
    return work / os.sysconf("SC_CLK_TCK")


def _own_s() -> float:
    """Return the processor time of this process and of all descendants that were reaped."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system
