"""How the text of a setting becomes a value, and how what is none is refused."""

from __future__ import annotations

from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.config import option
from understudy.config.option import INFINITE, Kind, Option, choice

EXPLORE = settings(max_examples=100, deadline=None, derandomize=True)

LEVEL = choice("none", "fixed-delay", aliases={"off": "none", "fixeddelay": "fixed-delay"})


T = TypeVar("T")


def read(kind: Kind[T], text: str) -> T:
    return Option("key", kind, None, "meaning").parse(text)


def refusal(kind: Kind[T], text: str) -> str | None:
    try:
        read(kind, text)
    except ValueError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (option.TEXT, "a b", "a b"),
        (option.TEXT, "", ""),
        (option.TEXT, "  a ", "a"),
        (option.BOOLEAN, "true", True),
        (option.BOOLEAN, "FALSE", False),
        (option.BOOLEAN, " True ", True),
        (option.INTEGER, "-7", -7),
        (option.INTEGER, "infinite", INFINITE),
        (option.INTEGER, "Infinite", 2**31 - 1),
        (option.COUNT, "0", 0),
        (option.COUNT, "infinite", INFINITE),
        (option.POSITIVE, "1", 1),
        (option.FACTOR, "0", 0.0),
        (option.FACTOR, "1.5", 1.5),
        (option.FACTOR, "1e3", 1000.0),
        (option.PORTS, "0", (0,)),
        (option.PORTS, "65535", (65535,)),
        (option.PORTS, "8081-8083", (8081, 8082, 8083)),
        (option.PORTS, "8081-8081", (8081,)),
        (option.PORTS, "9000, 8081-8082,7000", (9000, 8081, 8082, 7000)),
        (option.WORDS, "", ()),
        (option.WORDS, "a", ("a",)),
        (option.WORDS, "a;b, c,,d ", ("a", "b", "c", "d")),
        (LEVEL, "none", "none"),
        (LEVEL, "Fixed-Delay", "fixed-delay"),
        (LEVEL, "OFF", "none"),
        (LEVEL, "fixeddelay", "fixed-delay"),
    ],
)
def test_a_text_is_read_as_its_type(kind: Kind[object], text: str, expected: object) -> None:
    actual = read(kind, text)

    assert expected == actual
    assert type(expected) is type(actual)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0.0),
        ("500", 0.5),
        ("500ms", 0.5),
        ("500 ms", 0.5),
        ("2 milli", 0.002),
        ("2 millis", 0.002),
        ("3 millisecond", 0.003),
        ("3 milliseconds", 0.003),
        ("20 s", 20.0),
        ("20S", 20.0),
        ("1.5 s", 1.5),
        ("20 sec", 20.0),
        ("20 secs", 20.0),
        ("1 second", 1.0),
        ("2 seconds", 2.0),
        ("2 m", 120.0),
        ("2 min", 120.0),
        ("2 mins", 120.0),
        ("1 minute", 60.0),
        ("2 minutes", 120.0),
        ("2 h", 7200.0),
        ("1 hour", 3600.0),
        ("2 hours", 7200.0),
        ("7 d", 604800.0),
        ("1 day", 86400.0),
        ("2 days", 172800.0),
        ("100000 d", 8.64e9),
        ("5 us", 5e-6),
        ("5 µs", 5e-6),
        ("5 micro", 5e-6),
        ("5 micros", 5e-6),
        ("1 microsecond", 1e-6),
        ("5 microseconds", 5e-6),
        ("5 ns", 5e-9),
        ("1 nano", 1e-9),
        ("5 nanos", 5e-9),
        ("1 nanosecond", 1e-9),
        ("5 nanoseconds", 5e-9),
    ],
)
def test_a_duration_is_read_as_flink_reads_it(text: str, expected: float) -> None:
    actual = read(option.DURATION, text)

    assert pytest.approx(expected) == actual


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("12", 12),
        ("12 b", 12),
        ("12 bytes", 12),
        ("1k", 1024),
        ("256 kb", 262144),
        ("1 kibibytes", 1024),
        ("1 m", 1 << 20),
        ("1 MB", 1 << 20),
        ("1 mebibytes", 1 << 20),
        ("1 g", 1 << 30),
        ("1 gb", 1 << 30),
        ("1 gibibytes", 1 << 30),
        ("1 t", 1 << 40),
        ("1 tb", 1 << 40),
        ("1 tebibytes", 1 << 40),
        ("1.5 kb", 1536),
        ("9007199254740993", 9007199254740993),
        ("9" * 18, 10**18 - 1),
    ],
)
def test_a_size_is_read_as_flink_reads_it(text: str, expected: int) -> None:
    actual = read(option.SIZE, text)

    assert expected == actual
    assert isinstance(actual, int)


