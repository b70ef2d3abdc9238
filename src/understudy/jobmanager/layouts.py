"""The code layouts on this host, shared by applications with the same code."""

from __future__ import annotations

import asyncio
from pathlib import Path

from understudy.ha.services import HighAvailabilityServices
from understudy.model import ApplicationId
from understudy.process import code


class Layouts:
    """Which code the applications of this term use, so that none loses it to another's end."""

    def __init__(self, services: HighAvailabilityServices) -> None:
        self._services = services
        self._used: dict[ApplicationId, str] = {}
        self._turn = asyncio.Lock()

    async def use(self, application: ApplicationId, layout: str) -> None:
        """Keep a layout until `remove`; an empty name stands for all: it is not known yet."""
        async with self._turn:  # Not while layouts are removed: this one may be among them.
            self._used[application] = layout

    async def remove(self, application: ApplicationId) -> None:
        """Remove the layouts that no other application uses; also those of earlier deployments."""
        async with self._turn:
            others = {layout for one, layout in self._used.items() if one != application}
            if "" not in others:
                await self._services.storage.run(code.remove_layouts, self.base, frozenset(others))

    def leave(self, application: ApplicationId) -> None:
        """Count an application no more."""
        self._used.pop(application, None)

    @property
    def base(self) -> Path:
        """Return the directory of all layouts."""
        return code.layout_base(self._services.storage.blocking, self._services.locations.cluster)
