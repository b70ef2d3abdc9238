"""The configuration: settings with known keys, right types, valid relations and hidden secrets."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from understudy.config import backends, options, secrets, security
from understudy.config.backends import NONE, Backend
from understudy.config.known import Known, known_with
from understudy.config.option import Option, local_path
from understudy.config.secrets import HIDDEN, masked
from understudy.errors import ConfigurationError

T = TypeVar("T")

CONFIG_FILE = "config.yaml"
REDACTED = HIDDEN
KILL_MARGIN_S = 2.0
"""How long a guardian may need to kill and reap a process tree."""

_STANDALONE_ONLY = (
    options.RPC_PORT,
    options.REST_PORT,
)

RATE_FAILURES_MAX = 100
"""Most failures that failure-rate stores for a job: a document in the register holds 200 jobs."""

RESULT_BYTES_MAX = 32 << 20
"""Upper bound of ``job.result.max-size``: a value reaches ``main`` in one message of the wire."""

SHOWN_CHARS_MAX = 80
"""Longest part of a refused key or value that a message shows."""

NESTED_MAX = 50
"""Deepest nesting, deeper than any key: a YAML file may contain itself."""

_SECRET_PARTS = (
    "password",
    "secret",
    "fs.azure.account.key",
    "apikey",
    "api-key",
    "auth-params",
    "service-key",
    "token",
    "basic-auth",
    "jaas.config",
    "http-headers",
    "access-key",
    "access.key",
    "accesskey",
    "credential",
    "client.authorization",
)
_USERINFO = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s]*@")
"""The beginning of a URL that contains credentials: ``https://user:password@host``."""


