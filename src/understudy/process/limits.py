"""What one process may use together with all its descendants; its guardian looks after that."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from understudy.config import Configuration
from understudy.config.option import Option

MEMORY, PROCESSES = "memory", "processes"

SHARE = 0.9
"""The share of the machine's memory that a driver may use unless an option says otherwise: one that
needs more is better ended and named than left to the kernel, which ends whom it likes."""

CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class Limit:
    """One limit."""

    what: str
    """`MEMORY`, in bytes, or `PROCESSES`, by number."""
    most: int
    option: str
    """The key of the option that sets it."""

    @staticmethod
    def of(
        configuration: Configuration, memory: Option[int], processes: Option[int]
    ) -> tuple[Limit, ...]:
        """Return what two options allow; without a size, most of the machine's memory."""
        size = configuration.find(memory)
        if size is None:
            size = int(machine_bytes() * SHARE)
        return (
            Limit(PROCESSES, configuration.get(processes), processes.key),
            Limit(MEMORY, size, memory.key),
        )


def machine_bytes() -> int:
    """Return the memory of this machine, or of the control group that bounds us."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for limit in CGROUPS:
        with contextlib.suppress(OSError, ValueError):  # "max": there is no limit.
            total = min(total, int(Path(limit).read_text()))
    return total
