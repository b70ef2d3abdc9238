"""Posting events to ``notify.url``, so that a takeover or a failed job wakes somebody.

The run never waits for the receiver, and never fails because of it: a thread of its own posts one
event after the other, in order. What cannot be delivered is tried again a few times, then dropped;
so are events for which there is no more place. That events are lost is said once, at the first,
and how many they were once, at the end.
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
from understudy.version import VERSION

HELD_MAX = 1_000
"""Events held for a slow receiver: those of several hundred jobs, well below a megabyte."""

TRIES_MAX = 4
BACKOFF_S = 0.5
"""The first pause before an event is posted again, doubled each time: with four tries 3.5 s, in
which a receiver may be restarted."""

CLOSE_S_MAX = 5.0
"""How long the end may wait for what is left: less than a person begins to wonder."""

_AGAIN = {408, 425, 429}
"""Refusals that may be different next time, beside all of 500 and above."""

NOT_POSTED = ("checkpoint-completed",)
"""It is told once a second for each query, and nobody is to be woken by it."""

Say = Callable[[str], None]


class Notifier:
    """Posts events while its block lasts; `tell` returns at once."""

    def __init__(self, url: str, timeout_s: float, close_s: float, say: Say) -> None:
        """``say`` puts a sentence into the log; it is called by the thread too.

        The end waits for at most ``close_s``.
        """
        self._url = url
        self._say = say
        self._close_s = close_s
        self._queue: queue.Queue[Event | None] = queue.Queue(HELD_MAX)
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._lost = 0
        self._failing = False
        """The last event could not be delivered: at the end, each is tried once only."""
        self._deadline = float("inf")
        import httpx  # It takes a quarter of a second, and most processes post nothing.

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
        """Begin to post."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Post what is left as far as the time goes, and say what was lost."""
        self.close()

    def tell(self, event: Event) -> None:
        """Take in an event; the private ones are not posted."""
        if event["event"] not in PUBLIC or event["event"] in NOT_POSTED:
            return
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            self._lose(f"{HELD_MAX:,} events wait already")

    def close(self) -> None:
        """See `__exit__`; a second call does nothing."""
        if self._closing.is_set():
            return
        self._deadline = time.monotonic() + self._close_s
        self._closing.set()
        with contextlib.suppress(queue.Full):  # Then the thread sees that it closes.
            self._queue.put_nowait(None)
        self._thread.join(self._close_s)
        with self._lock:
            # What is still held, with the one that is just being posted.
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
        """Return the next event; None once it closes, and nothing is left or no time."""
        if not self._closing.is_set():
            return self._queue.get()
        if time.monotonic() > self._deadline:
            return None
        try:
            return self._queue.get_nowait()
        except queue.Empty:
            return None

    def _post(self, body: bytes) -> str:
        """Deliver an event; return why it could not be, empty if it was."""
        why = ""
        hopeless = self._failing and self._closing.is_set()
        for number in range(1 if hopeless else TRIES_MAX):
            if number:
                self._pause(BACKOFF_S * 2 ** (number - 1))
            if time.monotonic() > self._deadline:
                return why or "the end did not wait"
            try:
                # Nobody reads the answer, which may be without end.
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
        """Wait for the next try, once it closes no longer than the end waits."""
        if self._closing.wait(seconds):
            time.sleep(max(0.0, min(seconds, self._deadline - time.monotonic())))

    def _lose(self, why: str) -> None:
        with self._lock:
            self._lost += 1
            first = self._lost == 1
        if first:
            self._say(f"notify.url: an event was not delivered, the run goes on: {why}")


class NoNotifier:
    """There is no ``notify.url``."""

    def __enter__(self) -> Self:
        """See `Notifier.__enter__`."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """See `Notifier.__exit__`."""

    def tell(self, event: Event) -> None:
        """See `Notifier.tell`."""


def notifier(
    configuration: Configuration, say: Say, close_s_max: float = CLOSE_S_MAX
) -> Notifier | NoNotifier:
    """Return what posts to ``notify.url``, if that is set."""
    url = configuration.find(options.NOTIFY_URL)
    if not url:
        return NoNotifier()
    timeout_s = configuration.get(options.NOTIFY_TIMEOUT)
    return Notifier(url, timeout_s, min(timeout_s, close_s_max), say)


def _is_loopback(url: str) -> bool:
    """Say whether a receiver is on this host: then no proxy of the environment is asked."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
