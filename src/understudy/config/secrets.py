"""Hides secrets in text by patterns and by known values, wherever they appear.

`configuration.redact` hides values by their keys. This module finds secrets in Java options,
command lines, URLs and messages: ``-Djavax.net.ssl.keyStorePassword=…``, ``?token=…``,
``user:password@host``. A secret that matches no pattern is hidden only where this process has been
given its value: see `learn`.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
import types
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import quote, unquote

HIDDEN = "******"

LEARNT_CHARS_MIN = 4
"""A shorter value is part of too many words to be hidden wherever it stands."""

_NO_SECRETS = {"true", "false", "none", "null", HIDDEN}
"""Values of keys that only look like those of secrets, such as ``….credentials.enabled``."""

_WORDS = (
    r"passw(?:or)?d|passphrase|pwd|secret|token|credential|api[-_.]?key|access[-_.]?key|"
    r"account[-_.]?key|private[-_.]?key|service[-_.]?key|signature|authorization"
)
_ASSIGNED = re.compile(
    rf"((?:{_WORDS})(?![\w.\-]{{0,40}}(?:file|path|dir|location|type|provider)\b)[\w.\-]{{0,40}}"
    r"[\"']?\s?(?:=|%3D|:\s?(?=[\"'])|=>)\s?)"
    r"(\"[^\"\n]*\"|'[^'\n]*'|\{[^}\n]*\}|[^\s&;,\"')\]}]+)",
    re.IGNORECASE,
)
_PARAMETER = re.compile(r"([?&;](?:sig|auth|key|jwt)=)([^\s&;\"'#]+)", re.IGNORECASE)
_FLAG = re.compile(rf"(--?[\w-]{{0,40}}(?:{_WORDS})\s+)([^\s\-][^\s]*)", re.IGNORECASE)
_FLAG_ALONE = re.compile(rf"--?[\w-]{{0,40}}(?:{_WORDS})", re.IGNORECASE)
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
_USER = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}://)[^/?#\s\"'@:]{0,200}:[^/?#\s\"']{1,400}@")
_PASSWORD = re.compile(r"://[^/?#\s\"'@:]{0,200}:([^/?#\s\"']{1,400})@")
_TOKEN = re.compile(r"(https?://)([^/?#\s\"'@:]{16,200})@", re.IGNORECASE)
"""A name alone, too long for a person's: hosts of code take a token so."""
_ORACLE = re.compile(r"(jdbc:oracle:\w{1,20}:[^/\s\"'@]{0,200}/)([^\s\"'@]{1,400})@", re.IGNORECASE)
_AWS = re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")
_PEM = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)",
    re.DOTALL,
)


class _Learnt:
    """The secrets that this process was told."""

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._longest_first: tuple[str, ...] = ()

    def add(self, values: Iterable[str]) -> None:
        new = {one for value in values for one in (value, quote(value, safe=""), unquote(value))}
        new = {
            one for one in new if len(one) >= LEARNT_CHARS_MIN and one.lower() not in _NO_SECRETS
        }
        if new <= self._values:
            return
        self._values |= new
        self._longest_first = tuple(sorted(self._values, key=len, reverse=True))

    def hidden(self, text: str) -> str:
        # No pattern of all: to compile one takes half a second in a cluster that has had thousands.
        for one in self._longest_first:
            if one in text:
                text = text.replace(one, HIDDEN)
        return text


_learnt = _Learnt()


def learn(values: Iterable[str]) -> None:
    """Hide these values from now on wherever this process shows text through `masked`."""
    _learnt.add(values)


def secrets_in(text: str) -> Iterator[str]:
    """Yield what is a password or the like in Java options, command lines and URLs."""
    for found in _ASSIGNED.finditer(text):
        yield found[2].strip("\"'{}")
    for pattern in (_PARAMETER, _FLAG, _TOKEN, _ORACLE):
        yield from (found[2] for found in pattern.finditer(text))
    yield from (found[1] for found in _PASSWORD.finditer(text))


def masked_words(words: Sequence[str]) -> list[str]:
    """Return the words of a command line as `masked` has them; what follows ``--password`` too."""
    return [
        HIDDEN
        if before is not None and _FLAG_ALONE.fullmatch(before) and not word.startswith("-")
        else masked(word)
        for before, word in zip([None, *words], words, strict=False)
    ]


class WithoutSecrets(logging.Formatter):
    """Hides secrets in each line: others' errors quote what they were given."""

    def format(self, record: logging.LogRecord) -> str:
        """See ``logging.Formatter.format``."""
        return masked(super().format(record))


def log_without_secrets(line: str) -> None:
    """Hide secrets in this process's log lines, and in the traceback with which it may end."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(WithoutSecrets(line))
    sys.excepthook = _show_without_secrets


def _show_without_secrets(
    kind: type[BaseException], error: BaseException, frames: types.TracebackType | None
) -> None:
    sys.stderr.write(masked("".join(traceback.format_exception(kind, error, frames))))


def masked(text: str) -> str:
    """Return the text with every known secret, and everything that looks like one, hidden."""
    text = _learnt.hidden(_PEM.sub(HIDDEN, text))
    for pattern in (_USER, _TOKEN, _ORACLE):
        text = pattern.sub(rf"\1{HIDDEN}@", text)
    text = _BEARER.sub(rf"\1 {HIDDEN}", text)
    text = _ASSIGNED.sub(rf"\1{HIDDEN}", text)
    text = _PARAMETER.sub(rf"\1{HIDDEN}", text)
    text = _FLAG.sub(rf"\1{HIDDEN}", text)
    return _AWS.sub(HIDDEN, text)
