"""A register in ConfigMaps and a Lease of one namespace, for JobManagers on several hosts.

``<cluster>-cluster-config-map`` has the entries of the cluster, ``<cluster>-<nonce>-config-map``
those of one application, and the Lease ``<cluster>-leader`` the leader's record. Each write is a
merge patch that names the ``resourceVersion`` which it replaces: the API server compares and swaps.
A ConfigMap has several entries, so its ``resourceVersion`` is the fence of a write, and each entry
has a version of its own (`objects`): where another entry has changed meanwhile, the write is sent
again over the new ``resourceVersion``.

No object has an owner reference: they outlive the Deployment. The process that deletes the last
entry of an object deletes the object.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import sys
import uuid
import weakref
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from understudy.clock import SystemClock
from understudy.config import Configuration
from understudy.config.options import K8S_CLUSTER_ID
from understudy.errors import (
    ConfigurationError,
    CorruptDataError,
    DataError,
    ForeignDataError,
    TooLargeError,
)
from understudy.ha.backends.kubernetes import objects, options
from understudy.ha.backends.kubernetes import release as kubernetes_release
from understudy.ha.backends.kubernetes.announcer import Announcer
from understudy.ha.backends.kubernetes.leader_view import view_of
from understudy.ha.backends.kubernetes.names import application_of, as_label, object_name
from understudy.ha.backends.kubernetes.objects import (
    PREFIX,
    Layout,
    SeenObjects,
    Slot,
    Stored,
)
from understudy.ha.backends.kubernetes.rival import OtherPlace
from understudy.ha.register import Conflict, Entry, Notice, Pushed, Release
from understudy.kubernetes import rights
from understudy.kubernetes.access import Access, access_of
from understudy.kubernetes.client import (
    SILENCE_S,
    ApiRequest,
    Client,
    Json,
    Lane,
    RequestLimits,
    Traffic,
)
from understudy.kubernetes.kinds import CONFIG_MAP, LEASE, Resource
from understudy.kubernetes.refusals import ApiRefusal, Contested, NotThere
from understudy.kubernetes.watch import Change, Watch

LEADER = "leader"
"""The key of the leader's record."""

RACES_MAX = 1_000
"""Each lost race means that another writer won; nobody loses so many in a row."""

TYPE, HA, PART = "understudy", "high-availability", "high-availability-part"
"""Values of the labels ``type`` and ``configmap-type``."""

CLUSTER_ID, RUN_ID, OF, OVER = (
    f"{PREFIX}/cluster-id",
    f"{PREFIX}/run-id",
    f"{PREFIX}/of",
    f"{PREFIX}/over",
)
"""Labels and annotations of ours. ``of`` and ``over``: the object, and the ``resourceVersion`` of
it, that a part was written for."""

RENEWAL_SHARE = 0.5
"""A renewal may take half of the renew deadline, so that a leader can try twice."""

COMMON_S = 5.0
"""Limit of any other request: half of the default renew deadline."""

RIVAL_LOOK_S = 1.0
"""How often a start looks whether a record in the other place is renewed."""

LAST_EVENTS_S = 1.0
"""How long a process that ends waits for its last Events."""

CACHE_BYTES_MAX = 32 << 20
"""Values that are kept for a later read; of further objects only versions are known."""

LARGE_BYTES = 16_384
"""A smaller object is read whole: to ask for its version first would cost a request more."""

_log = logging.getLogger(__name__)


def open_register(cluster_id: str, settings: Mapping[str, str]) -> KubernetesRegister:
    """Open the register of one cluster in the namespace that the settings name."""
    configuration = Configuration(settings)
    lease_s = options.period(configuration, options.K8S_LEASE_DURATION)
    deadline_s = options.period(configuration, options.K8S_RENEW_DEADLINE)
    limits = RequestLimits(
        common_s=COMMON_S,
        renewal_s=min(COMMON_S, deadline_s * RENEWAL_SHARE),
        leader_silence_s=min(SILENCE_S, lease_s),
    )
    return KubernetesRegister(
        cluster_id,
        access_of(configuration),
        name=configuration.find(K8S_CLUSTER_ID) or object_name(cluster_id),
        lock=configuration.get(options.K8S_LOCK),
        limits=limits,
    )


@dataclass(frozen=True)
class _ObjectPlace:
    """The object that an entry lies in."""

    layout: Layout
    name: str

    @property
    def kind(self) -> Resource:
        return self.layout.kind


