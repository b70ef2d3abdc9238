"""The embedded cluster, for plain ``python app.py``."""

from __future__ import annotations

from understudy.runtime.environment import Environment, current


def _embedded() -> Environment:
    raise NotImplementedError


def get_environment() -> Environment:
    """Return the environment of this process."""
    return current.get(_embedded)
