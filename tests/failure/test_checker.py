"""The checker finds forged histories guilty, and a sound one not."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.failure.checker import Final, violations
from tests.failure.history import Event

History = list[Event]


def event(at: float, who: str, what: str, **more: Any) -> Event:
    return Event(at, who, what, more)


_numbers = itertools.count()


def write(
    at: float, who: str, term: int, key: str, verb: str, outcome: str = "done", **more: Any
) -> History:
    """Return a write that takes a tenth of a second."""
    said = {"term": term, "key": key, "verb": verb, "id": next(_numbers), "about": "", "n": 0}
    said |= more
    return [
        event(at, who, "begin", **said),
        event(at + 0.1, who, "end", id=said["id"], outcome=outcome),
    ]


def reign(at: float, who: str, term: int, ended: float, hold: float) -> History:
    return [
        event(at - 0.1, who, "hold", until=hold),
        event(at, who, "grant", term=term),
        *write(at + 0.1, who, term, "registry", "claim"),
        *write(at + 0.3, who, term, "tally-0", "claim"),
        event(ended, who, "revoked", term=term),
    ]


def sound() -> History:
    """Return what two leaders have done, one after the other, and what a retrieval has seen."""
    return [
        *reign(1, "one", 1, ended=9, hold=9),
        event(1.3, "one", "linked", term=1, keys=[]),
        event(1.5, "one", "found", term=1, key="tally-0", counts={}),
        *write(2, "one", 1, "tally-0", "count", n=1),
        *write(3, "one", 1, "application-x", "create"),
        *write(4, "one", 1, "registry", "link", about="application-x"),
        *write(5, "one", 1, "tally-0", "count", n=2),
        event(5, "watcher", "seen", n=0, term=1),
        *write(6, "one", 1, "tally-0", "count", "unknown", n=3),
        *reign(10, "two", 2, ended=30, hold=40),
        event(10.3, "two", "linked", term=2, keys=["application-x"]),
        event(10.5, "two", "found", term=2, key="tally-0", counts={"1": 2}),
        *write(11, "two", 2, "tally-0", "count", n=1),
        event(12, "watcher", "seen", n=0, term=2),
        *write(13, "one", 1, "tally-0", "count", "stale", n=4),
    ]


def end(
    linked: tuple[str, ...] = ("application-x",),
    documents: tuple[str, ...] = ("application-x",),
    counts: dict[str, int] | None = None,
    term: int = 2,
) -> Final:
    return Final(
        frozenset(linked), frozenset(documents), {"tally-0": counts or {"1": 2, "2": 1}}, term
    )


def judged(history: History, final: Final | None = None) -> list[str]:
    return violations(sorted(history, key=lambda one: one.at), final or end())


def changed(history: History, what: str, term: int, **more: Any) -> History:
    """Return it with something else told in the events of a kind and term."""
    return [
        Event(one.at, one.who, one.what, {**one.more, **more})
        if one.what == what and one.get("term") == term
        else one
        for one in history
    ]


def test_a_sound_history_is_not_guilty() -> None:
    assert [] == judged(sound())


ROUND = {
    "story": "7: something",
    "began": 20.0,
    "before": 2,
    "after": 3,
    "recovered_s": 1.0,
    "limit_s": 30.0,
    "harmless": True,
    "busy": False,
    "paused": "",
}

GUILTY: dict[str, tuple[History, Final, str]] = {
    "a late write of an old leader is accepted": (
        [*sound(), *write(14, "one", 1, "tally-0", "count", n=3)],
        end(counts={"1": 3, "2": 1}),
        "though term 2 had touched it before",
    ),
    "an old leader links something": (
        [*sound(), *write(14, "one", 1, "registry", "link", about="application-y")],
        end(
            linked=("application-x", "application-y"), documents=("application-x", "application-y")
        ),
        "registry: link of term 1 by one was acknowledged",
    ),
    "a write is not found by the next leader": (
        changed(sound(), "found", 2, counts={"1": 1}),
        end(),
        "write 2 of term 1 was acknowledged, and term 2 finds 1",
    ),
    "a write is not there at the end": (sound(), end(counts={"1": 1, "2": 1}), "the end finds 1"),
    "a document is gone at the end": (
        sound(),
        end(documents=()),
        "application-x is linked and gone, at the end",
    ),
    "a leader finds a document gone": (
        [*sound(), event(10.4, "two", "missing", term=2, key="application-x", why="absent")],
        end(),
        "application-x is linked and gone, finds term 2",
    ),
    "a link is not found by the next leader": (
        changed(sound(), "linked", 2, keys=[]),
        end(),
        "its link was acknowledged, and term 2 does not find it",
    ),
    "a link is not there at the end": (
        sound(),
        end(linked=()),
        "its link was acknowledged, and the end does not find it",
    ),
    "what was unlinked is back": (
        [*sound(), *write(15, "two", 2, "registry", "unlink", about="application-x")],
        end(),
        "application-x: it was unlinked, and the end finds it linked",
    ),
    "a term has two holders": (
        [*sound(), *reign(31, "three", 2, ended=32, hold=33)],
        end(),
        "term 2 was granted to three after term 2 to two",
    ),
    "terms fall": (
        [*sound(), *reign(31, "three", 1, ended=32, hold=33)],
        end(),
        "term 1 was granted to three after term 2 to two",
    ),
    "two act at once": (
        [one for one in sound() if (one.who, one.what) not in {("one", "revoked"), ("one", "hold")}]
        + [event(0.9, "one", "hold", until=11)],
        end(),
        "term 1 (one) acted for 1.000 s after term 2 (two) was granted",
    ),
    "a retrieval sees terms fall": (
        [
            *sound(),
            event(13, "watcher", "seen", n=0, term=1),
            event(14, "watcher", "seen", n=0, term=2),
        ],
        end(),
        "watcher has seen terms fall: [1, 2, 1, 2]",
    ),
    "a retrieval is left behind": (
        [*sound(), event(13, "late", "seen", n=0, term=1)],
        end(),
        "late ends at term 1, not at 2",
    ),
    "nobody leads after a fault": (
        [*sound(), event(29, "nemesis", "round", **{**ROUND, "after": 2, "recovered_s": None})],
        end(),
        "7: something: nobody led within 30 s after it was over",
    ),
    "a little ends a leadership": (
        [*sound(), event(29, "nemesis", "round", **ROUND)],
        end(),
        "term 2 ended, though this is to be borne",
    ),
    "a process has ended by itself": (
        [*sound(), event(29, "nemesis", "odd", sentence="contender-a has ended with 1")],
        end(),
        "contender-a has ended with 1",
    ),
}


@pytest.mark.parametrize("crime", GUILTY)
def test_a_forged_history_is_guilty(crime: str) -> None:
    history, final, expected = GUILTY[crime]

    actual = judged(history, final)

    assert any(expected in sentence for sentence in actual), actual


def test_what_may_be() -> None:
    """A death ends a reign; so does its hold; who was robbed cannot know; a lag explains an end."""
    late = [one for one in sound() if (one.who, one.what) != ("one", "revoked")]
    forever = [one for one in late if (one.who, one.what) != ("one", "hold")]
    busy = event(29, "nemesis", "round", **{**ROUND, "busy": True})
    held_up = [event(25, "two", "lag", seconds=1.0), event(29, "nemesis", "round", **ROUND)]

    assert [] == judged(late)
    assert [] == judged([*forever, event(9.5, "nemesis", "dead", of="one", by=9.4, code=-9)])
    assert [] == judged([*forever, event(9.5, "nemesis", "robbed", term=1)])
    assert [] == judged([*sound(), *held_up])
    assert [] == judged([*sound(), busy])
