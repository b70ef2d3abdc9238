"""What lies at a checkpoint location is what was recorded, or the job fails before it writes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest
from msgspec.structs import replace

from tests.driver import ground
from tests.driver.ground import QUERY, Told
from understudy.config import options
from understudy.driver.query_location import look
from understudy.errors import CheckpointError
from understudy.spark import query_log

RECORDED = 4
NOBODY = 65534
Damage = Callable[[Path], object]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a location with batches 0 to 5 committed, of which 4 is the one recorded last."""
    place = tmp_path / "orders"
    ground.write_batches(place, 5)
    return place


def verify(tmp_path: Path, place: Path, damage: Damage, *, accept_found: bool = False) -> Told:
    """Record batch 4, do the damage, and let the next attempt look."""
    told = Told()
    order = ground.deploy(ground.recorded(place, RECORDED), accept_found=accept_found)
    damage(place)
    ground.keeper(tmp_path / "ha", told, order).verify()
    return told


def _roll_back(place: Path) -> None:
    for number in (3, 4, 5, 6):
        (place / "offsets" / str(number)).unlink()
        (place / "commits" / str(number)).unlink(missing_ok=True)


def _empty(place: Path) -> None:
    shutil.rmtree(place)
    place.mkdir()


def _file_in_its_place(place: Path) -> None:
    shutil.rmtree(place)
    place.write_text("nothing")


def _swap(place: Path) -> None:
    shutil.rmtree(place)
    ground.write_batches(place, 9, ground.OTHER)


def _cut(name: str, size: int) -> Damage:
    def cut(place: Path) -> None:
        os.truncate(place / name, size)

    return cut


def _put(name: str, text: str) -> Damage:
    def put(place: Path) -> None:
        (place / name).write_text(text)

    return put


def _drop(*names: str) -> Damage:
    def drop(place: Path) -> None:
        for name in names:
            (place / name).unlink()

    return drop


def _compact(place: Path, source: int, number: int) -> None:
    """Let a source's log be compacted as Spark does it, and what is not needed then be removed."""
    log = place / "sources" / str(source)
    for one in range(number + 1):
        (log / str(one)).unlink()
    ground.write_source(log / f"{number}.compact", *range(number + 1))


def _compact_early(place: Path) -> None:
    _compact(place, 0, 3)


def _one_by_one(*damages: Damage) -> Damage:
    def do(place: Path) -> None:
        for one in damages:
            one(place)

    return do


def _write_state(place: Path) -> None:
    """Write state of an aggregation and of a join, with what lies beside it and does not count."""
    for name, size in {
        "0/0/5.delta": 0,  # An old one, which Spark does not read any more.
        "0/0/6.delta": 9,
        "0/0/6.snapshot": 9,
        "0/1/6.delta": 9,
        "0/1/.7.delta.c0ffee.tmp": 0,
        "0/1/.6.delta.crc": 0,
        "0/1/6.delta.crc": 0,
        "0/_metadata/metadata": 0,
        "1/0/left/6_ab.zip": 9,
        "1/0/left/6_ab.changelog": 9,
        "1/0/SSTs/1.sst": 0,
    }.items():
        file = place / "state" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x" * size)


