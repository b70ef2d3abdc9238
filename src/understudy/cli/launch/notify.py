"""Posting events to ``notify.url``, so that a takeover or a failed job wakes somebody.

The run never waits for the receiver and never fails because of it: a thread posts the events in
order. A failed event is retried a few times, then dropped; events that overflow the queue are
dropped too. The log reports the first lost event at once, and the number of lost events at the end.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import queue
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from understudy.cli.launch.story import PUBLIC, Event
from understudy.config import Configuration, options
from understudy.core.backoff import Backoff
from understudy.version import VERSION

HELD_MAX = 1_000
"""Events held for a slow receiver: those of several hundred jobs, well below a megabyte."""

TRIES_MAX = 4
BACKOFF = Backoff(0.5)
"""The pauses before retries: 3.5 s in all with four tries, enough for a
receiver's restart."""

CLOSE_S_MAX = 5.0
"""How long closing may wait for queued events: short enough not to annoy a person."""

_AGAIN = {408, 425, 429}
"""Status codes below 500 worth a retry; all from 500 on are."""

NOT_POSTED = ("checkpoint-completed",)
"""Up to one per second and query, and no reason to wake anyone."""

Say = Callable[[str], None]


class Notifier:
    """Posts events while its block lasts; `tell` returns at once."""

    def __init__(self, url: str, timeout_s: float, close_s: float, say: Say) -> None:
        """``say`` logs a sentence, also from the posting thread.

        Closing waits at most ``close_s``.
        """
        self._url = url
        self._say = say
        self._close_s = close_s
        self._queue: queue.Queue[Event | None] = queue.Queue(HELD_MAX)
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._lost = 0
        self._failing = False
        """The last event was not delivered: while closing, each event gets one try only."""
        self._deadline = float("inf")
        import httpx  # The import takes 0.25 s, and most processes post nothing.

        self._errors = httpx.HTTPError
        self._client = httpx.Client(
            timeout=timeout_s,
            trust_env=not _is_loopback(url),
            headers={"user-agent": f"understudy/{VERSION}", "content-type": "application/json"},
        )
        self._thread = threading.Thread(
            target=self._post_all, name="understudy-notify", daemon=True
        )

    def __enter__(self) -> Self:
        """Start the posting thread."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Post queued events until the deadline, and log how many were lost."""
        self.close()

    def tell(self, event: Event) -> None:
        """Queue an event; private events are not posted."""
        if event["event"] not in PUBLIC or event["event"] in NOT_POSTED:
            return
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            self._lose(f"{HELD_MAX:,} events wait already")

    def close(self) -> None:
        """Close as `__exit__` does; a second call does nothing."""
        if self._closing.is_set():
            return
        self._deadline = time.monotonic() + self._close_s
        self._closing.set()
        with contextlib.suppress(queue.Full):  # A full queue needs no wake-up.
            self._queue.put_nowait(None)
        self._thread.join(self._close_s)
        with self._lock:
            # Events still queued, and the one being posted.
            self._lost += sum(event is not None for event in list(self._queue.queue))
            self._lost += self._thread.is_alive()
            lost = self._lost
        if lost:
            self._say(f"notify.url: {lost} events were not delivered")

    # --- the thread -------------------------------------------------------------------------------

    def _post_all(self) -> None:
        while (event := self._next()) is not None:
            why = self._post(json.dumps(event).encode())
            self._failing = bool(why)
            if why:
                self._lose(why)
        self._client.close()

    def _next(self) -> Event | None:
        """Return the next event; None when closing and the queue is empty or time is up."""
        if not self._closing.is_set():
            return self._queue.get()
        if time.monotonic() > self._deadline:
            return None
        try:
            return self._queue.get_nowait()
        except queue.Empty:
            return None

    def _post(self, body: bytes) -> str:
        """Deliver an event; return why that failed, empty on success."""
        why = ""
        hopeless = self._failing and self._closing.is_set()
        for number in range(1 if hopeless else TRIES_MAX):
            if number:
                self._pause(BACKOFF.pause_s(number))
            if time.monotonic() > self._deadline:
                return why or "the end did not wait"
            try:
                # The answer may be endless, so it is not read.
                with self._client.stream("POST", self._url, content=body) as answer:
                    status = answer.status_code
            except self._errors as error:
                why = f"{type(error).__name__}: {error}"
                continue
            if 200 <= status < 300:
                return ""
            why = f"HTTP {status}"
            if status < 500 and status not in _AGAIN:
                return why
        return why

    def _pause(self, seconds: float) -> None:
        """Wait before a retry; while closing, at most until the deadline."""
        if self._closing.wait(seconds):
            time.sleep(max(0.0, min(seconds, self._deadline - time.monotonic())))

    def _lose(self, why: str) -> None:
        with self._lock:
            self._lost += 1
            first = self._lost == 1
        if first:
            self._say(f"notify.url: an event was not delivered, the run continues: {why}")


class NoNotifier:
    """The notifier without ``notify.url``: drops all events."""

    def __enter__(self) -> Self:
        """Do nothing."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Do nothing."""

    def tell(self, event: Event) -> None:
        """Drop the event."""


def notifier(
    configuration: Configuration, say: Say, close_s_max: float = CLOSE_S_MAX
) -> Notifier | NoNotifier:
    """Return the notifier for ``notify.url``, or one that does nothing if unset."""
    url = configuration.find(options.NOTIFY_URL)
    if not url:
        return NoNotifier()
    timeout_s = configuration.get(options.NOTIFY_TIMEOUT)
    return Notifier(url, timeout_s, min(timeout_s, close_s_max), say)


def _is_loopback(url: str) -> bool:
    """Return whether a receiver is on this host: then proxy variables are ignored."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
