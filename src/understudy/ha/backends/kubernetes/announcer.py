"""Notices about the cluster as Events of its Deployment, or else of the leader's object.

So `kubectl describe deployment` tells the story. Nothing ever waits for an Event: notices are
queued, one that is refused is dropped, and while the API server is away they wait for it: the loss
of a leader is often posted only afterwards. The rules of client-go's ``EventCorrelator`` bound
them: the same notice again raises the count of its Event; many of one reason become one Event; and
one object gets 25 Events at once, then one each five minutes.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from understudy.clock import SystemClock
from understudy.ha.register import Notice
from understudy.kubernetes import pauses
from understudy.kubernetes.client import ApiRequest, Client, Json
from understudy.kubernetes.kinds import DEPLOYMENT, EVENT, Resource
from understudy.kubernetes.refusals import ApiRefusal, NotThere

SIMILAR_MAX, SIMILAR_S = 10, 600.0
"""After so many different messages of one reason within this time, further ones are combined."""

COMBINED = "(combined from similar events): "

BURST, REFILL_S = 25, 300.0
"""Events of one object at once, and how long each further one takes."""

EVENT_S = 3600.0
"""How long the API server keeps an Event, unless it is told otherwise."""

QUEUE_MAX = 100
"""More notices than this wait only where the API server is away: the oldest are dropped."""

KEPT_S = 600.0
"""So long a notice waits for the API server."""

MESSAGE_CHARS_MAX = 1024
"""Kubernetes's limit for the message of an Event."""

COMPONENT = "understudy"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Shown:
    """One Event: what it says, since when, and how often that happened."""

    notice: Notice
    name: str
    first: float
    last: float
    count: int = 1


class Correlator:
    """Decides which Event a notice becomes. Times are in seconds by one clock."""

    def __init__(self) -> None:
        self._shown: dict[tuple[str, str], Shown] = {}
        """By reason and message."""
        self._similar: dict[str, deque[tuple[float, str]]] = {}
        """By reason: its different messages of late."""
        self._tokens = float(BURST)
        self._refilled_at = 0.0

    def heard(self, notice: Notice, now: float, wall: float) -> Shown | None:
        """Return the Event to create (count 1) or to change; None: the notice is one too many."""
        self._shown = {key: one for key, one in self._shown.items() if wall - one.last < EVENT_S}
        said = notice.message
        if self._are_many(notice, now):
            notice = replace(notice, message=COMBINED + notice.message)
            said = COMBINED
        elapsed_s, self._refilled_at = now - self._refilled_at, now
        self._tokens = min(float(BURST), self._tokens + elapsed_s / REFILL_S)
        if self._tokens < 1:
            return None
        self._tokens -= 1
        before = self._shown.get((notice.reason, said))
        if before:
            shown = replace(before, notice=notice, last=wall, count=before.count + 1)
        else:
            shown = Shown(notice, uuid.uuid4().hex[:16], wall, wall)
        self._shown[notice.reason, said] = shown
        return shown

    def _are_many(self, notice: Notice, now: float) -> bool:
        similar = self._similar.setdefault(notice.reason, deque(maxlen=SIMILAR_MAX + 1))
        while similar and now - similar[0][0] >= SIMILAR_S:
            similar.popleft()
        if notice.message not in (message for _, message in similar):
            similar.append((now, notice.message))
        return len(similar) > SIMILAR_MAX


@dataclass
class Announcer:
    """Posts the Events of one cluster, from one event loop."""

    client: Client
    deployment: str
    """The Deployment's name: the Events are its, if it exists and we may see it."""
    leader: tuple[Resource, str]
    """Whose they are otherwise."""
    correlator: Correlator = field(default_factory=Correlator)
    _queue: deque[Shown] = field(default_factory=lambda: deque(maxlen=QUEUE_MAX))
    _work: asyncio.Task[None] | None = None
    _clock: SystemClock = field(default_factory=SystemClock)

    def announce(self, notice: Notice) -> None:
        """Have a notice posted soon; needs the event loop, and neither waits nor raises."""
        shown = self.correlator.heard(notice, self._clock.now(), self._clock.wall())
        if shown is None:
            return
        self._queue.append(shown)
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._post_all())

    @property
    def is_busy(self) -> bool:
        """Return whether a notice waits to be posted."""
        return self._work is not None and not self._work.done()

    async def drained(self, limit_s: float) -> None:
        """Return once nothing waits to be posted, or after this time."""
        if self._work:
            await asyncio.wait({self._work}, timeout=limit_s)

    async def _post_all(self) -> None:
        failures = 0
        while self._queue:
            shown = self._queue[0]
            try:
                await self._post(shown)
            except OSError as error:
                refused = isinstance(error, ApiRefusal) and error.status < 500
                if not refused and self._clock.wall() - shown.last < KEPT_S:
                    failures += 1
                    await asyncio.sleep(pauses.pause_s(pauses.EVENT, failures))
                    continue
                _log.info("no Event says %r: %s", shown.notice.message, error)
            failures = 0
            if self._queue and self._queue[0] is shown:
                self._queue.popleft()

    async def _post(self, shown: Shown) -> None:
        involved = await self._involved()
        name = f"{involved['name']}.{shown.name}"
        if shown.count > 1:
            body = {
                "message": shown.notice.message[:MESSAGE_CHARS_MAX],
                "count": shown.count,
                "lastTimestamp": _time(shown.last),
            }
            try:
                await self.client.send(ApiRequest("patch", EVENT, name, body=body))
            except NotThere:  # Its time is over.
                pass
            else:
                return
        await self.client.send(ApiRequest("create", EVENT, body=_event(shown, name, involved)))

    async def _involved(self) -> Json:
        """Return the object that the Events belong to; without a uid where it is not there yet."""
        for kind, name in ((DEPLOYMENT, self.deployment), self.leader):
            request = ApiRequest("get", kind, name, metadata_only=True)
            try:
                found = await self.client.send(request)
            except PermissionError:
                found = None
            if found is not None:
                break
        metadata = (found or {}).get("metadata", {})
        about = {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "name": name,
            "namespace": self.client.access.namespace,
        }
        return {**about, "uid": metadata["uid"]} if "uid" in metadata else about


def _event(shown: Shown, name: str, involved: Json) -> Json:
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.name,
        "metadata": {"name": name},
        "involvedObject": involved,
        "reason": shown.notice.reason,
        "message": shown.notice.message[:MESSAGE_CHARS_MAX],
        "type": "Warning" if shown.notice.warning else "Normal",
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": _time(shown.first),
        "lastTimestamp": _time(shown.last),
        "count": shown.count,
    }


def _time(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
