"""How entries of the register lie in objects of Kubernetes, and how they are read from them.

A ConfigMap has several entries. ``data`` has the value of each, as text that people read, and
``_entries``: a version for each, new with every write. So two writers of different entries of one
ConfigMap do not disturb each other: where another entry has changed, the write is sent again.
``binaryData`` has a value that is no text. A value that does not fit lies in a *part*: a ConfigMap
of its own, which is never changed, and which ``_entries`` names.

The Lease has one entry, in annotations, since a Lease has no data.

A version contains a checksum of the value: an entry that a person has edited has another one.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from understudy.errors import CorruptDataError
from understudy.ha.backends.kubernetes.client import Json
from understudy.ha.backends.kubernetes.kinds import CONFIG_MAP, LEASE, Resource
from understudy.ha.backends.kubernetes.leader_view import ANNOTATION, view_of
from understudy.ha.backends.kubernetes.names import ENTRIES, data_key, register_key

CONFIG_MAP_BYTES_MAX = 1 << 20
"""Kubernetes's limit for the values of a ConfigMap together."""

CONFIG_MAP_FULL_BYTES = CONFIG_MAP_BYTES_MAX - 16_384
"""What a ConfigMap has at most before a value goes into a part: room for `_entries` to grow."""

LEASE_FULL_BYTES = 150_000
"""Annotations of one object have 256 KiB at most, also where the value is in base64."""

PREFIX = "understudy"
VALUE, BINARY_VALUE, LEASE_ENTRIES = (
    f"{PREFIX}/value",
    f"{PREFIX}/value.base64",
    f"{PREFIX}/entries",
)

_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""JSON writes each of these as six characters: such a value is no text for people either."""


@dataclass(frozen=True)
class Slot:
    """One entry: its version, and where its value is."""

    version: str
    size: int
    """Bytes that the value takes in the object itself."""
    value: bytes | None = field(default=None, repr=False)
    """None if it is in a part, or was left out."""
    part: str = ""


@dataclass(frozen=True)
class Stored:
    """An object with entries, as it was read or written last."""

    name: str
    uid: str
    resource_version: str
    slots: Mapping[str, Slot]
    """By register key."""

    @property
    def size(self) -> int:
        """Return how many bytes the values and their list take."""
        return sum(slot.size + len(key) for key, slot in self.slots.items()) + len(
            entries_text(self.slots)
        )

    def without_values(self) -> Stored:
        """Return the same without values, to be kept."""
        return replace(
            self, slots={key: replace(slot, value=None) for key, slot in self.slots.items()}
        )


class Layout(Protocol):
    """How one kind of object holds entries."""

    kind: Resource
    full_bytes: int
    """An object does not grow beyond: a further value goes into a part."""

    def read(self, found: Json, place: str) -> Stored:
        """Return the entries of an object; raises `CorruptDataError`, which names the place."""
        ...

    def fields(self, slots: Mapping[str, Slot], key: str, now: float) -> Json:
        """Return what an object must have after a change of one entry: a merge patch."""
        ...


class ConfigMapLayout:
    """Entries in ``data`` of a ConfigMap; see the module's docstring."""

    kind = CONFIG_MAP
    full_bytes = CONFIG_MAP_FULL_BYTES

    def __init__(self, shown: str = "") -> None:
        """``shown``: the key of the leader's record, if the ConfigMap shows the leader."""
        self._shown = shown

    def read(self, found: Json, place: str) -> Stored:
        """See `Layout`."""
        data, binary = found.get("data") or {}, found.get("binaryData") or {}
        slots = {}
        for name, (version, part) in _entries(data.get(ENTRIES), place).items():
            if part:
                slot = Slot(version, 0, part=part)
            elif name in data:
                slot = _slot(version, str(data[name]).encode())
            elif name in binary:
                slot = _slot(version, _unpacked(binary[name], f"{place}, {name}"))
            else:
                raise CorruptDataError(
                    f"{place}: {name} is gone, though {ENTRIES} names it: put its latest value back"
                )
            slots[register_key(name)] = slot
        return _stored(found, slots)

    def fields(self, slots: Mapping[str, Slot], key: str, now: float) -> Json:
        """See `Layout`."""
        name, slot = data_key(key), slots.get(key)
        text, packed = _split(slot.value if slot else None)
        change: Json = {
            "data": {name: text, ENTRIES: entries_text(slots)},
            "binaryData": {name: packed},
        }
        if key == self._shown:
            view = view_of(slot.value if slot else None, now).annotation(now)
            change["metadata"] = {"annotations": {ANNOTATION: view}}
        return change