class Configuration:
    """Settings that are checked as a whole; immutable."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        """Check the settings; raises `ConfigurationError` that names key, value and way out."""
        self.warnings: list[str] = []
        self._written: dict[str, str] = {}
        """Key → the deprecated spelling that the user wrote."""
        self._known = known_with(settings or {})
        self.settings = self._resolved(dict(settings or {}))
        self._values = {key: self._parsed(key, text) for key, text in self.settings.items()}
        self._check_relations()

    def get(self, option: Option[T]) -> T:
        """Return the value of an option that is set or has a default."""
        value = self.find(option)
        assert value is not None, f"{option.key} has no default: use find"
        return value

    def find(self, option: Option[T]) -> T | None:
        """Return the value of an option, None if it is unset and has no default."""
        if option.key in self._values:
            value: T = self._values[option.key]  # type: ignore[assignment]
            return value
        return None if option.default is None else option.parse(option.default)

    def with_settings(self, settings: Mapping[str, str]) -> Configuration:
        """Return this configuration with some settings added or replaced."""
        return Configuration({**self.settings, **settings})

    def passed_on(self, prefix: str) -> dict[str, str]:
        """Return the settings with a prefix, which another program reads."""
        return {key: text for key, text in self.settings.items() if key.startswith(prefix)}

    def redacted(self) -> dict[str, str]:
        """Return the settings, with the values of secrets hidden."""
        further = self.get(options.REDACTED_KEYS)
        return redact(self.settings, further)

    @property
    def is_standalone(self) -> bool:
        """Return whether the cluster has one JobManager without standbys."""
        return self.get(options.HA_TYPE).upper() == NONE

    @property
    def stays(self) -> bool:
        """Return whether the cluster stays when its applications have ended."""
        return self.get(options.SESSION) or not self.get(options.SHUTDOWN_ON_FINISH)

    @property
    def backend(self) -> Backend:
        """Return what ``high-availability.type`` names; raises `ConfigurationError`."""
        return backends.declared(self.get(options.HA_TYPE))

    @property
    def storage_dir(self) -> str:
        """Return ``high-availability.storageDir`` or its default."""
        return self.find(options.STORAGE_DIR) or local_path(str(state_home() / "ha"))

    @property
    def log_dir(self) -> Path:
        """Return ``env.log.dir`` or its default."""
        configured = self.find(options.LOG_DIR)
        return Path(configured) if configured else state_home() / "logs"

    def _resolved(self, settings: dict[str, str]) -> dict[str, str]:
        resolved: dict[str, str] = {}
        for key, text in settings.items():
            if key in self._known.options or key.startswith(options.OPEN):
                resolved[key] = text
            elif successor := self._known.successors.get(key):
                self.warnings.append(
                    f"{key} is deprecated: use {successor}"
                    + (", which is set too and wins" if successor in settings else "")
                )
                if successor not in settings:
                    self._written.setdefault(successor, key)
                    resolved.setdefault(successor, text)
            elif reason := self._known.reason_without_meaning(key):
                self.warnings.append(f"{key} does nothing here: {reason}")
            else:
                raise ConfigurationError(f"unknown option {quoted(key)}{self._nearest(key)}")
        return resolved

    def _nearest(self, key: str) -> str:
        if len(key) > SHOWN_CHARS_MAX:
            return "; docs/configuration.md lists all options"
        known = [*self._known.options, *self._known.successors]
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
        return (
            f"; did you mean {near[0]!r}?" if near else "; docs/configuration.md lists all options"
        )

    def _parsed(self, key: str, text: str) -> object:
        option = self._known.options.get(key)
        if option is None:
            _check_passed_on(key, text)
            return text
        try:
            return option.parse(text)
        except ValueError as error:
            shown = _shown(key, text, ())
            shown = shown if shown == REDACTED else quoted(shown)
            written = self._written.get(key, key)
            raise ConfigurationError(f"{written} is {shown}: expected {error}") from None

    def _check_relations(self) -> None:
        orphan, grace = self.get(options.ORPHAN_TIMEOUT), self.get(options.ADOPTION_GRACE)
        needed = orphan * 1.05 + KILL_MARGIN_S
        if grace <= needed:
            raise ConfigurationError(
                f"jobmanager.adoption-grace ({grace:g} s) must be longer than {needed:g} s, that "
                f"is taskmanager.orphan-timeout ({orphan:g} s) × 1.05 + {KILL_MARGIN_S:g} s for "
                "the kill: a leader may not restart a job while a driver may still run it"
            )
        interval = self.get(options.HEARTBEAT_INTERVAL)
        if interval * 2 >= orphan:
            raise ConfigurationError(
                f"heartbeat.interval ({interval:g} s) must be shorter than half of "
                f"taskmanager.orphan-timeout ({orphan:g} s), or one late answer kills the drivers"
            )
        for first, last in (
            (options.EXPONENTIAL_INITIAL, options.EXPONENTIAL_MAX),
            (options.CLEANUP_INITIAL, options.CLEANUP_MAX),
        ):
            initial, longest = self.get(first), self.get(last)
            if initial > longest:
                raise ConfigurationError(
                    f"{first.key} ({initial:g} s) must not be longer than {last.key} "
                    f"({longest:g} s)"
                )
        multiplier = self.get(options.EXPONENTIAL_MULTIPLIER)
        if multiplier < 1:
            raise ConfigurationError(
                f"{options.EXPONENTIAL_MULTIPLIER.key} is {multiplier:g}: it must be at least 1, "
                "or pauses would become shorter"
            )
        jitter = self.get(options.EXPONENTIAL_JITTER)
        if jitter > 1:
            raise ConfigurationError(
                f"{options.EXPONENTIAL_JITTER.key} is {jitter:g}: it must be at most 1, or pauses "
                "would be negative"
            )
        result_size = self.get(options.RESULT_MAX_SIZE)
        if result_size > RESULT_BYTES_MAX:
            raise ConfigurationError(
                f"{options.RESULT_MAX_SIZE.key} is {result_size} bytes: it must be at most "
                f"{RESULT_BYTES_MAX >> 20} mb, larger data belongs in files or tables"
            )
        self._check_failure_rate()
        self._check_standalone()
        for backend in self._known.backends:
            if backend.check:
                backend.check(self)
        security.check(self)

    def warn_of_orphans(self, option: Option[float], takeover_s: float) -> None:
        """Warn if drivers end before a standby takes over from a lost host: ``option`` sets when.

        For the check of a backend.
        """
        orphan_s = self.get(options.ORPHAN_TIMEOUT)
        if takeover_s >= orphan_s:
            self.warnings.append(
                f"{option.key} ({takeover_s:g} s) is not shorter than "
                f"{options.ORPHAN_TIMEOUT.key} ({orphan_s:g} s): when the leader's host is lost, "
                "the drivers end before somebody else leads, and their jobs start again"
            )

    def _check_standalone(self) -> None:
        if self.is_standalone and self.get(options.SESSION):
            raise ConfigurationError(
                f"{options.SESSION.key} is true, and {options.HA_TYPE.key} is {NONE}: what a "
                "session has taken would be lost with its JobManager; choose another type"
            )
        if not self.is_standalone:
            self.warnings += [
                f"{option.key} does nothing here: leaders are found by retrieval"
                for option in _STANDALONE_ONLY
                if option.key in self.settings
            ]
        if not security.links_over_tcp(self):
            idle = [options.JOBMANAGER_PORT.key]
            if not self.is_standalone and not security.is_loopback(self.get(options.RPC_ADDRESS)):
                idle.append(options.RPC_ADDRESS.key)
            self.warnings += [
                f"{key} does nothing here: {options.BIND_HOST.key} names no address that others "
                "reach, so links are Unix sockets"
                for key in idle
                if key in self.settings
            ]

    def _check_failure_rate(self) -> None:
        """Reject a rate that can never be reached: a function that always raises must end."""
        failures = self.get(options.RATE_FAILURES)
        if failures > RATE_FAILURES_MAX:
            raise ConfigurationError(
                f"{options.RATE_FAILURES.key} is {failures}: it must be at most "
                f"{RATE_FAILURES_MAX}, as each failure is kept in the register"
            )
        delay, interval = self.get(options.RATE_DELAY), self.get(options.RATE_INTERVAL)
        if delay * failures >= interval:
            raise ConfigurationError(
                f"{options.RATE_INTERVAL.key} ({interval:g} s) must be longer than "
                f"{delay * failures:g} s, that is {options.RATE_DELAY.key} ({delay:g} s) × "
                f"{options.RATE_FAILURES.key} ({failures}), or failures would be too far apart "
                "for the job ever to be declared failed"
            )


def load_configuration(directory: Path | None, overrides: Iterable[str]) -> Configuration:
    """Read ``config.yaml`` of a directory (nested or dotted keys), then ``key=value`` overrides."""
    given: dict[str, str] = {}
    for override in overrides:
        key, separator, text = override.partition("=")
        if not separator or not key.strip():
            raise ConfigurationError(f"-D {quoted(masked(override))}: expected key=value")
        given[key.strip()] = text
    settings = {} if directory is None else _read_file(directory / CONFIG_FILE, given)
    # An override wins over the file, in either spelling.
    successors = known_with({**settings, **given}).successors
    overridden = {successors.get(key, key) for key in given}
    kept = {
        key: text for key, text in settings.items() if successors.get(key, key) not in overridden
    }
    return Configuration({**kept, **given})


def redact(settings: Mapping[str, str], further: Iterable[str] = ()) -> dict[str, str]:
    """Hide the values of keys that look like secrets (Flink's list and Spark's), and in URLs.

    A URL with a user or a password is hidden; of ``notify.url`` only the host is shown.
    """
    parts = tuple(part.lower() for part in further)
    return {key: _shown(key, text, parts) for key, text in settings.items()}


def learn_secrets(settings: Mapping[str, str], further: tuple[str, ...]) -> None:
    """Let this process hide the secrets of these settings wherever it shows text.

    ``further``: what the cluster's ``security.redaction.additional-keys`` says, in every process.
    """
    parts = tuple(part.lower() for part in further)
    secrets.learn(
        text
        for key, value in settings.items()
        for text in ((value,) if _is_secret(key, parts) else secrets.secrets_in(value))
    )


def quoted(text: str) -> str:
    """Return text for an error message: quoted on one line, and shortened."""
    if len(text) <= SHOWN_CHARS_MAX:
        return repr(text)
    return f"{text[:SHOWN_CHARS_MAX]!r}… ({len(text):,} characters)"


def state_home(variables: Mapping[str, str] = os.environ) -> Path:
    """Return Understudy's state directory, below $XDG_STATE_HOME or ~/.local/state.

    Raises `ConfigurationError` for a user without a home directory.
    """
    base = variables.get("XDG_STATE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".local" / "state") / "understudy"
    except RuntimeError as error:
        raise ConfigurationError(
            f"this user (uid {os.getuid()}) has no home directory: set HOME, or XDG_STATE_HOME"
        ) from error


def cache_home() -> Path:
    """Return Understudy's cache directory, below $XDG_CACHE_HOME or ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # As its specification demands, a relative one is ignored.
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "understudy"


