"""The logs of applications: over REST, or a file of this host."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from understudy.api.client import ClusterClient
from understudy.cli.launch.compose import EXIT_CODES

POLL_S = 0.5
"""How often a leader is asked for more of a log that is followed."""


class RemoteLog:
    """Reads an application's log from its beginning on."""

    def __init__(self, client: ClusterClient, application: str) -> None:
        self._client = client
        self._application = application
        self._offset = 0
        self._begun = b""
        """A line whose end is not written yet."""

    async def lines(self) -> list[str]:
        """Return the whole lines that have been added; none if there are no more just now."""
        data, self._offset = await self._client.log(self._application, self._offset)
        *whole, self._begun = (self._begun + data).split(b"\n")
        return [line.decode(errors="replace") for line in whole]


async def print_log(client: ClusterClient, application: str, *, for_ever: bool) -> None:
    """Print a log to stdout; ``for_ever``: continue until the application has ended."""
    log = RemoteLog(client, application)
    ended = not for_ever
    while True:
        while lines := await log.lines():
            sys.stdout.writelines(f"{line}\n" for line in lines)
            sys.stdout.flush()
        if ended:
            return
        detail = await client.get(f"/applications/{application}", awaits_leader=True)
        ended = detail["status"] in {one.value for one in EXIT_CODES}
        if not ended:
            await asyncio.sleep(POLL_S)


# --- a log file of this host ----------------------------------------------------------------------


async def follow(path: Path, *, for_ever: bool) -> None:
    """Print a file to stdout; with ``for_ever``, keep printing as the file grows (inotify)."""
    from asyncinotify import Inotify, Mask

    with path.open("r", encoding="utf-8", errors="replace") as file, Inotify() as inotify:
        inotify.add_watch(path, Mask.MODIFY | Mask.MOVE_SELF | Mask.DELETE_SELF)
        while True:
            while piece := file.read(1 << 16):
                sys.stdout.write(piece)
            sys.stdout.flush()
            if not for_ever:
                return
            event = await inotify.get()
            if event.mask & (Mask.MOVE_SELF | Mask.DELETE_SELF):
                return
