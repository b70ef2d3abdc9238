"""Coordination systems behind the register, one file each.

A backend implements ``ha.register.Register`` over one third-party client and knows nothing of
leaders, jobs or results. It is found by the entry point group ``understudy.backends``, or named
as ``module:factory``; the factory takes the cluster id and the settings (option key to text).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points

from understudy.errors import ConfigurationError
from understudy.ha.register import Register

GROUP = "understudy.backends"
VERBS = ("load", "swap", "keys", "changes")

Factory = Callable[[str, Mapping[str, str]], Register]


def open_register(kind: str, cluster_id: str, settings: Mapping[str, str]) -> Register:
    """Open the register that ``high-availability.type`` names, for one cluster."""
    factory = _factory(kind)
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
    if ":" in kind:
        module, _, name = kind.partition(":")
        try:
            factory: Factory = getattr(importlib.import_module(module), name)
        except Exception as error:  # Whatever a module of others raises when it is imported.
            raise ConfigurationError(
                f"high-availability.type names {kind!r}, which cannot be loaded: {error}"
            ) from error
        return factory
    found = {point.name: point for point in entry_points(group=GROUP)}
    if kind.lower() not in found:
        raise ConfigurationError(
            f"high-availability.type is {kind!r}; known here: {', '.join(sorted(found))}, "
            "or module:factory"
        )
    loaded: Factory = found[kind.lower()].load()
    return loaded
