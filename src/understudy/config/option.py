"""The types of options, and the parsers of their text. The syntax is Flink's."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar
from unicodedata import category
from urllib.parse import urlsplit

T = TypeVar("T")

SAME = "same"
"""The Flink note of an option whose key, default and meaning are Flink's."""

INFINITE = 2**31 - 1
"""The value of ``infinite``, as in Flink."""

_DURATION_UNITS_S = {
    "d": 86400.0,
    "day": 86400.0,
    "h": 3600.0,
    "hour": 3600.0,
    "m": 60.0,
    "min": 60.0,
    "minute": 60.0,
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "ms": 1e-3,
    "milli": 1e-3,
    "millisecond": 1e-3,
    "us": 1e-6,
    "µs": 1e-6,
    "micro": 1e-6,
    "microsecond": 1e-6,
    "ns": 1e-9,
    "nano": 1e-9,
    "nanosecond": 1e-9,
}
_SIZE_UNITS = {
    "": 1,
    "b": 1,
    "bytes": 1,
    "k": 1 << 10,
    "kb": 1 << 10,
    "kibibytes": 1 << 10,
    "m": 1 << 20,
    "mb": 1 << 20,
    "mebibytes": 1 << 20,
    "g": 1 << 30,
    "gb": 1 << 30,
    "gibibytes": 1 << 30,
    "t": 1 << 40,
    "tb": 1 << 40,
    "tebibytes": 1 << 40,
}
_DURATION_MAX_S = 100_000 * 86400.0
"""Longest duration: longer than any run, and short enough for every clock and timer."""

_SIZE_DIGITS_MAX = 18
_TEXT_CHARS_MAX = 4096
"""Longest text: the kernel accepts no longer path."""

_REQUIREMENTS_CHARS_MAX = 1 << 20
"""Longest requirements file; one with all hashes of 500 packages has a quarter of that."""

_WORD = re.compile(r"[!-~]+")
_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)
_HEX_32 = re.compile(r"[0-9a-f]{32}")
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Zµ]*)")


@dataclass(frozen=True)
class Kind(Generic[T]):
    """A type of option: its name in the documentation, and its parser."""

    name: str
    parse: Callable[[str], T]
    """Raises ``ValueError`` with what was expected."""
    takes_lists: bool = False
    """The file may hold a list; its items are joined with commas."""
    takes_maps: bool = False
    """The file may hold a mapping; its pairs name:value are joined with commas."""


@dataclass(frozen=True)
class Option(Generic[T]):
    """One option. ``default`` is text that is parsed like a user's; None means unset."""

    key: str
    kind: Kind[T]
    default: str | None
    meaning: str
    flink: str = ""
    """Empty if Flink has no such key; else ``same``, or how the default or meaning differs."""

    def parse(self, text: str) -> T:
        """Return the typed value, or raise ``ValueError`` with what was expected."""
        return self.kind.parse(text.strip())


def _is_text(character: str) -> bool:
    return character.isprintable() or category(character) == "Zs"


def _text(text: str) -> str:
    if not all(_is_text(character) for character in text):
        raise ValueError("printable text, without line breaks and control characters")
    if len(text) > _TEXT_CHARS_MAX:
        raise ValueError(f"at most {_TEXT_CHARS_MAX:,} characters")
    return text


def _requirements(text: str) -> str:
    if not all(_is_text(one) or one in "\r\n\t" for one in text):
        raise ValueError("printable text in lines")
    if len(text) > _REQUIREMENTS_CHARS_MAX:
        raise ValueError(f"at most {_REQUIREMENTS_CHARS_MAX:,} characters")
    return text


def local_path(path: str) -> str:
    """Return a path of this host in Spark's spelling, absolute and normalised.

    Recorded locations are compared with those that Spark and users name.
    """
    return os.path.abspath(re.sub("^/+", "/", path))  # noqa: PTH100 -- removes `..`


def _place(text: str) -> str:
    """Return a URL unchanged, and a local path normalised."""
    path = _text(text).removeprefix("file://").removeprefix("local://")
    return local_path(path) if path and "://" not in path else path


def _shared_place(text: str) -> str:
    """Return a URL or absolute path as `_place` does; a relative path stays unchanged."""
    return _place(text) if text.startswith("/") or "://" in text else _text(text)


def _shared_places(text: str) -> tuple[str, ...]:
    found = tuple(_shared_place(word) for word in words(text))
    if not all(word.startswith("/") or "://" in word for word in found):
        raise ValueError("absolute paths or URLs, with commas between")
    if any(".." in word.split("/") or "::" in word for word in found):
        raise ValueError("paths and URLs without '..' and '::'")
    return found


def _hex_id(text: str) -> str:
    if not _HEX_32.fullmatch(text.lower()):
        raise ValueError("32 hexadecimal digits")
    return text.lower()


def _boolean(text: str) -> bool:
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    raise ValueError("true or false")


def _integer(text: str) -> int:
    if text.lower() == "infinite":
        return INFINITE
    if not _WHOLE.fullmatch(text):
        raise ValueError("a whole number")
    if len(text) > len(str(INFINITE)) + 1 or abs(int(text)) > INFINITE:
        raise ValueError(f"a whole number of at most {INFINITE}")
    return int(text)


def _count(text: str) -> int:
    number = _integer(text)
    if number < 0:
        raise ValueError("a whole number that is not negative")
    return number


def _positive(text: str) -> int:
    number = _integer(text)
    if number < 1:
        raise ValueError("a whole number of at least 1")
    return number


