"""What the drivers of an application stand on: the code on this host, and the interpreter."""

from __future__ import annotations

import asyncio

from understudy.ha.storage import BlockingStorage
from understudy.model import ApplicationId
from understudy.process import code
from understudy.process.environments import Ground, Interpreters, LaidOut
from understudy.rpc.messages import Prepare


class Grounds:
    """Lays code out and gets interpreters, once for each driver that is to start."""

    def __init__(self, storage: BlockingStorage, cluster: str, interpreters: Interpreters) -> None:
        self._storage = storage
        self._cluster = cluster
        self._interpreters = interpreters
        self.users: set[ApplicationId] = set()
        """Applications that use an interpreter, until `leave`."""

    async def of(self, prepare: Prepare) -> Ground:
        """Return what a driver stands on. Raises `UnderstudyError`, ``OSError``."""
        directory = await self._lay_out(prepare)
        application = prepare.application_id
        self.users.add(application)
        laid_out = LaidOut(directory, prepare.artifacts, prepare.profile.conf)
        python = await self._interpreters.python_for(application, laid_out)
        return Ground(directory, python)

    async def leave(self, application: ApplicationId) -> None:
        """Let go of an application's interpreter; none of its drivers lives."""
        await self._interpreters.leave(application)

    async def close(self) -> None:
        """Let go of all interpreters."""
        await self._interpreters.close()

    async def _lay_out(self, prepare: Prepare) -> str:
        """Unpack the application's code on this host; return its directory, empty without code."""
        if not prepare.artifacts:
            return ""
        directory = await asyncio.to_thread(
            code.lay_out, self._storage, self._cluster, prepare.directory, prepare.artifacts
        )
        return str(directory)
