"""Coordination systems behind the register, one file or package each.

A backend implements ``ha.register.Register`` over one third-party client and knows nothing of
leaders, jobs or results. The entry point group ``understudy.backends`` names the backends;
``module:factory`` names one without an entry point. A factory takes the cluster id and the
settings (option key to text). A factory with `of_one_process` cannot serve a cluster.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from understudy.errors import ConfigurationError
from understudy.ha.register import Register, is_of_one_process

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "understudy.backends"
NONE = "NONE"
"""The type without a backend: one JobManager with its stores in memory."""

OURS = {
    "filesystem": "understudy.ha.backends.filesystem:open_register",
    "zookeeper": "understudy.ha.backends.zookeeper.register:open_register",
}
"""Found without a look at every installed distribution, which takes each process 20 ms."""

OTHERS = "or module:factory"
VERBS = ("load", "swap", "keys", "changes")

Factory = Callable[[str, Mapping[str, str]], Register]


def open_register(kind: str, cluster_id: str, settings: Mapping[str, str]) -> Register:
    """Open the register that ``high-availability.type`` names, for one cluster."""
    factory = _factory(kind)
    if is_of_one_process(factory):
        raise ConfigurationError(
            f"high-availability.type is {kind!r}, whose register only the process sees that opens "
            f"it: a cluster has several processes; choose {_choice(_points())}"
        )
    try:
        register = factory(cluster_id, settings)
    except TypeError as error:
        raise ConfigurationError(
            f"high-availability.type names {kind!r}, which opens no register: {error}"
        ) from error
    if not all(hasattr(register, verb) for verb in VERBS):
        raise ConfigurationError(
            f"high-availability.type names {kind!r}, which opens no register: it lacks one of "
            f"{', '.join(VERBS)}"
        )
    return register


def _factory(kind: str) -> Factory:
    kind = OURS.get(kind.lower(), kind)
    if ":" in kind:
        module, _, name = kind.partition(":")
        try:
            factory: Factory = getattr(importlib.import_module(module), name)
        except Exception as error:  # A foreign module may raise anything when imported.
            raise ConfigurationError(
                f"high-availability.type names {kind!r}, which cannot be loaded: {error}"
            ) from error
        return factory
    found = _points()
    if kind.lower() not in found:
        raise ConfigurationError(
            f"high-availability.type is {kind!r}; known here: {_choice(found)}"
        )
    loaded: Factory = found[kind.lower()].load()
    return loaded


def _points() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # Only for the backends of others.

    return {point.name: point for point in entry_points(group=GROUP)}


def _choice(found: Mapping[str, EntryPoint]) -> str:
    """Return the types that a person may choose, as text."""
    return ", ".join((NONE, *sorted(filter(lambda name: _serves(found[name]), found)), OTHERS))


def _serves(point: EntryPoint) -> bool:
    try:
        return not is_of_one_process(point.load())
    except Exception:  # A foreign module may raise anything; choosing this type reports it.
        return True
