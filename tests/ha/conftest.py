"""What the tests of this room share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ha.electorate import Electorate
from tests.support.kubernetes import fake_api
from tests.support.zookeeper import zookeeper

__all__ = ["fake_api", "zookeeper"]


@pytest.fixture
def them() -> Iterator[Electorate]:
    """A world of contenders; at its end all promises were kept."""
    electorate = Electorate()
    yield electorate
    electorate.end()
