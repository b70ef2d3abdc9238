"""How entries of the register lie in objects of Kubernetes, and how they are read from them.

The annotation `ENTRIES` lists the entries of an object, with a version for each that is new with
every write. So two writers of different entries of one ConfigMap do not disturb each other: where
another entry has changed, the write is sent again. And who asks for metadata only learns which
entries there are, without their values.

``data`` of a ConfigMap has the values, as text that people read; ``binaryData`` those that are no
text. A value that does not fit lies in a *part*: a ConfigMap of its own, which is never changed,
and which `ENTRIES` names. The leader's record lies in an annotation, in a Lease or a ConfigMap: a
watch of metadata tells all followers of each renewal.

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
from typing import Any

from understudy.errors import CorruptDataError
from understudy.ha.backends.kubernetes.leader_view import ANNOTATION, view_of
from understudy.ha.backends.kubernetes.names import data_key, register_key
from understudy.kubernetes.client import Json
from understudy.kubernetes.kinds import LEASE, Resource

CONFIG_MAP_BYTES_MAX = 1 << 20
"""Kubernetes's limit for the values of a ConfigMap together."""

CONFIG_MAP_FULL_BYTES = CONFIG_MAP_BYTES_MAX - 16_384
"""What a ConfigMap has at most before a value goes into a part."""

ENTRIES_BYTES_MAX = 200_000
"""About 3,000 entries; annotations of one object have 256 KiB at most."""

RECORD_BYTES_MAX = 40_000
"""The leader's record, in an annotation beside the list of entries; it has about one kilobyte."""

PREFIX = "understudy"
ENTRIES, VALUE, BINARY_VALUE = (
    f"{PREFIX}/entries",
    f"{PREFIX}/value",
    f"{PREFIX}/value.base64",
)
"""Annotations."""

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


class Layout:
    """How the objects of one kind hold entries: in data, and one, the *record*, in annotations.

    Followers of the record learn its value from the metadata that a watch sends them.
    """

    def __init__(self, kind: Resource, record: str) -> None:
        """``record``: the key of the entry in annotations; a Lease has no other."""
        self.kind = kind
        self._record = record

    def fits(self, slots: Mapping[str, Slot]) -> bool:
        """Return whether an object can have these entries."""
        record = slots.get(self._record)
        record_size = record.size if record else 0
        in_data = sum(slot.size for slot in slots.values()) - record_size
        return (
            in_data <= CONFIG_MAP_FULL_BYTES
            and record_size <= RECORD_BYTES_MAX
            and len(entries_text(slots)) <= ENTRIES_BYTES_MAX
        )

    def read(self, found: Json, place: str, *, whole: bool = True) -> Stored:
        """Return the entries of an object; not ``whole``: its metadata, with the record's value.

        Raises `CorruptDataError`, which names the place.
        """
        values, metadata, slots = self._values(found, place), found["metadata"], {}
        if values and ENTRIES not in _annotations(found):
            raise CorruptDataError(
                f"{place}: the annotation {ENTRIES} is gone: put its latest value back"
            )
        for key, (version, part) in _entries(found, place).items():
            value = values.get(key)
            if value is not None and not part:
                version = _version(version.partition(".")[0], value)  # noqa: PLW2901
            elif not part and (whole or key == self._record):
                raise CorruptDataError(
                    f"{place}: the value of {key} is gone, though the annotation {ENTRIES} names "
                    "it: put its latest value back"
                )
            slots[key] = Slot(version, len(value or b""), None if part else value, part)
        return Stored(metadata["name"], metadata["uid"], metadata["resourceVersion"], slots)

    def fields(self, slots: Mapping[str, Slot], key: str, now: float) -> Json:
        """Return what an object must have after a change of one entry: a merge patch."""
        value = slots[key].value if key in slots else None
        text, packed = _split(value)
        annotations: dict[str, str | None] = {ENTRIES: entries_text(slots)}
        change: Json = {"metadata": {"annotations": annotations}}
        if key != self._record:
            name = data_key(key)
            return {**change, "data": {name: text}, "binaryData": {name: packed}}
        annotations |= {VALUE: text, BINARY_VALUE: packed}
        view = view_of(value, now)
        if self.kind is LEASE:
            return {**change, "spec": view.spec(now)}
        annotations[ANNOTATION] = view.annotation(now)
        return change

    def _values(self, found: Json, place: str) -> dict[str, bytes]:
        """Return the values that are in an object, by register key."""
        data, binary = dict(found.get("data") or {}), dict(found.get("binaryData") or {})
        values = {register_key(name): str(text).encode() for name, text in data.items()}
        values |= {
            register_key(name): _unpacked(text, f"{place}, {name}") for name, text in binary.items()
        }
        annotations = _annotations(found)
        if VALUE in annotations:
            values[self._record] = str(annotations[VALUE]).encode()
        elif BINARY_VALUE in annotations:
            values[self._record] = _unpacked(annotations[BINARY_VALUE], place)
        return values


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
    """Return version and part by register key; an object without the list has no entries."""
    text = _annotations(found).get(ENTRIES)
    if text is None:
        return {}
    try:
        return {
            register_key(name): (
                (str(one["version"]), str(one["part"])) if isinstance(one, dict) else (one, "")
            )
            for name, one in json.loads(text).items()
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptDataError(
            f"{place}: the annotation {ENTRIES} is damaged: {error}; put its latest value back"
        ) from error
