"""Documents stamped with a term: who may write, and what becomes of a write without an answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine

import msgspec
import pytest

from tests.support.faulty_register import Died, Durable, Fault, Faults, FaultyRegister
from tests.support.virtual_time import run_virtual
from understudy.errors import (
    Conflict,
    CorruptDataError,
    DataError,
    LeadershipLost,
    LostDataError,
    NewerFormatError,
    NotFoundError,
    TooLargeError,
)
from understudy.ha.documents import UNKNOWN_RETRIES_MAX, Document, Stamped
from understudy.ha.format import Format
from understudy.ha.register import VALUE_BYTES_MAX, Entry, Register
from understudy.ha.services import BoundedRegister


class Body(msgspec.Struct, frozen=True):
    """A document's body."""

    words: tuple[str, ...] = ()


class Ground:
    """A register and those who write into it."""

    def __init__(self) -> None:
        self.durable = Durable()

    def document(self, plan: dict[int, Fault] | None = None) -> Document[Body]:
        """Open the document as one more process, some of whose calls fail."""
        register, _ = self.durable.process(Faults(plan or {}))
        return Document(register, "doc-1", "doc", Body)

    async def existing(self, *words: str, term: int = 1) -> None:
        """Create the document."""
        await self.document().create(term, Body(words))

    async def words(self) -> tuple[str, ...] | None:
        """Return what the register holds."""
        body = await self.document().read()
        return body.words if body else None


class LateRegister(FaultyRegister):
    """A register that holds back the answers of loads that were sent while ``late`` was set."""

    def __init__(self, register: Register) -> None:
        super().__init__(register, Faults())
        self.late = False
        self.looked, self.answering = asyncio.Event(), asyncio.Event()

    async def load(self, key: str) -> Entry | None:
        """Load at once, and answer when told to."""
        late = self.late
        entry = await super().load(key)
        if late:
            self.looked.set()
            await self.answering.wait()
        return entry


def adding(word: str) -> Callable[[Body], Body]:
    return lambda body: Body((*body.words, word))


def run(work: Callable[[Ground], Coroutine[object, object, None]]) -> None:
    run_virtual(work(Ground()))


def test_a_created_document_is_read_by_anybody_with_its_stamp() -> None:
    async def work(ground: Ground) -> None:
        await ground.document().create(7, Body(("a",)))

        assert Body(("a",)) == await ground.document().read()
        assert 7 == await ground.document().stamp()

    run(work)


def test_an_absent_document_reads_as_none_and_has_no_stamp() -> None:
    async def work(ground: Ground) -> None:
        assert await ground.document().read() is None
        assert await ground.document().peek() is None
        assert 0 == await ground.document().stamp()

    run(work)


def test_a_document_is_not_created_twice() -> None:
    async def work(ground: Ground) -> None:
        await ground.existing("first")
        with pytest.raises(Conflict, match="exists already"):
            await ground.document().create(2, Body(("second",)))

        assert ("first",) == await ground.words()

    run(work)


class Doubling(FaultyRegister):
    """A register on the way to which each request is sent twice: the second one is answered."""

    async def swap(self, key: str, value: bytes | None, expected: str | None) -> str:
        """See `Register.swap`."""
        with contextlib.suppress(Conflict):
            await super().swap(key, value, expected)
        return await super().swap(key, value, expected)


def test_a_write_that_was_sent_twice_on_the_way_is_done_once_and_is_ones_own() -> None:
    async def work(ground: Ground) -> None:
        document = Document(Doubling(ground.durable.register, Faults()), "doc-1", "doc", Body)
        await document.create(1, Body(("a",)))
        updated = await document.update(1, adding("b"))

        assert Body(("a", "b")) == updated
        assert ("a", "b") == await ground.words()
        await document.delete(1)
        assert await ground.words() is None

    run(work)


def test_update_never_creates() -> None:
    async def work(ground: Ground) -> None:
        for write in (ground.document().update(9, adding("a")), ground.document().claim(9)):
            with pytest.raises(NotFoundError, match="doc-1"):
                await write

        assert await ground.words() is None

    run(work)


