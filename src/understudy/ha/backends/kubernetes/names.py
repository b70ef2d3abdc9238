"""Names of objects and data keys: legal for Kubernetes, and reversible.

A key of a ConfigMap may have letters, digits, ``-``, ``_`` and ``.``, up to 253 of them. Letters,
digits and ``-`` stand for themselves; each other byte of a key's UTF-8 is ``_`` and two hexadecimal
digits.
"""

from __future__ import annotations

import hashlib
import re
from urllib.parse import unquote_to_bytes

from understudy.config import options

KEY_CHARS_MAX = 253

LABEL_CHARS_MAX = 63

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-")
_OF_APPLICATION = re.compile(r"application-([0-9a-f]{16})|(?:jobs|checkpoints)-([0-9a-f]{16})-.+")
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


def data_key(key: str) -> str:
    """Return a register key as a legal key of a ConfigMap; raises ``ValueError`` if too long."""
    name = "".join(chr(byte) if byte in _PLAIN else f"_{byte:02X}" for byte in key.encode())
    if len(name) > KEY_CHARS_MAX:
        raise ValueError(f"{key!r} takes more than {KEY_CHARS_MAX} characters as a ConfigMap key")
    return name


def register_key(name: str) -> str:
    """Return the register key that `data_key` made a name of; of another name, no key of ours."""
    return unquote_to_bytes(name.replace("_", "%")).decode(errors="replace")


def object_name(cluster: str) -> str:
    """Return what the names of a cluster's objects begin with.

    An id that Kubernetes accepts stays as it is; of another one remains what is legal, with a
    digest, and the objects' annotation has the id.
    """
    if options.is_legal(cluster):
        return cluster
    plain = re.sub(r"[^a-z0-9]+", "-", cluster.lower()).strip("-")[:32].strip("-")
    return f"{plain or 'cluster'}-{hashlib.sha256(cluster.encode()).hexdigest()[:8]}"


def application_of(key: str) -> str | None:
    """Return the nonce of the application that a key belongs to; None for a key of the cluster."""
    found = _OF_APPLICATION.fullmatch(key)
    return (found[1] or found[2]) if found else None


def as_label(text: str) -> str | None:
    """Return a text if a label may have it as its value."""
    return text if len(text) <= LABEL_CHARS_MAX and _LABEL.fullmatch(text) else None
