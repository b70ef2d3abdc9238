"""Durable records: what was written is read back, and everything else is named for what it is."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.errors import CorruptDataError, DataError, ForeignDataError, NewerFormatError
from understudy.ha.format import Format, digest

GOLDEN = Path(__file__).parent / "golden"


class Flight(msgspec.Struct, frozen=True):
    """A record like those that are stored."""

    carrier: str
    delay: float
    tail: str | None = None


class Empty(msgspec.Struct, frozen=True):
    """A record without anything."""


FLIGHT = Flight("Ünited", -2.5)


def _up(body: dict[str, Any]) -> dict[str, Any]:
    return {"carrier": body["airline"], "delay": body["delay"]}


flights: Format[Flight] = Format("flight", Flight, version=2, upgrades={1: _up})


def envelope(**changes: Any) -> bytes:
    """Return a sound record but for these fields; the checksum fits the body."""
    fields = json.loads(flights.dump(FLIGHT)) | changes
    if "body" in changes and "checksum" not in changes:
        fields["checksum"] = digest(msgspec.json.encode(fields["body"]))
    return json.dumps(fields, ensure_ascii=False).encode()


@given(st.text(), st.floats(allow_nan=False, allow_infinity=False), st.none() | st.text())
def test_what_was_written_is_read_back(carrier: str, delay: float, tail: str | None) -> None:
    flight = Flight(carrier, delay, tail)

    assert flight == flights.load(flights.dump(flight), "here")
    assert flight == flights.load(flights.dump(flight, pretty=True), "here")


def test_the_bytes_on_disk_are_those_of_the_golden_file() -> None:
    """A change here breaks every cluster that exists: it needs a new version and an upgrade."""
    assert (GOLDEN / "flight-2.json").read_bytes() == flights.dump(FLIGHT, pretty=True)
    assert FLIGHT == flights.load((GOLDEN / "flight-2.json").read_bytes(), "golden")


def test_an_older_golden_file_is_upgraded() -> None:
    assert FLIGHT == flights.load((GOLDEN / "flight-1.json").read_bytes(), "golden")


def test_a_person_may_indent_a_file() -> None:
    data = json.dumps(json.loads(flights.dump(FLIGHT)), indent=7, ensure_ascii=False).encode()

    assert FLIGHT == flights.load(data, "here")


@pytest.mark.parametrize("pretty", [False, True])
def test_a_record_truncated_anywhere_is_corrupt(pretty: bool) -> None:
    data = flights.dump(FLIGHT, pretty=pretty)
    for length in range(len(data.rstrip())):
        with pytest.raises(CorruptDataError, match="result-7: not a flight"):
            flights.load(data[:length], "result-7")


@pytest.mark.parametrize("pretty", [False, True])
def test_no_flipped_bit_goes_unnoticed(pretty: bool) -> None:
    data = flights.dump(FLIGHT, pretty=pretty)
    for position in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[position // 8] ^= 1 << position % 8
        # White space between the fields is nobody's; what is read is what was written.
        with contextlib.suppress(DataError):
            assert FLIGHT == flights.load(bytes(flipped), "result-7"), position


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 100,
        b"null",
        b"[]",
        b"{}",
        b'"text"',
        b"not JSON",
        b"\xff\xfe",
        b"[" * 100_000,
        envelope(checksum=None),
        envelope(version="2"),
    ],
    ids=lambda data: repr(data[:12]),
)
def test_what_is_no_record_at_all_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptDataError, match="here: not a flight"):
        flights.load(data, "here")


def test_a_record_of_another_kind_is_foreign() -> None:
    data = Format("train", Empty).dump(Empty())

    with pytest.raises(ForeignDataError, match="here: a 'train', expected a 'flight'"):
        flights.load(data, "here")


def test_a_record_of_a_later_version_is_named_and_not_guessed_at() -> None:
    with pytest.raises(NewerFormatError, match=r"of version 3.*reads up to 2"):
        flights.load(envelope(version=3, body={"wings": 2}), "here")


@pytest.mark.parametrize("version", [0, -1])
def test_a_version_that_never_was_is_corrupt(version: int) -> None:
    with pytest.raises(CorruptDataError, match=f"no flight of version {version} exists"):
        flights.load(envelope(version=version), "here")


def test_a_version_without_an_upgrade_path_is_corrupt() -> None:
    third: Format[Flight] = Format("flight", Flight, version=3, upgrades={1: _up})

    with pytest.raises(CorruptDataError, match="no flight of version 1 exists"):
        third.load((GOLDEN / "flight-1.json").read_bytes(), "here")


def test_a_body_that_fits_the_checksum_but_not_the_type_is_corrupt() -> None:
    with pytest.raises(CorruptDataError, match="here: not a flight"):
        flights.load(envelope(body={"carrier": 7, "delay": 1.0}), "here")


def test_a_body_that_does_not_fit_the_checksum_is_corrupt() -> None:
    with pytest.raises(CorruptDataError, match="the checksum does not match"):
        flights.load(envelope(body={"carrier": "XX", "delay": 1.0}, checksum=digest(b"")), "here")


def test_a_digest_is_the_hash_of_the_bytes() -> None:
    expected = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

    assert expected == digest(b"abc")