def _bounded(lowest: int, highest: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        expected = f"a whole number from {lowest} to {highest}"
        try:
            number = _integer(text)
        except ValueError:
            raise ValueError(expected) from None
        if not lowest <= number <= highest:
            raise ValueError(expected)
        return number

    return parse


def _factor(text: str) -> float:
    try:
        # Python also reads 1_000, and digits of other scripts.
        number = float(text if text.isascii() and "_" not in text else "")
    except ValueError:
        raise ValueError("a number") from None
    if not 0 <= number < float("inf"):
        raise ValueError("a finite number that is not negative")
    return number


def _duration(text: str) -> float:
    match = _QUANTITY.fullmatch(text)
    unit = (match[2].lower() if match else "") or "ms"
    if len(unit) > len("min"):
        unit = unit.removesuffix("s")
    if not match or unit not in _DURATION_UNITS_S:
        raise ValueError("a duration such as '20 s', '1 min' or '500 ms'")
    seconds = float(match[1]) * _DURATION_UNITS_S[unit]
    if seconds > _DURATION_MAX_S:
        raise ValueError("a duration of at most 100,000 days")
    return seconds


def _period(text: str) -> float:
    seconds = _duration(text)
    if seconds <= 0:
        raise ValueError("a duration of more than nothing, such as '20 s'")
    return seconds


def _long_period(text: str) -> float:
    seconds = _duration(text)
    if seconds < 1:
        raise ValueError("a duration of at least 1 s")
    return seconds


def _size(text: str) -> int:
    match = _QUANTITY.fullmatch(text)
    if not match or match[2].lower() not in _SIZE_UNITS:
        raise ValueError("a size such as '256 kb' or '1 gb'")
    whole, _, fraction = match[1].partition(".")
    if len(whole) > _SIZE_DIGITS_MAX:
        raise ValueError("a size that a computer can have")
    unit = _SIZE_UNITS[match[2].lower()]
    return int(whole) * unit + int(float(f"0.{fraction or 0}") * unit)


def _ports(text: str) -> tuple[int, ...]:
    ports: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            low, high = _integer(first), _integer(last if dash else first)
        except ValueError:
            raise ValueError("a port, a list '50100,50101' or a range '50100-50200'") from None
        if not 0 <= low <= high <= 65535:
            raise ValueError("ports between 0 and 65535, the lower one first")
        ports.extend(range(low, high + 1))
    return tuple(ports)


def _http_url(text: str) -> str:
    wanted = "an address such as 'https://host/path', with http or https"
    try:
        parts = urlsplit(text)
        whole = bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise ValueError(wanted) from None
    if parts.scheme.lower() not in {"http", "https"} or not whole or not _WORD.fullmatch(text):
        raise ValueError(wanted)
    return text


def _class_names(text: str) -> tuple[str, ...]:
    found = words(_text(text))
    if not all(part.isidentifier() for word in found for part in word.split(".")):
        raise ValueError("names of classes such as 'ValueError, my.package.Error'")
    return found


def words(text: str) -> tuple[str, ...]:
    """Return the parts of a list, which is separated by commas or semicolons."""
    return tuple(word.strip() for word in re.split("[;,]", text) if word.strip())


def _http_urls(text: str) -> tuple[str, ...]:
    found = tuple(_http_url(word) for word in words(text))
    if not found:
        raise ValueError("the address of a JobManager, such as 'http://host:8081'")
    for one in found:
        parts = urlsplit(one)
        if parts.query or parts.fragment or parts.username is not None:
            raise ValueError(f"{parts.scheme}://host:port, without a user, '?' and '#'")
    return found


TEXT = Kind("String", _text)
REQUIREMENTS = Kind("Lines of text", _requirements)
PLACE = Kind("String", _place)
"""A local path or a URL."""
SHARED_PLACE = Kind("String", _shared_place)
"""A local path or a URL that several processes share; a relative path stays unresolved."""
SHARED_PLACES = Kind("List of paths and URLs", _shared_places, takes_lists=True)
HEX_ID = Kind("String (32 hexadecimal digits)", _hex_id)
BOOLEAN = Kind("Boolean", _boolean)
INTEGER = Kind("Integer", _integer)
COUNT = Kind("Integer (0 or more)", _count)
POSITIVE = Kind("Integer (1 or more)", _positive)
FACTOR = Kind("Double", _factor)
DURATION = Kind("Duration", _duration)
PERIOD = Kind("Duration (more than 0)", _period)
LONG_PERIOD = Kind("Duration (1 s or more)", _long_period)
SIZE = Kind("MemorySize", _size)
PORTS = Kind("Ports", _ports, takes_lists=True)
HTTP_URL = Kind("URL (http or https)", _http_url)
URLS = Kind("List of URLs (http or https)", _http_urls, takes_lists=True)
WORDS = Kind("List<String>", words, takes_lists=True)
CLASS_NAMES = Kind("List of class names", _class_names, takes_lists=True)
PAIRS = Kind("Map", words, takes_lists=True, takes_maps=True)


def bounded(lowest: int, highest: int) -> Kind[int]:
    """Return the kind of an option that takes a whole number within bounds."""
    return Kind(f"Integer ({lowest} to {highest})", _bounded(lowest, highest))


def choice(*names: str, aliases: dict[str, str] | None = None) -> Kind[str]:
    """Return the kind of an option that takes one of some words, in either case."""
    spellings = {name.lower(): name for name in names} | (aliases or {})

    def parse(text: str) -> str:
        if text.lower() not in spellings:
            raise ValueError("one of " + ", ".join(names))
        return spellings[text.lower()]

    return Kind("Enum: " + ", ".join(names), parse)
