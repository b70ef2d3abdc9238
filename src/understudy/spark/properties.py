"""Reads and writes settings in the grammar of ``java.util.Properties``, as Spark's launcher does.

Only this module knows the grammar. It imports nothing of Spark.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN = {"\\": "\\\\", **{char: f"\\{letter}" for letter, char in _ESCAPES.items()}}
_CODE_DIGITS = 4

_TRIMMED = "".join(map(chr, range(ord(" ") + 1))).replace("\r", "").replace("\n", "")
"""The characters that Spark strips from both ends of a value."""


def defaults_file(home: str, environment: Mapping[str, str]) -> Path:
    """Return the path of ``spark-defaults.conf``, which may not exist; ``home`` is Spark's."""
    return Path(environment.get("SPARK_CONF_DIR") or f"{home}/conf") / "spark-defaults.conf"


def write(path: Path, settings: Mapping[str, str]) -> None:
    """Write settings, which may hold secrets, to a new file that only its owner can read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(written(settings))


def written(settings: Mapping[str, str]) -> str:
    """Return settings as the text of a properties file, in ASCII."""
    return "".join(
        f"{_escaped(key, ' =:#!')}={_escaped(value[:1], ' ')}{_escaped(value[1:])}\n"
        for key, value in settings.items()
    )


def read(text: str) -> dict[str, str]:
    """Return the settings in a properties file whose keys begin with ``spark.``.

    Values are stripped of blanks, as in Spark. Raises ``ValueError`` where Java does.
    """
    found = dict(_parted(line) for line in _lines(text))
    return {key: value.strip(_TRIMMED) for key, value in found.items() if key.startswith("spark.")}


def _lines(text: str) -> Iterator[str]:
    """Yield the logical lines: without comments, and with continued lines joined."""
    whole = ""
    goes_on = False
    for natural in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = natural.lstrip(_BLANKS)
        if not goes_on and (not line or line[0] in "#!"):
            continue
        slashes = len(line) - len(line.rstrip("\\"))
        goes_on = slashes % 2 == 1
        whole += line[:-1] if goes_on else line
        if not goes_on:
            yield whole
            whole = ""
    if whole:
        yield whole


def _parted(line: str) -> tuple[str, str]:
    """Split a line into key and value at the first ``=``, ``:`` or blank, with blanks around it."""
    end = 0
    while end < len(line) and line[end] not in f"=:{_BLANKS}":
        end += 2 if line[end] == "\\" else 1
    value = line[end:].lstrip(_BLANKS)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(_BLANKS)
    return _plain(line[:end]), _plain(value)


def _plain(text: str) -> str:
    """Return a text with its escapes resolved."""
    found = []
    characters = iter(text)
    for char in characters:
        if char != "\\":
            found.append(char)
            continue
        letter = next(characters, "")
        if letter == "u":
            digits = "".join(next(characters, "") for _ in range(_CODE_DIGITS))
            if len(digits) < _CODE_DIGITS:
                raise ValueError(f"malformed \\u{digits}")
            found.append(chr(int(digits, 16)))
        else:
            found.append(_ESCAPES.get(letter, letter))
    # Java writes some characters as two UTF-16 units.
    units = "".join(found).encode("utf-16-le", "surrogatepass")
    return units.decode("utf-16-le", "surrogatepass")


def _escaped(text: str, more: str = "") -> str:
    return "".join(_of(char, more) for char in text)


def _of(char: str, more: str) -> str:
    if char in _WRITTEN or char in more:
        return _WRITTEN.get(char, f"\\{char}")
    if " " <= char <= "~":
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
