"""Interrupting an attempt: an exception in the main thread, while that works for the attempt."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

from understudy.driver.attempt import Interrupted
from understudy.rpc.messages import Deploy


class Interrupts:
    """The interrupted attempts of one process, and what its main thread works for."""

    def __init__(self) -> None:
        self._attempts: set[tuple[str, int]] = set()
        """Attempts to end; some have not begun here yet."""
        self._working_for = ""
        """The job for which the main thread may be interrupted."""

    def listen(self) -> None:
        """Let `strike` reach the main thread; call this from the main thread."""
        signal.signal(signal.SIGUSR1, self._raise)

    @contextlib.contextmanager
    def working_for(self, deploy: Deploy) -> Iterator[None]:
        """Work for an attempt; raises `Interrupted` once the attempt is interrupted."""
        self._working_for = deploy.job_id
        try:
            if self.has(deploy):
                raise Interrupted
            yield
        finally:
            self._working_for = ""

    def add(self, job_id: str, attempt: int) -> None:
        """Note an interrupt, which may come before its attempt begins or after its end."""
        self._attempts.add((job_id, attempt))

    def has(self, deploy: Deploy) -> bool:
        """Return whether this attempt is interrupted."""
        return (deploy.job_id, deploy.attempt) in self._attempts

    def reaches(self, job_id: str) -> bool:
        """Return whether the main thread works for this job."""
        return self._working_for == job_id

    def strike(self) -> None:
        """Raise `Interrupted` in the main thread, if that still works for an interrupted job."""
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def _raise(self, *_: object) -> None:
        job_id = self._working_for
        if job_id and any(one == job_id for one, _ in self._attempts):
            self._working_for = ""  # Once: the code that follows is our own.
            raise Interrupted
