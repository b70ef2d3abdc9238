"""The backends behind ``high-availability.type``: what each declares, and where it is found.

A backend is one package, and one line: in `OURS` for a backend of this repository, else an entry
point in the group ``understudy.backends``. ``module:name`` names one without an entry point. The
line leads to a `Backend`, or to a function that opens a register: a backend without options.
docs/backends.md says how to write one.
"""

from __future__ import annotations

import enum
import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from understudy.config.option import Option
from understudy.errors import ConfigurationError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from understudy.config.configuration import Configuration

GROUP = "understudy.backends"

NONE = "NONE"
"""The type without a backend: one JobManager with its stores in memory."""

OURS = {
    "filesystem": "understudy.ha.backends.filesystem:BACKEND",
    "zookeeper": "understudy.ha.backends.zookeeper:BACKEND",
    "kubernetes": "understudy.ha.backends.kubernetes:BACKEND",
}
"""Found without a look at every installed distribution, which takes each process 20 ms."""

OTHERS = "or module:name"

Factory = Callable[[str, Mapping[str, str]], Any]
"""Opens the register of a cluster: takes the cluster id and the settings (option key to text)."""


class Serves(enum.Enum):
    """Which processes see what another one has written to the register."""

    PROCESS = "the process that has opened it"
    HOST = "the processes of one host"
    HOSTS = "processes on several hosts"


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long a process that starts, or a command, tries to reach the backend."""

    bound_s: float
    key: str
    """The option that sets the bound, for messages."""
    pause_max_s: float
    """Longest pause between two attempts, in seconds."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the register is, the same for all its users; without secrets."""

    servers: tuple[str, ...] = ()
    """``host:port`` of each, sorted."""
    path: str = ""


@dataclass(frozen=True, kw_only=True)
class Backend:
    """What a backend declares of itself."""

    register: str | Factory
    """The function that opens a register; ``module:function`` is imported when one is opened."""
    serves: Serves = Serves.HOSTS
    in_storage: bool = False
    """Whether the register lies below ``high-availability.storageDir``."""
    options: tuple[Option[Any], ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Deprecated key → its successor."""
    without_meaning: Mapping[str, str] = field(default_factory=dict)
    """Known key that does nothing → why."""
    check: Callable[[Configuration], None] | None = None
    """Raises `ConfigurationError` if the options contradict each other; adds warnings.

    A backend of this repository is asked whichever type is chosen.
    """
    session_s: Callable[[Configuration], float] | None = None
    """The timeout of the session that a leader holds; None: a leader renews a lease."""
    lease: tuple[Option[float], Option[float], Option[float]] | None = None
    """The backend's own options of lease duration, renew deadline and retry period; one that is
    unset has the value of the common option."""
    patience: Callable[[Configuration], Patience] | None = None
    """None: the backend answers at once, or not at all."""
    place: Callable[[Configuration], Place] | None = None
    """None: the type and the cluster id say all."""
    example: Mapping[str, str] = field(default_factory=dict)
    """The settings that somebody needs who chooses this type, for messages."""


STANDALONE = Backend(register="", serves=Serves.HOST)
"""What `NONE` declares: nothing is opened, nobody else is reached."""


def declared(kind: str) -> Backend:
    """Return what ``high-availability.type`` names.

    Raises `ConfigurationError` if nothing has this name, or its module cannot be loaded.
    """
    if kind.upper() == NONE:
        return STANDALONE
    name = OURS.get(kind.lower(), kind)
    if ":" in name:
        return _backend(_loaded(name))
    found = _points()
    if kind.lower() not in found:
        raise ConfigurationError(f"high-availability.type is {kind!r}; known here: {choice()}")
    try:
        return _backend(found[kind.lower()].load())
    except Exception as error:  # A foreign module may raise anything when imported.
        raise _unloadable(kind, error) from error


def ours() -> Iterator[tuple[str, Backend]]:
    """Yield name and declaration of each backend of this repository."""
    return ((name, declared(name)) for name in OURS)


def choice() -> str:
    """Return the types that a cluster may have, as text."""
    served = (name for name, point in _points().items() if _serves_clusters(point))
    return ", ".join((NONE, *sorted({*OURS, *served}), OTHERS))


def examples() -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the backends of this repository that serve several hosts, with what each needs."""
    for name, backend in ours():
        if backend.serves is Serves.HOSTS:
            yield name, backend.example


def factory(kind: str, backend: Backend) -> Factory:
    """Return the function that opens a backend's registers; raises `ConfigurationError`."""
    found: Factory = (
        _loaded(backend.register) if isinstance(backend.register, str) else backend.register
    )
    if not callable(found):
        raise ConfigurationError(f"high-availability.type names {kind!r}, which opens no register")
    return found


def _loaded(name: str) -> Any:
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:  # A foreign module may raise anything when imported.
        raise _unloadable(name, error) from error


def _unloadable(name: str, error: Exception) -> ConfigurationError:
    return ConfigurationError(
        f"high-availability.type names {name!r}, which cannot be loaded: {error}"
    )


def _backend(found: Any) -> Backend:
    return found if isinstance(found, Backend) else Backend(register=found)


def _points() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # Only for the backends of others.

    return {point.name: point for point in entry_points(group=GROUP)}


def _serves_clusters(point: EntryPoint) -> bool:
    try:
        return _backend(point.load()).serves is not Serves.PROCESS
    except Exception:  # A foreign module may raise anything; choosing this type reports it.
        return True
