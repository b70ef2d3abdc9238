"""The shutdown of a cluster by a request: one mark in the registry, which every process looks for.

The mark is durable before the request is answered, so the death of a leader in the middle changes
nothing: a JobManager looks at the registry when it is granted a term, a TaskManager when it loses
or changes its leader, and each of them ends by itself. A process that finds a mark at its start
ignores this mark: the cluster was started again.
"""

from __future__ import annotations

import asyncio

from understudy.model import RegistryBody


class Shutdown:
    """What one process knows of requests to shut its cluster down."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        """Set once this process must end, and keep all data."""
        self._at_start: str | None = None
        """The mark at the first look; None before it."""

    def look(self, registry: RegistryBody | None) -> bool:
        """Compare the registry with the first look; return whether this process must end.

        Where the register did not answer at the start, a later look is the first one. The process
        then outlives a mark that was written in between, and a repeated request ends it.
        """
        found = registry.shutdown if registry else ""
        if self._at_start is None:
            self._at_start = found
        elif found not in {"", self._at_start}:
            self.asked.set()
        return self.asked.is_set()
