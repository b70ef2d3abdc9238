"""Which arguments of a job differ between two executions of ``main``.

A job keeps a short digest of each argument. Digests are taken from the JSON text of a value, with
the keys of dicts in order, so equal values always have equal digests. A pickle has no such form. A
value without JSON text is not compared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from itertools import islice

from understudy.core.values import encode_value

ARGUMENT_BYTES_MAX = 64 << 10
"""Longest JSON text of an argument that is compared: each submission encodes it."""

ARGUMENTS_MAX = 16
"""Most arguments of a job that are compared: the register holds their digests."""

NAME_BYTES_MAX = 40
"""Longest name of an argument that is compared, for the same reason."""

_DIGEST_BYTES = 8

NOT_COMPARED = ""
"""In place of the digest of a value that has no JSON text, or a long one."""


def digests(arguments: Mapping[str, object]) -> dict[str, str]:
    """Return the digests of a job's arguments by name, in their order."""
    short = ((name, value) for name, value in arguments.items() if _is_short(name))
    return {name: _digest(value) for name, value in islice(short, ARGUMENTS_MAX)}


def different(before: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the arguments that differ; none if nothing is known of before."""
    if not before:
        return ()
    names = {**now, **before}
    return tuple(
        name
        for name in names
        if NOT_COMPARED not in (one := (before.get(name), now.get(name))) and one[0] != one[1]
    )


def _is_short(name: str) -> bool:
    return len(name.encode("utf-8", "surrogatepass")) <= NAME_BYTES_MAX


def _digest(value: object) -> str:
    try:
        text = json.loads(bytes(encode_value(value, ARGUMENT_BYTES_MAX)))
    except Exception:  # Beside InvalidValueError: what code of the user's types may raise.
        return NOT_COMPARED
    ordered = json.dumps(text, sort_keys=True).encode()
    return hashlib.blake2b(ordered, digest_size=_DIGEST_BYTES).hexdigest()