class LeaseLayout:
    """The leader's record in annotations of a Lease, whose ``spec`` shows it."""

    kind = LEASE
    full_bytes = LEASE_FULL_BYTES

    def read(self, found: Json, place: str) -> Stored:
        """See `Layout`."""
        annotations = (found.get("metadata") or {}).get("annotations") or {}
        slots = {}
        for name, (version, part) in _entries(annotations.get(LEASE_ENTRIES), place).items():
            if part:
                slot = Slot(version, 0, part=part)
            elif VALUE in annotations:
                slot = _slot(version, str(annotations[VALUE]).encode())
            elif BINARY_VALUE in annotations:
                slot = _slot(version, _unpacked(annotations[BINARY_VALUE], place))
            else:
                raise CorruptDataError(f"{place}: the annotation {VALUE} is gone")
            slots[register_key(name)] = slot
        return _stored(found, slots)

    def fields(self, slots: Mapping[str, Slot], key: str, now: float) -> Json:
        """See `Layout`."""
        value = slots[key].value if key in slots else None
        text, packed = _split(value)
        annotations = {LEASE_ENTRIES: entries_text(slots), VALUE: text, BINARY_VALUE: packed}
        return {"metadata": {"annotations": annotations}, "spec": view_of(value, now).spec(now)}


def new_version(value: bytes) -> str:
    """Return a version that was never used, with the value's checksum."""
    return f"{uuid.uuid4().hex[:12]}.{zlib.crc32(value):08x}"


def entries_text(slots: Mapping[str, Slot]) -> str:
    """Return the list of entries: a nonce for each, and a value's part if it has one."""
    listed: dict[str, Any] = {}
    for key in sorted(slots):
        slot = slots[key]
        listed[data_key(key)] = (
            {"version": slot.version, "part": slot.part}
            if slot.part
            else slot.version.partition(".")[0]
        )
    return json.dumps(listed, indent=0 if len(listed) > 1 else None)


def part_manifest(value: bytes) -> Json:
    """Return what a part has: one value."""
    text, packed = _split(value)
    found = {"value": text} if text is not None else {}
    return {"immutable": True, "data": found, "binaryData": {"value": packed} if packed else {}}


def part_value(found: Json, place: str) -> bytes:
    """Return the value of a part."""
    data, binary = found.get("data") or {}, found.get("binaryData") or {}
    if "value" in data:
        return str(data["value"]).encode()
    return _unpacked(binary.get("value"), place)


def without_nulls(change: Json) -> Json:
    """Return a merge patch as the object that it makes of nothing."""
    kept = {}
    for name, part in change.items():
        if isinstance(part, dict):
            part = without_nulls(part)  # noqa: PLW2901
        if part is not None and part != {}:
            kept[name] = part
    return kept


def merged(one: Json, other: Json) -> Json:
    """Return two merge patches as one."""
    result = dict(one)
    for name, part in other.items():
        mine = result.get(name)
        both = isinstance(mine, dict) and isinstance(part, dict)
        result[name] = merged(mine or {}, part) if both else part
    return result


def _slot(nonce: str, value: bytes) -> Slot:
    return Slot(f"{nonce}.{zlib.crc32(value):08x}", len(value), value)


def _stored(found: Json, slots: Mapping[str, Slot]) -> Stored:
    metadata = found["metadata"]
    return Stored(metadata["name"], metadata["uid"], metadata["resourceVersion"], slots)


def _split(value: bytes | None) -> tuple[str | None, str | None]:
    """Return a value as text, or packed if it is no text; the other is None."""
    if value is None:
        return None, None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = None
    if text is None or _CONTROLS.search(text):
        return None, base64.b64encode(value).decode()
    return text, None


def _unpacked(packed: Any, place: str) -> bytes:
    try:
        return base64.b64decode(packed, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise CorruptDataError(f"{place} is not base64: {error}") from error


def _entries(text: Any, place: str) -> dict[str, tuple[str, str]]:
    """Return nonce (or version) and part by name; an object without the list has no entries."""
    if text is None:
        return {}
    try:
        listed = json.loads(text)
        return {
            name: (str(one["version"]), str(one["part"])) if isinstance(one, dict) else (one, "")
            for name, one in listed.items()
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptDataError(
            f"{place}: {ENTRIES} is damaged: {error}; put its latest value back"
        ) from error