def test_an_update_returns_the_new_body_and_stamps_its_term() -> None:
    async def work(ground: Ground) -> None:
        await ground.existing("a")

        assert Body(("a", "b")) == await ground.document().update(3, adding("b"))
        assert ("a", "b") == await ground.words()
        assert 3 == await ground.document().stamp()

    run(work)


def test_a_claim_shuts_out_the_older_term_and_returns_what_it_left() -> None:
    async def work(ground: Ground) -> None:
        old, new = ground.document(), ground.document()
        await old.create(1, Body(("a",)))
        await old.update(1, adding("b"))

        assert Body(("a", "b")) == await new.claim(2)

        for write in (old.update(1, adding("late")), old.claim(1), old.delete(1)):
            with pytest.raises(LeadershipLost, match="term 2 is newer than 1"):
                await write
        assert ("a", "b") == await ground.words()

    run(work)


def test_a_claim_sees_what_was_written_since_the_document_was_last_seen() -> None:
    async def work(ground: Ground) -> None:
        standby = ground.document()
        await ground.existing("a")
        await standby.read()
        await ground.document().update(1, adding("b"))

        assert Body(("a", "b")) == await standby.claim(2)

    run(work)


def test_a_claim_of_a_term_that_wrote_the_document_writes_nothing() -> None:
    async def work(ground: Ground) -> None:
        await ground.existing("a")
        writes = len(ground.durable.history)
        await ground.document().claim(1)

        assert writes == len(ground.durable.history)

    run(work)


def test_a_paused_leader_that_wakes_between_reading_and_writing_is_refused() -> None:
    async def work(ground: Ground) -> None:
        old = ground.document()
        await old.create(1, Body(("a",)))
        await ground.document().claim(2)
        await ground.document().update(2, adding("new"))
        with pytest.raises(LeadershipLost):
            await old.update(1, adding("late"))

        assert ("a", "new") == await ground.words()

    run(work)


def test_a_lost_race_within_a_term_is_run_again_on_what_the_winner_left() -> None:
    async def work(ground: Ground) -> None:
        one, other = ground.document(), ground.document()
        await one.create(1, Body())
        await other.read()
        await one.update(1, adding("a"))

        assert Body(("a", "b")) == await other.update(1, adding("b"))

    run(work)


def test_updates_of_tasks_are_done_one_after_the_other() -> None:
    async def work(ground: Ground) -> None:
        faults = Faults()
        document = Document(ground.durable.process(faults)[0], "doc-1", "doc", Body)
        await document.create(1, Body())
        await asyncio.gather(*(document.update(1, adding(str(n))) for n in range(20)))
        words = await ground.words()

        assert words is not None
        assert {str(n) for n in range(20)} == set(words)
        assert 21 == len(faults.calls), "no race was lost: one swap each"

    run(work)


def test_a_leader_alone_needs_one_swap_and_no_load_for_an_update() -> None:
    async def work(ground: Ground) -> None:
        faults = Faults()
        register, _ = ground.durable.process(faults)
        document = Document(register, "doc-1", "doc", Body)
        await document.create(1, Body())
        await document.update(1, adding("a"))
        await document.peek()

        assert ["create", "swap"] == [call.verb for call in faults.calls]

    run(work)


# --- answers that do not arrive -------------------------------------------------------------------


@pytest.mark.parametrize("lost", range(1, UNKNOWN_RETRIES_MAX))
@pytest.mark.parametrize("first", [Fault.ANSWER_LOST, Fault.FAILS])
def test_a_write_without_an_answer_is_done_once(lost: int, first: Fault) -> None:
    async def work(ground: Ground) -> None:
        await ground.existing("a")
        plan = {1: first} | dict.fromkeys(range(2, lost + 1), Fault.FAILS)
        document = ground.document(plan)

        assert Body(("a", "b")) == await document.update(1, adding("b"))
        assert ("a", "b") == await ground.words()
        assert Body(("a", "b", "c")) == await document.update(1, adding("c"))

    run(work)


