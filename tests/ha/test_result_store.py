"""Result files: published from what the register has committed, and never believed against it."""

from __future__ import annotations

import pytest

from tests.support.faulty_register import Died, Durable, Fault, Faults
from tests.support.virtual_time import run_virtual
from understudy.errors import NotFoundError
from understudy.ha.format import digest
from understudy.ha.result_store import ResultStore
from understudy.model import Pointer

DATA = b'{"value": 1}'
STAGED = Pointer(path="staged/job-1.json", digest=digest(DATA), size=len(DATA))
DIRTY, CLEAN = "results/job_DIRTY.json", "results/job.json"


def opened(durable: Durable, faults: Faults | None = None) -> ResultStore:
    return ResultStore(durable.process(faults)[1], "results")


def staged() -> Durable:
    durable = Durable()
    durable.storage.publish(STAGED.path, DATA)
    return durable


def results(durable: Durable) -> dict[str, bytes]:
    """Return the result files."""
    files = durable.storage.files.items()
    return {path: data for path, data in files if path.startswith("results/")}


def test_a_result_is_published_dirty_with_the_bytes_that_were_staged() -> None:
    durable = staged()
    for _ in range(2):
        run_virtual(opened(durable).publish_dirty("job", STAGED))

    assert {DIRTY: DATA} == results(durable)
    assert 1 == len(durable.history), "what is sound is not written again"


@pytest.mark.parametrize(("keep", "left"), [(True, {CLEAN: DATA}), (False, {})])
def test_a_clean_result_is_kept_or_removed(keep: bool, left: dict[str, bytes]) -> None:
    durable = staged()
    run_virtual(opened(durable).publish_dirty("job", STAGED))
    for _ in range(2):
        run_virtual(opened(durable).mark_clean("job", keep=keep))

    assert left == results(durable)


def test_a_clean_result_is_not_published_dirty_again() -> None:
    durable = staged()
    run_virtual(opened(durable).publish_dirty("job", STAGED))
    run_virtual(opened(durable).mark_clean("job", keep=True))
    run_virtual(opened(durable).publish_dirty("job", STAGED))

    assert {CLEAN: DATA} == results(durable)


@pytest.mark.parametrize("keep", [True, False])
def test_marking_clean_what_is_not_there_makes_nothing(keep: bool) -> None:
    durable = staged()
    run_virtual(opened(durable).mark_clean("job", keep=keep))

    assert {} == results(durable)
    assert DATA == run_virtual(opened(durable).read("job", STAGED)), "its staged bytes stay"


@pytest.mark.parametrize("fault", [Fault.DIES_BEFORE, Fault.DIES_AFTER])
@pytest.mark.parametrize("number", [1, 2])
def test_marking_clean_cut_short_never_leaves_the_result_without_a_file(
    fault: Fault, number: int
) -> None:
    durable = staged()
    run_virtual(opened(durable).publish_dirty("job", STAGED))
    durable.storage.delete(STAGED.path)
    with pytest.raises(Died):
        run_virtual(opened(durable, Faults({number: fault})).mark_clean("job", keep=True))

    assert results(durable)
    assert DATA == run_virtual(opened(durable).read("job", STAGED))

    run_virtual(opened(durable).mark_clean("job", keep=True))

    assert {CLEAN: DATA} == results(durable)


@pytest.mark.parametrize("path", [DIRTY, CLEAN, STAGED.path])
def test_a_result_is_read_from_wherever_its_bytes_are_left(path: str) -> None:
    durable = Durable()
    durable.storage.publish(path, DATA)

    assert DATA == run_virtual(opened(durable).read("job", STAGED))


def test_a_file_that_the_register_does_not_name_is_foreign() -> None:
    durable = Durable()
    durable.storage.publish(DIRTY, b'{"value": "forged"}')
    durable.storage.publish(CLEAN, b'{"value": "forged"}')
    with pytest.raises(NotFoundError, match=r"removed or altered.*the register still knows"):
        run_virtual(opened(durable).read("job", STAGED))

    durable.storage.publish(STAGED.path, DATA)

    assert DATA == run_virtual(opened(durable).read("job", STAGED))


def test_an_altered_dirty_file_is_published_anew() -> None:
    durable = staged()
    durable.storage.publish(DIRTY, b"altered")
    run_virtual(opened(durable).publish_dirty("job", STAGED))

    assert {DIRTY: DATA} == results(durable)


@pytest.mark.parametrize("data", [None, b"altered"])
def test_a_result_whose_staged_bytes_are_lost_is_named_and_nothing_is_published(
    data: bytes | None,
) -> None:
    durable = Durable()
    if data:
        durable.storage.publish(STAGED.path, data)
    with pytest.raises(
        NotFoundError, match=r"staged/job-1\.json: the staged result of job is gone"
    ):
        run_virtual(opened(durable).publish_dirty("job", STAGED))

    assert {} == results(durable)


def test_an_empty_directory_of_results_is_removed_and_a_used_one_is_not() -> None:
    durable = staged()
    run_virtual(opened(durable).publish_dirty("job", STAGED))
    run_virtual(opened(durable).prune())

    assert {DIRTY: DATA} == results(durable)

    run_virtual(opened(durable).mark_clean("job", keep=False))
    run_virtual(opened(durable).prune())

    assert not durable.storage.exists("results")
