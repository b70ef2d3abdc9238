"""Check that slots and spare drivers fit into this machine's memory."""

from __future__ import annotations

from pathlib import Path

from understudy.config import Configuration, options
from understudy.errors import ConfigurationError

DRIVER_BYTES = 512 << 20
"""Memory of a warm driver: a JVM that has run one query, and its Python (measured)."""


def machine_bytes() -> int:
    """Return the memory of this machine, or of the control group that bounds us."""
    total = 0
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            total = int(line.split()[1]) << 10
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(limit).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            total = min(total, int(text))
    return total


def check_drivers_fit(configuration: Configuration, taskmanagers: int = 1) -> None:
    """Raise `ConfigurationError` where the drivers do not fit into memory."""
    if configuration.get(options.DRIVER_KIND) != "spark":
        return
    slots, spares = configuration.get(options.SLOTS), configuration.get(options.SPARES)
    drivers = (slots + spares) * taskmanagers
    available = machine_bytes()
    if available and drivers * DRIVER_BYTES > available:
        raise ConfigurationError(
            f"{drivers} drivers ({taskmanagers} TaskManager(s) with {slots} slot(s) and {spares} "
            f"spare(s)) need about {drivers * DRIVER_BYTES >> 20} MB, this machine has "
            f"{available >> 20} MB: lower --slots or {options.SPARES.key}"
        )