@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.FAILS])
def test_a_creation_without_an_answer_is_done_once(fault: Fault) -> None:
    async def work(ground: Ground) -> None:
        document = ground.document({0: fault})
        await document.create(1, Body(("a",)))

        assert ("a",) == await ground.words()
        assert Body(("a", "b")) == await document.update(1, adding("b"))

    run(work)


def test_a_register_that_goes_on_failing_is_an_unknown_outcome_and_the_next_write_reads_first() -> (
    None
):
    async def work(ground: Ground) -> None:
        await ground.existing("a")
        failing = dict.fromkeys(range(2, UNKNOWN_RETRIES_MAX + 1), Fault.FAILS)
        document = ground.document({1: Fault.ANSWER_LOST} | failing)
        with pytest.raises(TimeoutError):
            await document.update(1, adding("b"))

        assert Body(("a", "b", "c")) == await document.update(1, adding("c"))

    run(work)


def test_a_write_that_was_lost_to_a_newer_term_is_a_lost_leadership() -> None:
    async def work(ground: Ground) -> None:
        await ground.existing("a")
        document = ground.document({1: Fault.FAILS})
        writing = asyncio.ensure_future(document.update(1, adding("b")))
        await asyncio.sleep(0.01)  # Its first try has failed; it pauses before the second.
        await ground.document().claim(2)
        with pytest.raises(LeadershipLost):
            await writing

        assert ("a",) == await ground.words()

    run(work)


@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.FAILS])
def test_a_deletion_without_an_answer_may_be_repeated(fault: Fault) -> None:
    async def work(ground: Ground) -> None:
        await ground.existing("a")
        document = ground.document({1: fault})
        with pytest.raises(TimeoutError):
            await document.delete(1)
        await document.delete(1)
        await document.delete(1)

        assert await ground.words() is None

    run(work)


def test_a_deletion_that_loses_a_race_within_its_term_is_done_all_the_same() -> None:
    async def work(ground: Ground) -> None:
        document = ground.document()
        await document.create(1, Body())
        await ground.document().update(1, adding("a"))
        await document.delete(1)

        assert await ground.words() is None

    run(work)


@pytest.mark.parametrize("fault", [Fault.DIES_BEFORE, Fault.DIES_AFTER])
def test_a_process_that_dies_while_it_writes_leaves_the_old_body_or_the_new(fault: Fault) -> None:
    async def work(ground: Ground) -> None:
        await ground.existing("a")
        with pytest.raises(Died):
            await ground.document({1: fault}).update(1, adding("b"))
        expected = ("a",) if fault is Fault.DIES_BEFORE else ("a", "b")

        assert expected == await ground.words()

    run(work)


# --- older copies ---------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["update", "claim", "read"])
def test_an_older_copy_of_the_same_term_is_refused_by_who_has_seen_a_newer_one(call: str) -> None:
    async def work(ground: Ground) -> None:
        await ground.existing("a")
        register, document = ground.durable.register, ground.document()
        await document.claim(1)
        older = await register.load("doc-1")
        await document.update(1, adding("b"))
        newer = await register.load("doc-1")
        assert older
        assert newer
        await register.swap("doc-1", None, newer.version)
        await register.swap("doc-1", older.value, None)

        calls = {
            "update": lambda: document.update(1, adding("c")),
            "claim": lambda: document.claim(1),
            "read": document.read,
        }
        for _ in range(2):  # Refused for as long as it lies there.
            with pytest.raises(LostDataError, match="term 1, write 1, though it was of term 1, wr"):
                await calls[call]()
        lies_there = await register.load("doc-1")
        assert lies_there
        await register.swap("doc-1", newer.value, lies_there.version)
        assert Body(("a", "b", "c")) == await document.update(1, adding("c"))

    run(work)


