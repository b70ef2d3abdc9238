"""Hides secrets in text by patterns, wherever they appear.

`configuration.redact` hides values by their keys. This module finds secrets in Java options,
command lines, URLs and messages: ``-Djavax.net.ssl.keyStorePassword=…``, ``?token=…``,
``user:password@host``. A secret that matches no pattern stays visible.
"""

from __future__ import annotations

import re

HIDDEN = "******"

_WORDS = (
    r"passw(?:or)?d|passphrase|pwd|secret|token|credential|api[-_.]?key|access[-_.]?key|"
    r"account[-_.]?key|private[-_.]?key|service[-_.]?key|signature|authorization"
)
_ASSIGNED = re.compile(
    rf"((?:{_WORDS})(?![\w.\-]{{0,40}}(?:file|path|dir|location|type|provider)\b)[\w.\-]{{0,40}}"
    r"[\"']?\s?(?:=|%3D|:\s?(?=[\"'])|=>)\s?)"
    r"(\"[^\"\n]*\"|'[^'\n]*'|[^\s&;,\"')\]}]+)",
    re.IGNORECASE,
)
_PARAMETER = re.compile(r"([?&;](?:sig|auth|key|jwt)=)([^\s&;\"'#]+)", re.IGNORECASE)
_FLAG = re.compile(rf"(--?[\w-]{{0,40}}(?:{_WORDS})\s+)([^\s\-][^\s]*)", re.IGNORECASE)
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
_USER = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}://)[^/?#\s\"'@:]{0,200}:[^/?#\s\"']{1,400}@")
_AWS = re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")
_PEM = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)",
    re.DOTALL,
)


def masked(text: str) -> str:
    """Return the text with everything that looks like a secret hidden."""
    text = _PEM.sub(HIDDEN, text)
    text = _USER.sub(rf"\1{HIDDEN}@", text)
    text = _BEARER.sub(rf"\1 {HIDDEN}", text)
    text = _ASSIGNED.sub(rf"\1{HIDDEN}", text)
    text = _PARAMETER.sub(rf"\1{HIDDEN}", text)
    text = _FLAG.sub(rf"\1{HIDDEN}", text)
    return _AWS.sub(HIDDEN, text)
