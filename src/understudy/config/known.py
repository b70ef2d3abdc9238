"""The keys that a configuration may hold: the house's, those of backends, and Flink's."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from understudy.config import backends, flink, options
from understudy.config.backends import Backend
from understudy.config.option import Option
from understudy.errors import ConfigurationError


@dataclass(frozen=True)
class Known:
    """What each key is."""

    options: Mapping[str, Option[Any]]
    """By key."""
    successors: Mapping[str, str]
    """Deprecated key → its successor."""
    without_meaning: Mapping[str, str]
    """Key that does nothing here → why; prefixes apart (`flink.reason_without_meaning`)."""
    backends: tuple[Backend, ...]
    """Those of this repository, and the chosen one."""

    def reason_without_meaning(self, key: str) -> str | None:
        """Return why a key does nothing here; None for any other key."""
        return self.without_meaning.get(key) or flink.reason_without_meaning(key)


def known_with(settings: Mapping[str, str]) -> Known:
    """Return the keys that settings may hold which choose this ``high-availability.type``."""
    spellings = [old for old, new in flink.SUCCESSORS.items() if new == options.HA_TYPE.key]
    chosen = (settings[key] for key in (options.HA_TYPE.key, *spellings) if key in settings)
    return _known(next(chosen, options.HA_TYPE.default or "").strip())


@functools.cache
def _known(kind: str) -> Known:
    found = [backend for _, backend in backends.ours()]
    try:
        backend = backends.declared(kind)
    except ConfigurationError:
        pass  # Whoever opens the register reports it.
    else:
        found += [] if backend in found else [backend]
    declared = [*options.OPTIONS, *(option for one in found for option in one.options)]
    return Known(
        options={option.key: option for option in declared},
        successors={**flink.SUCCESSORS, **_merged([one.renamed for one in found])},
        without_meaning=_merged([flink.WITHOUT_MEANING, *(one.without_meaning for one in found)]),
        backends=tuple(found),
    )


def _merged(parts: list[Mapping[str, str]]) -> dict[str, str]:
    return {key: text for part in parts for key, text in part.items()}