@pytest.mark.parametrize("overtaking", ["write", "read"])
def test_a_read_whose_answer_is_overtaken_is_no_older_copy(overtaking: str) -> None:
    async def work(ground: Ground) -> None:
        await ground.existing("a")
        register = LateRegister(ground.durable.register)
        document = Document(register, "doc-1", "doc", Body)
        await document.claim(1)
        register.late = True
        overtaken = asyncio.ensure_future(document.read())
        await register.looked.wait()
        register.late = False
        if overtaking == "write":
            await document.update(1, adding("b"))
        else:
            await ground.document().update(1, adding("b"))
            await document.read()
        register.answering.set()

        assert Body(("a",)) == await overtaken  # This was true while the read was under way.
        # What is known later stays known: nothing is taken back, and older copies are refused.
        assert document.seen
        assert Body(("a", "b")) == document.seen[0] == await document.peek()
        newer = await ground.durable.register.load("doc-1")
        assert newer
        await ground.durable.register.swap("doc-1", None, newer.version)
        await ground.existing("a")
        with pytest.raises(LostDataError, match="term 1, write 1, though it was of term 1, wr"):
            await document.read()

    run(work)


def test_a_document_of_a_version_that_did_not_count_its_writes_is_written_on() -> None:
    async def work(ground: Ground) -> None:
        old = msgspec.Raw(msgspec.json.encode({"term": 1, "write_id": "w", "body": Body(("a",))}))
        data = Format("doc", msgspec.Raw).dump(old)
        await ground.durable.register.swap("doc-1", data, None)
        document = ground.document()

        assert Body(("a", "b")) == await document.update(1, adding("b"))
        assert Body(("a", "b", "c")) == await ground.document().update(2, adding("c"))

    run(work)


# --- limits and damage ----------------------------------------------------------------------------


def test_a_document_that_would_pass_the_limit_is_refused_before_it_is_sent() -> None:
    async def work(ground: Ground) -> None:
        await ground.existing("a")
        document = ground.document()
        with pytest.raises(TooLargeError, match="nothing was written"):
            await document.update(1, adding("x" * VALUE_BYTES_MAX))

        assert ("a",) == await ground.words()
        assert Body(("a", "b")) == await document.update(1, adding("b"))

    run(work)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b"", CorruptDataError),
        (b"garbage", CorruptDataError),
        (
            Format("doc", Stamped).dump(Stamped(1, "w", msgspec.Raw(b'{"words":7}'))),
            CorruptDataError,
        ),
        (
            Format("doc", Stamped, version=2).dump(Stamped(1, "w", msgspec.Raw(b"{}"))),
            NewerFormatError,
        ),
    ],
)
def test_damage_is_named_and_never_taken_for_absent_or_overwritten(
    value: bytes, error: type[DataError]
) -> None:
    async def work(ground: Ground) -> None:
        await ground.durable.register.swap("doc-1", value, None)
        document = ground.document()
        for attempt in (
            document.read(),
            document.peek(),
            document.stamp(),
            document.claim(5),
            document.update(5, adding("a")),
            document.delete(5),
            document.create(5, Body()),
        ):
            with pytest.raises(error, match="doc-1"):
                await attempt
        entry = await ground.durable.register.load("doc-1")

        assert entry is not None
        assert value == entry.value

    run(work)


def test_a_register_that_hangs_is_given_up_after_its_deadline() -> None:
    class Hanging:
        def __getattr__(self, name: str) -> Callable[..., Coroutine[object, object, None]]:
            async def hang(*_: object) -> None:
                await asyncio.Event().wait()

            return hang

    async def work(ground: Ground) -> None:
        register = BoundedRegister(Hanging(), 5.0)  # type: ignore[arg-type]
        loop = asyncio.get_running_loop()
        for call in (register.load("a"), register.swap("a", b"", None), register.keys("")):
            began = loop.time()
            with pytest.raises(TimeoutError):
                await call
            assert 5.0 == pytest.approx(loop.time() - began)

    run(work)