A_DURATION = "a duration such as '20 s', '1 min' or '500 ms'"
A_SIZE = "a size such as '256 kb' or '1 gb'"
PRINTABLE = "printable text, without line breaks and control characters"
A_PORT = "a port, a list '50100,50101' or a range '50100-50200'"
IN_RANGE = "ports between 0 and 65535, the lower one first"


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (option.BOOLEAN, "yes", "true or false"),
        (option.BOOLEAN, "", "true or false"),
        (option.INTEGER, "1.5", "a whole number"),
        (option.INTEGER, "", "a whole number"),
        (option.INTEGER, "9" * 5000, "a whole number of at most 2147483647"),
        (option.COUNT, "2147483648", "a whole number of at most 2147483647"),
        (option.INTEGER, "1_000", "a whole number"),
        (option.INTEGER, "٣", "a whole number"),
        (option.FACTOR, "1_0", "a number"),
        (option.FACTOR, "٣", "a number"),
        (option.LONG_PERIOD, "999 ms", "a duration of at least 1 s"),
        (option.LONG_PERIOD, "x", A_DURATION),
        (option.bounded(1, 65535), "0", "a whole number from 1 to 65535"),
        (option.bounded(1, 65535), "65536", "a whole number from 1 to 65535"),
        (option.bounded(1, 65535), "x", "a whole number from 1 to 65535"),
        (option.HEX_ID, "0" * 31, "32 hexadecimal digits"),
        (option.HEX_ID, "../../x", "32 hexadecimal digits"),
        (option.TEXT, "a\nb", PRINTABLE),
        (option.TEXT, "a\0b", PRINTABLE),
        (option.TEXT, "\u202ea", PRINTABLE),
        (option.TEXT, "\udcff", PRINTABLE),
        (option.TEXT, "x" * 4097, "at most 4,096 characters"),
        (option.COUNT, "-1", "a whole number that is not negative"),
        (option.COUNT, "x", "a whole number"),
        (option.POSITIVE, "0", "a whole number of at least 1"),
        (option.FACTOR, "x", "a number"),
        (option.FACTOR, "-0.1", "a finite number that is not negative"),
        (option.FACTOR, "nan", "a finite number that is not negative"),
        (option.FACTOR, "inf", "a finite number that is not negative"),
        (option.DURATION, "", A_DURATION),
        (option.DURATION, "-1 s", A_DURATION),
        (option.DURATION, "1 fortnight", A_DURATION),
        (option.DURATION, "1 s 2 ms", A_DURATION),
        (option.DURATION, "s", A_DURATION),
        (option.DURATION, "1. s", A_DURATION),
        (option.DURATION, "1 ss", A_DURATION),
        (option.DURATION, "1 mss", A_DURATION),
        (option.DURATION, "100001 d", "a duration of at most 100,000 days"),
        (option.DURATION, "9" * 400, "a duration of at most 100,000 days"),
        (option.PERIOD, "0", "a duration of more than nothing, such as '20 s'"),
        (option.PERIOD, "x", A_DURATION),
        (option.SIZE, "", A_SIZE),
        (option.SIZE, "-1", A_SIZE),
        (option.SIZE, "1 kilo", A_SIZE),
        (option.SIZE, "9" * 19, "a size that a computer can have"),
        (option.PORTS, "", A_PORT),
        (option.PORTS, "x", A_PORT),
        (option.PORTS, "1,,2", A_PORT),
        (option.PORTS, "-5", A_PORT),
        (option.PORTS, "8081-", A_PORT),
        (option.PORTS, "1-2-3", A_PORT),
        (option.PORTS, "65536", IN_RANGE),
        (option.PORTS, "65535-65536", IN_RANGE),
        (option.PORTS, "8082-8081", IN_RANGE),
        (LEVEL, "fixed", "one of none, fixed-delay"),
        (LEVEL, "", "one of none, fixed-delay"),
    ],
)
def test_what_is_of_another_type_is_refused_with_what_was_expected(
    kind: Kind[object], text: str, expected: str
) -> None:
    actual = refusal(kind, text)

    assert expected == actual


def test_the_smallest_period_is_more_than_nothing() -> None:
    expected = 1e-3

    actual = read(option.PERIOD, "1 ms")

    assert expected == actual


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (LEVEL, "Enum: none, fixed-delay"),
        (option.TEXT, "String"),
        (option.DURATION, "Duration"),
        (option.SIZE, "MemorySize"),
    ],
)
def test_a_type_has_a_name_for_the_documentation(kind: Kind[object], expected: str) -> None:
    actual = kind.name

    assert expected == actual


KINDS = [
    option.TEXT,
    option.BOOLEAN,
    option.INTEGER,
    option.COUNT,
    option.POSITIVE,
    option.FACTOR,
    option.DURATION,
    option.PERIOD,
    option.LONG_PERIOD,
    option.SIZE,
    option.PORTS,
    option.WORDS,
    option.HEX_ID,
    option.bounded(0, 1000),
    LEVEL,
]


@EXPLORE
@given(st.sampled_from(KINDS), st.text() | st.text("0123456789.-, kmgdshin"))
def test_any_text_is_read_or_refused_in_words(kind: Kind[object], text: str) -> None:
    actual = refusal(kind, text)

    assert actual != ""