def is_a_secret(key: str, further: Iterable[str]) -> bool:
    """Return whether the value of a key is hidden wherever it is shown."""
    return _is_secret(key, tuple(part.lower() for part in further))


def _is_secret(key: str, further: tuple[str, ...]) -> bool:
    # The path of the secret file is not a secret, and is needed to repair the file.
    is_a_name = key == options.SECRET_FILE.key or key in options.NAMES_OF_SECRETS
    built_in = () if is_a_name else _SECRET_PARTS
    return any(part in key.lower() for part in (*built_in, *further))


def _shown(key: str, text: str, further: tuple[str, ...]) -> str:
    """Return a value for display, with secrets hidden."""
    if _is_secret(key, further) or _USERINFO.search(text):
        return REDACTED
    if key != options.NOTIFY_URL.key:
        return masked(text)
    try:
        address = urlsplit(text.strip())
    except ValueError:
        return REDACTED
    if not address.netloc or not (address.path.strip("/") or address.query or address.fragment):
        return text
    return f"{address.scheme}://{address.netloc}/{REDACTED}"


def _check_passed_on(key: str, text: str) -> None:
    """Raise `ConfigurationError` for text that cannot be passed to another process."""
    for part in (key, text):
        if "\0" in part or _is_no_text(part):
            raise ConfigurationError(
                f"{quoted(key)} holds a NUL or what is no UTF-8: no process can be given that"
            )


