"""How entries of the register lie in objects of Kubernetes, and how they are read from them.

The annotation `ENTRIES` lists the entries of an object, with a version for each that is new with
every write. So two writers of different entries of one ConfigMap do not disturb each other: where
another entry has changed, the write is sent again. And who asks for metadata only learns which
entries there are, without their values.

``data`` of a ConfigMap has the values, as text that people read; ``binaryData`` those that are no
text. A value that does not fit lies in a *part*: a ConfigMap of its own, which is never changed,
and which `ENTRIES` names. The Lease has one entry, whose value is in an annotation, as a Lease has
no data.

A version ends with a checksum of the value: an entry that a person has edited has another one.
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
from understudy.ha.backends.kubernetes.names import data_key, register_key

CONFIG_MAP_BYTES_MAX = 1 << 20
"""Kubernetes's limit for the values of a ConfigMap together."""

CONFIG_MAP_FULL_BYTES = CONFIG_MAP_BYTES_MAX - 16_384
"""What a ConfigMap has at most before a value goes into a part."""

ENTRIES_BYTES_MAX = 200_000
"""About 3,000 entries; annotations of one object have 256 KiB at most."""

LEASE_FULL_BYTES = 150_000
"""Annotations of one object have 256 KiB at most, also where the value is in base64."""

PREFIX = "understudy"
ENTRIES, VALUE, BINARY_VALUE = (
    f"{PREFIX}/entries",
    f"{PREFIX}/value",
    f"{PREFIX}/value.base64",
)
"""Annotations."""

PARTIAL = "PartialObjectMetadata"
"""The kind of an answer without data."""

_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""JSON writes each of these as six characters: such a value is no text for people either."""


@dataclass(frozen=True)
class Slot:
    """One entry: its version, and where its value is."""

    version: str
    size: int
    """Bytes that the value takes in the object itself."""
    value: bytes | None = field(default=None, repr=False)
    """None if it is in a part, or was not asked for."""
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
        """Return how many bytes the values take in the object."""
        return sum(slot.size for slot in self.slots.values())

    @property
    def held(self) -> int:
        """Return how many bytes of values are here."""
        return sum(len(slot.value or b"") for slot in self.slots.values())

    @property
    def has_values(self) -> bool:
        """Return whether the values are here of all entries that have none elsewhere."""
        return all(slot.value is not None or slot.part for slot in self.slots.values())

    def without_values(self) -> Stored:
        """Return the same without values, to be kept."""
        return replace(
            self, slots={key: replace(slot, value=None) for key, slot in self.slots.items()}
        )


class SeenObjects:
    """Objects as this process has seen them last; of the least recent ones without values."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._objects: dict[str, Stored] = {}

    def get(self, name: str) -> Stored | None:
        """Return an object; None if it was not seen, or what was seen is worth nothing."""
        return self._objects.get(name)

    def put(self, stored: Stored) -> None:
        """Remember an object."""
        self._objects.pop(stored.name, None)
        self._objects[stored.name] = stored
        held = sum(one.held for one in self._objects.values())
        for name, one in list(self._objects.items()):
            if held <= self._bytes_max:
                break
            held -= one.held
            self._objects[name] = one.without_values()

    def forget(self, name: str) -> None:
        """Forget an object."""
        self._objects.pop(name, None)


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
        values = {name: str(text).encode() for name, text in data.items()}
        values |= {name: _unpacked(text, f"{place}, {name}") for name, text in binary.items()}
        return _read(found, values, place)

    def fields(self, slots: Mapping[str, Slot], key: str, now: float) -> Json:
        """See `Layout`."""
        name, slot = data_key(key), slots.get(key)
        text, packed = _split(slot.value if slot else None)
        change: Json = {
            "metadata": {"annotations": {ENTRIES: entries_text(slots)}},
            "data": {name: text},
            "binaryData": {name: packed},
        }
        if key == self._shown:
            view = view_of(slot.value if slot else None, now).annotation(now)
            change["metadata"]["annotations"][ANNOTATION] = view
        return change


class LeaseLayout:
    """The leader's record in annotations of a Lease, whose ``spec`` shows it."""

    kind = LEASE
    full_bytes = LEASE_FULL_BYTES

    def read(self, found: Json, place: str) -> Stored:
        """See `Layout`."""
        annotations = _annotations(found)
        values = {}
        for name in _entries(found, place):
            if VALUE in annotations:
                values[name] = str(annotations[VALUE]).encode()
            elif BINARY_VALUE in annotations:
                values[name] = _unpacked(annotations[BINARY_VALUE], place)
        return _read(found, values, place, complete=True)

    def fields(self, slots: Mapping[str, Slot], key: str, now: float) -> Json:
        """See `Layout`."""
        value = slots[key].value if key in slots else None
        text, packed = _split(value)
        annotations = {ENTRIES: entries_text(slots), VALUE: text, BINARY_VALUE: packed}
        return {"metadata": {"annotations": annotations}, "spec": view_of(value, now).spec(now)}


def new_version(value: bytes) -> str:
    """Return a version that was never used, with the value's checksum."""
    return _version(uuid.uuid4().hex[:12], value)


def entries_text(slots: Mapping[str, Slot]) -> str:
    """Return the list of entries: a version for each, and a value's part if it has one."""
    listed: dict[str, Any] = {}
    for key in sorted(slots):
        version, part = slots[key].version, slots[key].part
        listed[data_key(key)] = {"version": version, "part": part} if part else version
    return json.dumps(listed, separators=(",", ":"))


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


def _read(
    found: Json, values: Mapping[str, bytes], place: str, *, complete: bool = False
) -> Stored:
    """Return the entries of an object; ``complete``: metadata alone have the values too."""
    metadata, slots = found["metadata"], {}
    complete = complete or found.get("kind") != PARTIAL
    entries = _entries(found, place)
    if complete and values and ENTRIES not in _annotations(found):
        raise CorruptDataError(
            f"{place}: the annotation {ENTRIES} is gone: put its latest value back"
        )
    for name, (version, part) in entries.items():
        value = values.get(name)
        if part or not complete:
            slot = Slot(version, 0, part=part)
        elif value is None:
            raise CorruptDataError(
                f"{place}: {name} is gone, though the annotation {ENTRIES} names it: put its "
                "latest value back"
            )
        else:
            slot = Slot(_version(version.partition(".")[0], value), len(value), value)
        slots[register_key(name)] = slot
    return Stored(metadata["name"], metadata["uid"], metadata["resourceVersion"], slots)


def _version(nonce: str, value: bytes) -> str:
    return f"{nonce}.{zlib.crc32(value):08x}"


def _annotations(found: Json) -> Mapping[str, Any]:
    return (found.get("metadata") or {}).get("annotations") or {}


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


def _entries(found: Json, place: str) -> dict[str, tuple[str, str]]:
    """Return version and part by name; an object without the list has no entries."""
    text = _annotations(found).get(ENTRIES)
    if text is None:
        return {}
    try:
        return {
            name: (str(one["version"]), str(one["part"])) if isinstance(one, dict) else (one, "")
            for name, one in json.loads(text).items()
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptDataError(
            f"{place}: the annotation {ENTRIES} is damaged: {error}; put its latest value back"
        ) from error