@dataclass
class _Here:
    """What belongs to one event loop."""

    client: Client
    announcer: Announcer
    watches: dict[str, Watch] = field(default_factory=dict)
    turns: dict[str, asyncio.Lock] = field(default_factory=dict)
    """By object: writes of one process to one object take turns, as each needs the version that
    the one before it made."""


class KubernetesRegister:
    """A register of the objects of one cluster; see the module's docstring."""

    def __init__(
        self, cluster_id: str, access: Access, *, name: str, lock: str, limits: RequestLimits
    ) -> None:
        """``name``: what the names of all objects begin with."""
        self._cluster_id = cluster_id
        self._access = access
        self._name = name
        self._limits = limits
        self._in_lease = lock == options.LEASE
        cluster = f"{name}-cluster-config-map"
        self._cluster = _ObjectPlace(Layout(CONFIG_MAP, LEADER), cluster)
        lease = _ObjectPlace(Layout(LEASE, LEADER), f"{name}-leader")
        self._leader, other = (lease, self._cluster) if self._in_lease else (self._cluster, lease)
        self._other = OtherPlace(lambda: self._record_in(other), self._where(other), lock)
        self._granted: tuple[str, int] | None = None
        """Holder and term of the record that this process has written last."""
        self._counts = Traffic()
        self._conflicts = 0
        self._missing: list[str] = []
        """Rights that we lacked when we asked last."""
        self._known = SeenObjects(CACHE_BYTES_MAX)
        self._leader_at = 0
        """The latest ``resourceVersion`` of the leader's object that was read, written or told."""
        self._here: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Here] = (
            weakref.WeakKeyDictionary()
        )
        self._clock = SystemClock()
        self._notify: Callable[[Release], None] | None = None
        self._held = ("", "")
        """Holder and token of the last release that the guardian was told of."""

    # --- the register ----------------------------------------------------------------------------

    async def load(self, key: str) -> Entry | None:
        """Read the object, at the API server's latest version, and the entry in it."""
        place = self._place(key)
        lost = ""
        for _ in range(RACES_MAX):
            stored = await self._unchanged(place) or await self._fetch(place)
            slot = stored.slots.get(key) if stored else None
            if slot is None:
                return None
            value = slot.value
            if slot.part:
                value = await self._part(slot.part)
            if value is not None:
                return Entry(value, slot.version, self._where(place))
            if lost == slot.version:
                raise CorruptDataError(
                    f"register entry {key}: ConfigMap {slot.part}, its value, is gone"
                )
            lost = slot.version
        raise OSError(errno.EBUSY, f"{key}: no stable version in {RACES_MAX} looks")

    async def swap(self, key: str, value: bytes | None, expected: str | None) -> str:
        """Patch, create or delete the object, over the version in which the entry is expected."""
        place = self._place(key)
        if key == LEADER:  # A renewal waits for no other write of this process.
            return await self._swap_leader(place, value, expected)
        async with self._turn(place):
            return await self._swap(place, key, value, expected)

    async def keys(self, prefix: str) -> list[str]:
        """List the objects of the cluster; parts that nothing refers to are removed."""
        here = self._here_now()
        parts, _ = await here.client.list(
            CONFIG_MAP, self._labelled(**{"configmap-type": PART}), metadata_only=True
        )
        found, _ = await here.client.list(
            CONFIG_MAP, self._labelled(**{"configmap-type": HA}), metadata_only=True
        )
        stored, damaged = self._readable(found)
        if self._in_lease and (lease := await self._fetch(self._leader)):
            stored.append(lease)
        sound = [part for part in parts if _annotation(part, OF) not in damaged]
        await self._remove_orphans(sound, {one.name: one for one in stored})
        return sorted(key for one in stored for key in one.slots if key.startswith(prefix))

    async def changes(self, key: str) -> AsyncIterator[Pushed | None]:
        """Wake by a watch of the object, which all followers in this process share.

        A change of the leader's record has the record with it: a follower need not read it at each
        renewal.
        """
        place = self._place(key)
        with self._watch(place).following() as bell:
            yield None
            while True:
                yield self._pushed(place, key, await bell.rung())

    # --- what else the house may ask -------------------------------------------------------------

    async def prove(self) -> None:
        """Ask for our rights, and for a write that the server only tries."""
        client = self._here_now().client
        self._missing = await rights.missing(client, rights.needed(lease=self._in_lease))
        if self._missing:
            said = rights.sentence(self._access, self._missing)
            self.announce(Notice("MissingRights", said, warning=True))
            await self._here_now().announcer.drained(COMMON_S)
            raise PermissionError(errno.EACCES, said)
        await self._refuse_living_rival()
        trial = {
            **self._manifest(self._cluster, f"{self._name}-proof-{uuid.uuid4().hex[:12]}"),
            "data": {},
        }
        try:
            await client.send(ApiRequest("create", CONFIG_MAP, query={"dryRun": "All"}, body=trial))
        except ApiRefusal as error:
            # An admission webhook with effects of its own takes part in no dry run.
            if error.status != 400 or "dry run" not in str(error):
                raise

    async def clusters(self) -> list[str]:
        """Return the clusters that have ConfigMaps in the namespace."""
        query = {"labelSelector": f"type={TYPE},configmap-type={HA}"}
        found, _ = await self._here_now().client.list(CONFIG_MAP, query, metadata_only=True)
        return sorted({_annotation(one, CLUSTER_ID) for one in found} - {""})

    def status(self) -> dict[str, object]:
        """Return the state of the requests and watches as known here, without a request."""
        counts = self._counts
        watches = [watch for here in self._here.values() for watch in here.watches.values()]
        return {
            "server": self._access.server,
            "namespace": self._access.namespace,
            "leader_in": f"{self._leader.kind.name} {self._leader.name}",
            "config_map": self._cluster.name,
            "problem": counts.problem,
            "missing_rights": self._missing,
            "answer_age_seconds": _ago(self._clock.now(), counts.answered_at),
            "requests_total": counts.requests,
            "retries_total": counts.retries,
            "throttled_total": counts.throttled,
            "failures_total": counts.failures,
            "conflicts_total": self._conflicts,
            "watch_lists_total": sum(watch.lists for watch in watches),
            "watch_events_total": sum(watch.events for watch in watches),
        }

    def on_release(self, notify: Callable[[Release], None]) -> None:
        """Notify of a program that empties the leader's record, whenever this process leads."""
        self._notify = notify

    def release(self) -> None:
        """Let the last Events be posted; a leader that ends has emptied its record."""
        for loop, here in list(self._here.items()):
            if here.announcer.is_busy and loop.is_running():
                posted = asyncio.run_coroutine_threadsafe(
                    here.announcer.drained(LAST_EVENTS_S), loop
                )
                with contextlib.suppress(TimeoutError, asyncio.CancelledError):
                    posted.result(2 * LAST_EVENTS_S)

    def announce(self, notice: Notice) -> None:
        """Show a notice as an Event of the Deployment, or else of the leader's object."""
        self._here_now().announcer.announce(notice)

    # --- reading ---------------------------------------------------------------------------------

    async def _unchanged(self, place: _ObjectPlace) -> Stored | None:
        """Return a large object as seen last, if the server says that it is still the same.

        A new leader claims one entry after the other of a ConfigMap that may have a mebibyte.
        """
        seen = self._known.get(place.name)
        if seen is None or seen.size < LARGE_BYTES or not seen.has_values:
            return None
        request = ApiRequest("get", place.kind, place.name, metadata_only=True)
        found = await self._here_now().client.send(request)
        if found is None or found["metadata"]["resourceVersion"] != seen.resource_version:
            return None
        return seen

    async def _fetch(self, place: _ObjectPlace) -> Stored | None:
        # A renewal reads after a write whose answer was lost.
        lane = Lane.RENEWAL if place.kind is LEASE else Lane.COMMON
        found = await self._here_now().client.get(place.kind, place.name, lane)
        if found is None:
            self._known.forget(place.name)
            return None
        self._saw(place, found["metadata"]["resourceVersion"])
        stored = self._read(place, found)
        self._known.put(stored)
        return stored

    def _readable(self, found: list[Json]) -> tuple[list[Stored], set[str]]:
        """Return the entries of listed objects, and the names of objects that are damaged."""
        stored, damaged = [], set()
        for one in found:
            try:
                place = _ObjectPlace(self._cluster.layout, one["metadata"]["name"])
                stored.append(self._read(place, one, whole=False))
            except CorruptDataError as error:
                _log.warning("left in place, with all its entries: %s", error)
                damaged.add(one["metadata"]["name"])
        return stored, damaged

    def _read(self, place: _ObjectPlace, found: Json, *, whole: bool = True) -> Stored:
        """Return an object's entries; raises `ForeignDataError` if the object is not ours."""
        where, whose = self._where(place), _annotation(found, CLUSTER_ID)
        ours = self._manifest(place, place.name)["metadata"]["labels"]
        labels = found["metadata"].get("labels") or {}
        if any(labels.get(name) != value for name, value in ours.items()) or not whose:
            shown = ", ".join(f"{name}={value}" for name, value in ours.items())
            raise ForeignDataError(
                f"{where} is another program's, and is left alone: set "
                f"{K8S_CLUSTER_ID.key} to a name that is free; if somebody has edited our "
                f"own, put back its labels {shown} and its annotation "
                f"{CLUSTER_ID}={self._cluster_id}"
            )
        if whose != self._cluster_id:
            raise ForeignDataError(
                f"{where} belongs to cluster {whose!r}, not to {self._cluster_id!r}: give each "
                f"cluster of a namespace its own {K8S_CLUSTER_ID.key}"
            )
        return place.layout.read(found, where, whole=whole)

    async def _record_in(self, place: _ObjectPlace) -> Slot | None:
        """Return the leader's record in one of its places, without the object's other entries."""
        request = ApiRequest("get", place.kind, place.name, metadata_only=True)
        found = await self._here_now().client.send(request, Lane.RENEWAL)
        return self._read(place, found, whole=False).slots.get(LEADER) if found else None

    async def _part(self, name: str) -> bytes | None:
        found = await self._here_now().client.get(CONFIG_MAP, name)
        if found is None:
            return None
        return objects.part_value(found, f"ConfigMap {self._access.namespace}/{name}")

    def _pushed(self, place: _ObjectPlace, key: str, change: Change | None) -> Pushed | None:
        """Return the entry that a change has with it; None if it has to be read."""
        if change is None or key != LEADER:
            return None
        try:
            stored = self._read(place, change.found, whole=False)
        except DataError:
            return None  # `load` reports it.
        if not self._is_news(stored):
            return None
        self._saw(place, stored.resource_version)
        if change.is_gone:
            self._known.forget(place.name)
            return Pushed(None)
        if place.kind is LEASE:
            self._known.put(stored)  # Of a ConfigMap, metadata do not tell the sizes of values.
        slot = stored.slots.get(key)
        if slot is None:
            return Pushed(None)
        if slot.value is None:
            return None
        return Pushed(Entry(slot.value, slot.version, self._where(place)))

    def _is_news(self, stored: Stored) -> bool:
        """Return whether a watch tells nothing older than what was read or written here.

        Since Kubernetes 1.35 versions are promised to be numbers that grow; before, they were.
        """
        told = stored.resource_version
        return told.isdecimal() and int(told) >= self._leader_at

    def _saw(self, place: _ObjectPlace, version: str) -> None:
        if place == self._leader and version.isdecimal():
            self._leader_at = max(self._leader_at, int(version))

    # --- writing ---------------------------------------------------------------------------------

    async def _swap(
        self, place: _ObjectPlace, key: str, value: bytes | None, expected: str | None
    ) -> str:
        stored = self._known.get(place.name)
        fresh = False
        for _ in range(RACES_MAX):
            if stored is None:
                stored, fresh = await self._fetch(place), True
            slot = stored.slots.get(key) if stored else None
            if (slot.version if slot else None) != expected:
                if fresh:
                    found = slot.version if slot else None
                    raise Conflict(f"{key}: expected version {expected}, found {found}")
                stored = None
                continue
            if value is None and expected is None:
                if fresh:
                    return objects.new_version(b"")
                stored = None
                continue
            # What was seen is worth nothing once the outcome of a write is unknown.
            self._known.forget(place.name)
            try:
                return await self._write(place, stored, key, value)
            except (Contested, NotThere) as error:
                if stored is None and isinstance(error, NotThere):
                    raise  # There is no such namespace.
                self._conflicts += 1
                stored, fresh = None, False
        raise OSError(errno.EBUSY, f"{key}: not written in {RACES_MAX} tries")

    async def _swap_leader(
        self, place: _ObjectPlace, value: bytes | None, expected: str | None
    ) -> str:
        view = view_of(value, 0.0)
        mine = (view.holder, view.transitions) if view.holder else None
        is_grant = mine is not None and mine != self._granted
        if is_grant and self._other.was_held:
            await self._refuse_rival()
        version = await self._swap(place, LEADER, value, expected)
        if is_grant:
            try:
                await self._refuse_rival()
            except OSError:
                await self._swap(place, LEADER, None, version)
                raise
        self._granted = mine
        self._note_holder(value)
        return version

    async def _refuse_rival(self) -> None:
        if rival := await self._other.rival():
            raise OSError(errno.EBUSY, self._other.sentence(rival))

    async def _refuse_living_rival(self) -> None:
        """Raise `ConfigurationError` if a leader lives that has its record in the other place."""
        while rival := await self._other.rival():
            if rival.renewed:
                raise ConfigurationError(self._other.sentence(rival))
            await asyncio.sleep(RIVAL_LOOK_S)

    async def _write(
        self, place: _ObjectPlace, stored: Stored | None, key: str, value: bytes | None
    ) -> str:
        """Write one entry over an object as it was seen, and return the entry's version."""
        before = dict(stored.slots) if stored else {}
        replaced = before.pop(key, None)
        if value is None:
            assert stored is not None
            slots, version = before, objects.new_version(b"")
        else:
            version = objects.new_version(value)
            slots = {**before, key: await self._slot(place, stored, key, value, version)}
        lane = Lane.RENEWAL if key == LEADER else Lane.COMMON
        request = self._request(place, stored, slots, key)
        answer = await self._here_now().client.send(request, lane)
        if slots:
            assert answer is not None
            metadata = answer["metadata"]
            self._saw(place, metadata["resourceVersion"])
            self._known.put(Stored(place.name, metadata["uid"], metadata["resourceVersion"], slots))
        else:
            self._here_now().turns.pop(place.name, None)
        if replaced and replaced.part:
            await self._delete_part(replaced.part)
        return version

    async def _slot(
        self, place: _ObjectPlace, stored: Stored | None, key: str, value: bytes, version: str
    ) -> Slot:
        """Return the new entry; its value goes into a part if the object would be too full."""
        slot = Slot(version, len(value), value)
        others = {name: one for name, one in stored.slots.items() if name != key} if stored else {}
        if place.layout.fits({**others, key: slot}):
            return slot
        name = f"{self._name}-part-{uuid.uuid4().hex[:16]}"
        in_part = Slot(version, 0, part=name)
        fits = place.layout.fits({**others, key: in_part})
        if not fits or len(value) > objects.CONFIG_MAP_BYTES_MAX:
            raise TooLargeError(
                f"{key}: {len(value)} bytes do not fit into {self._where(place)}; nothing was "
                "written"
            )
        manifest = self._manifest(self._cluster, name)
        metadata = manifest["metadata"]
        metadata["labels"]["configmap-type"] = PART
        metadata["annotations"] |= {
            OF: place.name,
            OVER: stored.resource_version if stored else "",
        }
        body = {**manifest, **objects.part_manifest(value)}
        await self._here_now().client.send(
            ApiRequest("create", CONFIG_MAP, body=body, metadata_only=True)
        )
        return in_part

    def _request(
        self, place: _ObjectPlace, stored: Stored | None, slots: Mapping[str, Slot], key: str
    ) -> ApiRequest:
        """Return the request that brings one object from what was seen to these entries."""
        if not slots:
            assert stored is not None
            fence = {"uid": stored.uid, "resourceVersion": stored.resource_version}
            body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": fence}
            return ApiRequest("delete", place.kind, place.name, body=body)
        change = place.layout.fields(slots, key, self._clock.wall())
        change = objects.merged(change, {"metadata": _run_of(slots.get(key))})
        if stored is None:
            body = objects.without_nulls(objects.merged(self._manifest(place, place.name), change))
            return ApiRequest("create", place.kind, body=body, metadata_only=True)
        fence = {"uid": stored.uid, "resourceVersion": stored.resource_version}
        body = objects.merged(change, {"metadata": fence})
        return ApiRequest("patch", place.kind, place.name, body=body, metadata_only=True)

    def _manifest(self, place: _ObjectPlace, name: str) -> Json:
        labels = {"app": self._name, "type": TYPE, "configmap-type": HA}
        return {
            "apiVersion": place.kind.api_version,
            "kind": place.kind.name,
            "metadata": {
                "name": name,
                "labels": labels,
                "annotations": {CLUSTER_ID: self._cluster_id},
            },
        }

    # --- parts -----------------------------------------------------------------------------------

    async def _remove_orphans(self, parts: list[Json], stored: Mapping[str, Stored]) -> None:
        """Remove parts of writes that can no longer happen, or whose value was replaced.

        ``parts`` were listed before the objects. A part is written for one ``resourceVersion``:
        once the object has another one and does not name the part, no write will name it.
        """
        used = {slot.part for one in stored.values() for slot in one.slots.values()}
        for part in parts:
            name, over = part["metadata"]["name"], _annotation(part, OVER)
            of = stored.get(_annotation(part, OF))
            if name not in used and over != (of.resource_version if of else ""):
                await self._delete_part(name)

    async def _delete_part(self, name: str) -> None:
        """Delete a part, or leave that to the next listing."""
        try:
            await self._here_now().client.send(ApiRequest("delete", CONFIG_MAP, name))
        except NotThere:
            return
        except OSError as error:
            _log.info("ConfigMap %s stays until the next takeover: %s", name, error)

    # --- places ----------------------------------------------------------------------------------

    def _place(self, key: str) -> _ObjectPlace:
        if key == LEADER:
            return self._leader
        application = application_of(key)
        if application is None:
            return self._cluster
        return _ObjectPlace(self._cluster.layout, f"{self._name}-{application}-config-map")

    def _where(self, place: _ObjectPlace) -> str:
        return f"{place.kind.name} {self._access.namespace}/{place.name}"

    def _labelled(self, **labels: str) -> dict[str, str]:
        chosen = {"app": self._name, "type": TYPE, **labels}
        return {"labelSelector": ",".join(f"{name}={value}" for name, value in chosen.items())}

    def _here_now(self) -> _Here:
        loop = asyncio.get_running_loop()
        if loop not in self._here:
            client = Client(self._access, self._limits, self._counts)
            leader = (self._leader.kind, self._leader.name)
            self._here[loop] = _Here(client, Announcer(client, self._name, leader))
        return self._here[loop]

    def _turn(self, place: _ObjectPlace) -> asyncio.Lock:
        return self._here_now().turns.setdefault(place.name, asyncio.Lock())

    def _watch(self, place: _ObjectPlace) -> Watch:
        here = self._here_now()
        if place.name not in here.watches:
            query = {"fieldSelector": f"metadata.name={place.name}"}
            is_leader = place == self._leader
            silence_s = self._limits.leader_silence_s if is_leader else SILENCE_S
            here.watches[place.name] = Watch(here.client, place.kind, query, silence_s)
        return here.watches[place.name]

    # --- the death of this process ---------------------------------------------------------------

    def _note_holder(self, value: bytes | None) -> None:
        """Tell the guardian what to empty if this process dies while it leads."""
        holder, token = view_of(value, 0.0).holder, self._here_now().client.token
        if self._notify is None or not holder or (holder, token) == self._held:
            return
        self._held = (holder, token)
        leader = self._leader.kind.path(self._access.namespace, self._leader.name)
        what = {
            "server": self._access.server,
            "path": urlsplit(self._access.server).path + leader,
            "in_lease": self._in_lease,
            "holder": holder,
            "token": token,
            "authority": self._access.authority,
            "certificate": self._access.certificate,
            "verify": self._access.verify,
            "server_name": self._access.server_name,
        }
        argv = (sys.executable, "-I", "-S", kubernetes_release.__file__)
        self._notify(Release(argv, json.dumps(what)))


def _run_of(slot: Slot | None) -> Json:
    """Return the label or annotation that names the run of an application's document."""
    try:
        run: Any = json.loads(slot.value or b"")["body"]["body"]["run_id"] if slot else None
    except (ValueError, TypeError, KeyError):
        run = None
    if not isinstance(run, str):
        return {}
    label = as_label(run)
    return {"labels": {RUN_ID: label}} if label else {"annotations": {RUN_ID: run}}


def _annotation(found: Json, name: str) -> str:
    return str(((found.get("metadata") or {}).get("annotations") or {}).get(name, ""))


def _ago(now: float, at: float | None) -> float | None:
    return None if at is None else round(now - at, 3)