def _is_no_text(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _read_file(path: Path, overrides: Mapping[str, str]) -> dict[str, str]:
    from understudy.config import yaml_text  # Only commands read files, and some of them.

    try:
        loaded = yaml_text.parsed(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        said = " ".join(str(error).split())
        raise ConfigurationError(f"{path}: not valid YAML: {said}") from error
    except RecursionError as error:
        raise ConfigurationError(f"{path}: not valid YAML: it is nested too deeply") from error
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise ConfigurationError(f"{path}: expected keys and values, found {type(loaded).__name__}")
    first = dict(_flattened("", loaded, path, NESTED_MAX, known_with(overrides)))
    known = known_with({**first, **overrides})  # The chosen backend may have maps and lists.
    settings: dict[str, str] = {}
    for key, text in _flattened("", loaded, path, NESTED_MAX, known):
        if key in settings:
            raise ConfigurationError(f"{path}: {key} is there twice")
        settings[key] = text
    return settings


def _flattened(
    prefix: str, node: Mapping[object, object], path: Path, deeper: int, known: Known
) -> Iterable[tuple[str, str]]:
    if not deeper:
        raise ConfigurationError(f"{path}: {quoted(prefix)} is nested deeper than {NESTED_MAX}")
    for name, value in node.items():
        key = f"{prefix}{name}"
        option = known.options.get(known.successors.get(key, key))
        if isinstance(value, dict) and option and option.kind.takes_maps:
            yield key, ",".join(f"{name}:{text}" for name, text in value.items())
        elif isinstance(value, dict):
            yield from _flattened(f"{key}.", value, path, deeper - 1, known)
        elif isinstance(value, list):
            if option and not option.kind.takes_lists:
                raise ConfigurationError(f"{path}: {key} must be one value, not a list")
            if not all(isinstance(item, str) for item in value):
                raise ConfigurationError(f"{path}: {key} must be a list of plain values")
            yield key, ",".join(value)
        elif value is None:
            raise ConfigurationError(f"{path}: {key} has no value")
        else:
            yield key, str(value)
