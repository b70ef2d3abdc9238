"""Crash points at which a run has ended otherwise once, by the code or by a mutant of it."""

from __future__ import annotations

import pytest

from tests.crash.judging import struck, undisturbed
from tests.crash.points import Manner, Strike
from tests.crash.quiet import Combination

KEPT = [
    # The draft of a tombstone's file stayed: nobody looked there.
    (Combination(1, "finished", False), Manner.HALF_DONE, "publish", "flights/tombstones/"),
    # ... and that of a result, which kept its directory until it was a minute old.
    (Combination(1, "failed", False), Manner.HALF_DONE, "publish", "job-result-store/"),
    # The last leader tried to remove its record once; nobody came after it.
    (Combination(0, "finished", False), Manner.REFUSED, "remove", "leader"),
]


@pytest.mark.parametrize(("combination", "manner", "verb", "subject"), KEPT)
def test_the_end_is_the_same_whatever_becomes_of_that_write(
    combination: Combination, manner: Manner, verb: str, subject: str
) -> None:
    last = [
        write
        for write in undisturbed(combination).writes
        if write.verb == verb and write.subject.startswith(subject)
    ][-1]
    _, wrong = struck(combination, {last.number: Strike(manner)})

    assert not wrong, wrong