HALF = (
    'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1502872590006,"conf":{}}\n{"logOffset":5}\n{"log'
)
DAMAGES: dict[str, tuple[Damage, str, str]] = {
    "gone": (shutil.rmtree, "there is no such directory", "none"),
    "a file in its place": (
        _file_in_its_place,
        "something else than a directory lies in its place",
        "none",
    ),
    "emptied": (
        _empty,
        "its file 'metadata' is missing",
        "none",
    ),
    "no metadata": (_drop("metadata"), "its file 'metadata' is missing", "batch 5"),
    "damaged metadata": (_put("metadata", "{"), "its file 'metadata' is damaged", "none"),
    "another query's": (_swap, f"another query: {ground.OTHER}, not {QUERY}", "batch 9"),
    "rolled back": (_roll_back, "it was rolled back", "batch 2"),
    "no commits": (lambda place: shutil.rmtree(place / "commits"), "it was rolled back", "none"),
    "other offsets": (
        _put("offsets/4", 'v1\n{}\n{"logOffset":3}\n{"logOffset":4}'),
        "the files of batch 4 are not those that were recorded",
        "batch 5",
    ),
    "recorded offsets missing": (_drop("offsets/4"), "files of batch 4 are missing", "batch 5"),
    "recorded commit missing": (_drop("commits/4"), "files of batch 4 are missing", "batch 5"),
    "empty offsets": (_cut("offsets/6", 0), "its file 'offsets/6' is empty", "batch 5"),
    "no version": (_put("offsets/6", "51"), "'offsets/6' is damaged: it does not begin", "batch 5"),
    "offsets without a source": (_cut("offsets/6", 30), "'offsets/6' is truncated", "batch 5"),
    "half an offset": (_put("offsets/6", HALF), "offsets are no JSON", "batch 5"),
    "one source of two": (
        lambda place: ground.write_offsets(place, 6, sources=1),
        "'offsets/6' is truncated: it lacks a source",
        "batch 5",
    ),
    "binary offsets": (
        lambda place: (place / "offsets/6").write_bytes(b"\xff\xfe"),
        "'offsets/6' is damaged: it is no text",
        "batch 5",
    ),
    "empty commit": (_cut("commits/5", 0), "its file 'commits/5' is empty", "batch 5"),
    "half a commit": (_cut("commits/5", 10), "'commits/5' is truncated", "batch 5"),
    "only a version": (_cut("commits/5", 2), "'commits/5' is truncated", "batch 5"),
    "a source's newest file missing": (
        _drop("sources/1/6", "sources/1/5"),
        "its file 'sources/1/5' or 'sources/1/5.compact' is missing",
        "batch 5",
    ),
    "a source's file missing before others": (
        _drop("sources/0/4"),
        "its file 'sources/0/4' or 'sources/0/4.compact' is missing",
        "batch 5",
    ),
    "no sources": (
        lambda place: shutil.rmtree(place / "sources"),
        "its file 'sources/0/5' or 'sources/0/5.compact' is missing",
        "batch 5",
    ),
    "a source's newest file empty": (
        _cut("sources/0/6", 0),
        "its file 'sources/0/6' is empty",
        "batch 5",
    ),
    "a source's file cut": (
        _cut("sources/0/5", 20),
        "its file 'sources/0/5' is truncated: it is no JSON",
        "batch 5",
    ),
    "a source's file without a version": (
        _put("sources/0/5", "{}"),
        "its file 'sources/0/5' is damaged: it does not begin with a version",
        "batch 5",
    ),
    "a cut compact file": (
        _one_by_one(_compact_early, _cut("sources/0/3.compact", 70)),
        "its file 'sources/0/3.compact' is truncated",
        "batch 5",
    ),
    "no compact file": (
        _one_by_one(_compact_early, _drop("sources/0/3.compact")),
        "its file 'sources/0/3' or 'sources/0/3.compact' is missing",
        "batch 5",
    ),
    "an empty version of a state": (
        _one_by_one(_write_state, _cut("state/0/1/6.delta", 0)),
        "its file 'state/0/1/6.delta' is empty",
        "batch 5",
    ),
    "an empty version of a join's state": (
        _one_by_one(_write_state, _cut("state/1/0/left/6_ab.zip", 0)),
        "its file 'state/1/0/left/6_ab.zip' is empty",
        "batch 5",
    ),
    "committed, no offsets": (
        _drop("offsets/5"),
        "batch 5 was committed, but its 'offsets/5' is missing",
        "batch 5",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_told_with_all_that_a_person_needs(
    tmp_path: Path, place: Path, name: str
) -> None:
    damage, what, found = DAMAGES[name]
    with pytest.raises(CheckpointError) as caught:
        verify(tmp_path, place, damage)
    message = str(caught.value)

    assert message.startswith(f"streaming query 'orders' cannot go on at {place}: ")
    assert what in message
    assert f"(recorded: batch 4 of query {QUERY}; found: {found})" in message
    assert f"set {options.ACCEPT_FOUND.key} to true" in message


@pytest.mark.parametrize("name", DAMAGES)
def test_nothing_is_changed_at_a_damaged_location(tmp_path: Path, place: Path, name: str) -> None:
    damage, _, _ = DAMAGES[name]
    order = ground.deploy(ground.recorded(place, RECORDED))
    damage(place)
    before = _content(tmp_path)
    with pytest.raises(CheckpointError):
        ground.keeper(tmp_path / "ha", Told(), order).verify()

    assert before == _content(tmp_path)


@pytest.mark.parametrize("name", DAMAGES)
def test_what_is_found_is_taken_if_a_person_says_so(
    tmp_path: Path, place: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    damage, what, _ = DAMAGES[name]
    told = verify(tmp_path, place, damage, accept_found=True)

    assert [] == told.checkpoints
    assert what in caplog.text
    assert options.ACCEPT_FOUND.key in caplog.text


def test_a_directory_that_may_not_be_read_is_told(tmp_path: Path, place: Path) -> None:
    user = os.geteuid()
    order = ground.deploy(ground.recorded(place, RECORDED))
    keeper = ground.keeper(tmp_path / "ha", Told(), order)
    place.chmod(0)
    try:
        if user == 0:
            os.seteuid(NOBODY)  # Root may read everything.
        with pytest.raises(CheckpointError, match=r"it cannot be read: .*Permission denied"):
            keeper.verify()
    finally:
        os.seteuid(user)
        place.chmod(0o700)


def test_what_was_committed_and_not_recorded_is_recorded_now(tmp_path: Path, place: Path) -> None:
    told = verify(tmp_path, place, lambda _: None)
    [one] = told.checkpoints

    assert ("orders", 5, 2, str(place)) == (one.name, one.batch_id, one.attempt, one.location)
    assert ground.recorded(place, 5).digest == one.digest
    assert [{"logOffset": 5}] * 2 == ground.offsets_of(one)
    assert b'{"found":true}' == bytes(one.note)


def test_what_was_recorded_last_is_not_recorded_again(tmp_path: Path) -> None:
    place = tmp_path / "orders"
    ground.write_batches(place, RECORDED)

    assert [] == verify(tmp_path, place, lambda _: None).checkpoints


def test_a_batch_that_spark_has_purged_is_not_missed(tmp_path: Path, place: Path) -> None:
    def purge(place: Path) -> None:
        for number in range(RECORDED + 1):
            (place / "offsets" / str(number)).unlink()
        for number in range(RECORDED):  # Spark was killed before it had removed the last.
            (place / "commits" / str(number)).unlink()

    told = verify(tmp_path, place, purge)

    assert [5] == [one.batch_id for one in told.checkpoints]


def _give_out_ahead(place: Path) -> None:
    """Give out files for batches that were never begun, so that the log was compacted since."""
    log = place / "sources/0"
    ground.write_source(log / "7", 7)
    _compact(place, 0, 7)


SOUND: dict[str, Damage] = {
    "compacted": _compact_early,
    "compacted with the last batch": lambda place: _compact(place, 0, 5),
    "compacted, old files still there": lambda place: ground.write_source(
        place / "sources/0/3.compact", 0, 1, 2, 3
    ),
    "given out ahead": _give_out_ahead,
    "nothing given out ahead": _drop("sources/0/6", "sources/1/6", "offsets/6"),
    "drafts and checksums": lambda place: [
        _put(f"sources/0/{name}", "")(place) for name in (".7.c0ffee.tmp", ".5.crc", "5.crc")
    ],
    "state": _write_state,
}


@pytest.mark.parametrize("name", SOUND)
def test_what_spark_leaves_is_not_refused(tmp_path: Path, place: Path, name: str) -> None:
    told = verify(tmp_path, place, SOUND[name])

    assert [5] == [one.batch_id for one in told.checkpoints]


SEVERAL = {
    "a source that is read twice": (
        ['{"logOffset":2}', '{"logOffset":2}', '{"logOffset":0}'],
        ["sources/0/2", "sources/1/0"],
    ),
    "sources that keep nothing": (['{"endOffset":7}', "7", '{"logOffset":"x"}'], []),
    "Kafka's": (['{"topic":{"0":5}}', '{"logOffset":0}'], ["sources/1/0"]),
    "named": (['orders:{"logOffset":0}', 'more:{"a":1}'], ["sources/orders/0"]),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_each_kind_of_source_is_looked_for_where_it_is(tmp_path: Path, name: str) -> None:
    offsets, files = SEVERAL[name]
    place = tmp_path / "orders"
    ground.write_query(place)
    ground.write_batch(place, 0, sources=0)
    version = "v2" if name == "named" else "v1"
    (place / "offsets/0").write_text("\n".join([version, ground.HEAD, *offsets]))
    for file in files:
        (place / file).parent.mkdir(exist_ok=True)
        for number in range(int(file[-1]) + 1):
            ground.write_source((place / file).with_name(str(number)), number)
    order = ground.deploy(ground.recorded(place, 0))
    ground.keeper(tmp_path / "ha", Told(), order).verify()
    for file in files:
        (place / file).unlink()

    if files:
        with pytest.raises(CheckpointError, match=r"its file 'sources/.* is missing"):
            ground.keeper(tmp_path / "ha", Told(), order).verify()


def test_a_sources_file_is_not_taken_wherever_it_is_cut(place: Path) -> None:
    file = place / "sources/0/5"
    ground.write_source(file, 5, 5)
    whole = file.read_bytes()
    lines_end = {size for size in range(len(whole)) if whole[size : size + 1] == b"\n"}
    taken = set()
    for size in range(len(whole) + 1):
        file.write_bytes(whole[:size])
        found = look(str(place), RECORDED)
        one = ground.recorded(place, RECORDED)
        if not query_log.problem(one, found, one.digest):
            taken.add(size)

    # Between two entries nothing tells: there, the checksum beside it tells Spark.
    assert {len(whole)} | lines_end - {2} == taken


def test_a_large_file_of_a_source_is_not_looked_into(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_log, "SOURCE_BYTES_MAX", 100)
    _compact(place, 0, 3)

    assert [5] == [
        one.batch_id
        for one in verify(tmp_path, place, _cut("sources/0/3.compact", 120)).checkpoints
    ]


def test_offsets_that_are_not_json_are_sparks_own_business(tmp_path: Path, place: Path) -> None:
    told = verify(tmp_path, place, _put("offsets/6", "v1\n{}\nearliest\n-"))

    assert [5] == [one.batch_id for one in told.checkpoints]


def test_named_sources_of_version_two_are_read() -> None:
    assert [{"a": 1}, None] == query_log.end_offsets(b'v2\n{}\n0:{"a":1}\n1:-')


def test_all_queries_are_told_of_in_one_error(tmp_path: Path, place: Path) -> None:
    other = tmp_path / "clicks"
    ground.write_batches(other, 7)
    restored = (ground.recorded(place, 4), ground.recorded(other, 7, "clicks"))
    shutil.rmtree(place)
    _drop("metadata")(other)
    told = Told()
    with pytest.raises(CheckpointError, match=r"'orders'.*; streaming query 'clicks'"):
        ground.keeper(tmp_path / "ha", told, ground.deploy(*restored)).verify()

    assert [] == told.checkpoints


def test_nothing_is_recorded_of_a_sound_query_beside_a_damaged_one(
    tmp_path: Path, place: Path
) -> None:
    other = tmp_path / "clicks"
    ground.write_batches(other, 7)
    restored = (ground.recorded(place, 4), ground.recorded(other, 7, "clicks"))
    shutil.rmtree(other)
    told = Told()
    with pytest.raises(CheckpointError, match="'clicks'"):
        ground.keeper(tmp_path / "ha", told, ground.deploy(*restored)).verify()

    assert [] == told.messages


def test_a_location_on_a_store_that_fsspec_reaches_is_verified(place: Path, tmp_path: Path) -> None:

    memory = fsspec.filesystem("memory")
    url = f"memory://streaming-{tmp_path.name}"
    memory.put(str(place), f"{url}/orders", recursive=True)
    one = replace(ground.recorded(place, 4), location=f"{url}/orders")
    told = Told()
    ground.keeper(tmp_path / "ha", told, ground.deploy(one)).verify()
    memory.rm(f"{url}/orders/commits/5")
    memory.rm(f"{url}/orders/commits/4")

    assert [5] == [one.batch_id for one in told.checkpoints]
    with pytest.raises(CheckpointError, match=r"rolled back.*found: batch 3"):
        ground.keeper(tmp_path / "ha", Told(), ground.deploy(one)).verify()


def test_a_url_that_no_package_opens_is_told(tmp_path: Path, place: Path) -> None:
    one = replace(ground.recorded(place, 4), location="nowhere://x/y")
    with pytest.raises(CheckpointError, match="install the fsspec package"):
        ground.keeper(tmp_path / "ha", Told(), ground.deploy(one)).verify()


def _content(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }
