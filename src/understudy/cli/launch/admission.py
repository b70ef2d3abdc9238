"""In a pod, a process without rights waits for them: whoever restarts it could not give them.

From a terminal, the same problem ends the command with a sentence and exit code 2. A pod would be
started again, with ever longer pauses, and its log would hide the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import sys

from understudy.api import endpoint
from understudy.api.authentication import RestSecurity
from understudy.cli.launch.compose import check_storage_dir, open_services
from understudy.cli.launch.kubernetes_leader import missing_rights
from understudy.cli.launch.standalone import bind_rest
from understudy.config import Configuration, options
from understudy.core.backoff import Backoff
from understudy.ha.register import Announcing, Notice, SelfProving, status_of

AGAIN = Backoff(1.0, 10.0)
"""The pauses between two looks whether the rights are there."""

CLOSED = 143
"""Exit code of a process that was asked to close (128 + SIGTERM)."""

_log = logging.getLogger(__name__)


def await_rights(configuration: Configuration, cluster_id: str, *, jobmanager: bool) -> None:
    """In a pod, return once the register lets this process in; elsewhere, return at once.

    Any other problem is left to the checks that follow. Exits if the process is asked to close.
    """
    if "KUBERNETES_SERVICE_HOST" not in os.environ or configuration.is_standalone:
        return
    check_storage_dir(configuration)
    waiting = _Waiting(configuration, cluster_id, jobmanager=jobmanager)
    if isinstance(waiting.backend, SelfProving):
        asyncio.run(waiting.run())
        if waiting.closed.is_set():
            sys.exit(CLOSED)


class _Waiting:
    """The wait of one process."""

    def __init__(self, configuration: Configuration, cluster_id: str, *, jobmanager: bool) -> None:
        self._configuration = configuration
        self._jobmanager = jobmanager
        self.backend = open_services(configuration, cluster_id).backend
        self._why = ""
        self.closed = asyncio.Event()
        """Set by SIGTERM."""

    async def run(self) -> None:
        """Wait until no right is missing, or SIGTERM comes."""
        if await self._may_join():
            return
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.closed.set)
        failures = 1
        async with contextlib.AsyncExitStack() as stack:
            if found := self._bound():
                listening, security = found
                await stack.enter_async_context(
                    endpoint.served_once_asked(
                        listening,
                        "understudy.api.waiting",
                        lambda module: module.serving(
                            listening, security, lambda: self._why, lambda: status_of(self.backend)
                        ),
                    )
                )
            while not self.closed.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(AGAIN.pause_s(failures)):
                        await self.closed.wait()
                if await self._may_join():
                    _log.warning("the rights are there: this process starts")
                    return
                failures += 1

    async def _may_join(self) -> bool:
        assert isinstance(self.backend, SelfProving)
        try:
            await self.backend.prove()
            if self._jobmanager:
                await self._prove_workers()
        except PermissionError as error:
            if self._why != str(error):
                self._why = str(error)
                _log.error("this process waits for its rights: %s", error)
            return False
        except OSError as error:
            _log.debug("asked in vain: %s", error)
            return not self._why  # Without a refusal, this is for the checks that follow.
        return True

    async def _prove_workers(self) -> None:
        """Raise ``PermissionError`` where a leader could not ask for TaskManagers."""
        if lacking := await missing_rights(self._configuration):
            if isinstance(self.backend, Announcing):
                self.backend.announce(Notice("MissingRights", lacking, warning=True))
            raise PermissionError(errno.EACCES, lacking)

    def _bound(self) -> tuple[socket.socket, RestSecurity] | None:
        """Return where to say what this process waits for; None if it has no endpoint."""
        if self._jobmanager:
            return bind_rest(self._configuration), RestSecurity.of(self._configuration)
        name = self._configuration.find(options.TASKMANAGER_HOST) or socket.gethostname()
        found = endpoint.bind_metrics(self._configuration, name)
        return (found.listening, found.security) if found else None
