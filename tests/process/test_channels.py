"""The ends of a channel: which of them stay open."""

from __future__ import annotations

import pytest

from understudy.process import channels


def test_once_the_child_has_its_end_only_the_parent_s_stays_open() -> None:
    with channels.pair() as (mine, theirs):
        pass

    with mine:
        assert (-1, False) == (theirs.fileno(), mine.fileno() == -1)


def test_where_the_child_cannot_be_started_no_end_stays_open() -> None:
    with pytest.raises(OSError, match="no process"), channels.pair() as (mine, theirs):
        raise OSError("no process")

    assert (-1, -1) == (mine.fileno(), theirs.fileno())
