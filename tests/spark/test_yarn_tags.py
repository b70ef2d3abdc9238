"""A tag of ours as YARN's tags: lower case, ASCII, at most 100 characters each."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from understudy.core.executors import Tag
from understudy.spark.managers.yarn import MARK, read, written

WORDS = st.text(max_size=200)
TAGS = st.builds(Tag, WORDS, WORDS, WORDS, st.integers(0, 10**6))


@given(TAGS, st.lists(st.sampled_from(["nightly", "understudy.1", "understudy.x:1"])))
def test_a_tag_is_read_as_it_was_written_in_any_order_and_among_others(
    tag: Tag, others: list[str]
) -> None:
    assert read([*others, *reversed(written(tag))]) == tag


@given(TAGS)
def test_yarn_takes_each_tag_as_it_is(tag: Tag) -> None:
    tags = written(tag)

    assert all(one.isascii() and one == one.lower() and len(one) <= 100 for one in tags)
    assert not any("," in one or " " in one for one in tags)
    assert tags[0] == MARK


def test_what_is_not_ours_is_no_tag() -> None:
    found = [read(tags) for tags in ([], [MARK], ["nightly"], [MARK, f"{MARK}.0:nightly"])]

    assert found == [None] * 4
