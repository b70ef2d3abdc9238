"""Coordination systems behind the register, one file or package each.

A backend implements ``ha.register.Register`` over one third-party client and knows nothing of
leaders, jobs or results. `config.backends` says what a backend declares, and how one is found.
"""

from __future__ import annotations

from collections.abc import Mapping

from understudy.config import backends
from understudy.config.backends import Serves
from understudy.errors import ConfigurationError
from understudy.ha.register import Register

VERBS = ("load", "swap", "keys", "changes")


def open_register(kind: str, cluster_id: str, settings: Mapping[str, str]) -> Register:
    """Open the register that ``high-availability.type`` names, for one cluster."""
    backend = backends.declared(kind)
    if backend.serves is Serves.PROCESS:
        raise ConfigurationError(
            f"high-availability.type is {kind!r}, whose register only the process sees that opens "
            f"it: a cluster has several processes; choose {backends.choice()}"
        )
    factory = backends.factory(kind, backend)
    try:
        register: Register = factory(cluster_id, settings)
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
