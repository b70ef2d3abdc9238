"""The control plane of this pytest process, and the order of what needs one."""

import pytest

from tests.kubernetes.control_plane import kubernetes
from tests.support.order import longest_first

__all__ = ["kubernetes"]

LONGEST = ("page", "deploying", "page_targets", "flip_144", "native")
"""Files that begin first: whole clusters in pods."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest, so far as pytest-xdist keeps that order."""
    items[:] = longest_first(items, LONGEST)
