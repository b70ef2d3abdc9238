"""Whatever is set, for whichever option: it is taken, or refused with one sentence that names it.

All options are looked at, so a new one need not be added here.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from understudy.config import Configuration, Option, backends, option, options
from understudy.config.configuration import load_configuration
from understudy.config.known import known_with
from understudy.errors import ConfigurationError

KNOWN = known_with({})
EVERY = [*options.OPTIONS, *(one for _, backend in backends.ours() for one in backend.options)]

ALL = pytest.mark.parametrize("subject", EVERY, ids=lambda one: one.key)

LETTERED = {
    "an empty text": "",
    "text": "some nonsense",
    "a negative number": "-1",
    "a negative duration": "-5 s",
    "an unknown unit": "10 parsecs",
    "a list": "[1, 2]",
    "a mapping": "{a: b}",
    "null": "null",
    "more than a machine word": "9" * 400,
    "more than a float": "1e999",
    "no number": "NaN",
    "digits of another script": "٣",
    "digits with a line between": "1_000",
    "a line break": "a\nb",
    "a NUL": "a\0b",
    "an escape sequence": "\x1b[2J",
    "what turns the text around": "\u202egnp.exe",
    "half a character": "\ud800",
    "ten kilobytes": "é" * 5_000,
    "a way out": "../../x",
}
"""What no option means, or only those that take any text."""

ANY_TEXT = (
    option.TEXT,
    option.PLACE,
    option.SHARED_PLACE,
    option.WORDS,
    option.PAIRS,
    option.REQUIREMENTS,
)
NUMBERS = {"a negative number", "a negative duration", "more than a machine word", "no number"}
DANGEROUS = {"a line break", "a NUL", "an escape sequence", "half a character", "ten kilobytes"}

LONGEST = 400
"""A sentence, not a page: what was given is shown shortened."""


def refusal(settings: dict[str, str]) -> str | None:
    try:
        Configuration(settings)
    except ConfigurationError as error:
        return str(error)
    return None


def is_a_sentence_about(said: str, key: str) -> bool:
    return said.startswith(key) and said.isprintable() and len(said) < LONGEST


@ALL
def test_what_is_of_another_type_is_refused_with_one_sentence(subject: Option[object]) -> None:
    said = {name: refusal({subject.key: text}) for name, text in LETTERED.items()}
    refused = {name: text for name, text in said.items() if text is not None}

    assert [] == [text for text in refused.values() if not is_a_sentence_about(text, subject.key)]
    if subject.kind is option.TEXT:
        assert refused.keys() >= DANGEROUS
    if subject.kind is option.REQUIREMENTS:
        assert refused.keys() >= DANGEROUS - {"a line break", "ten kilobytes"}
    if subject.kind not in ANY_TEXT:
        named = {"no number"} if subject.kind is option.CLASS_NAMES else set()  # A class, NaN.
        assert refused.keys() >= {"text", *NUMBERS, *DANGEROUS} - named


@ALL
@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("~", "{key} has no value"),
        ("{{a: b}}", "unknown option '{key}.a'"),
        ("[{{a: b}}]", "{key} must be "),
        ("[1, 2]", "{key} must be one value, not a list"),
    ],
)
def test_no_option_takes_a_mapping_a_list_or_nothing_in_a_file(
    tmp_path: Path, subject: Option[object], written: str, why: str
) -> None:
    if written == "[1, 2]" and subject.kind.takes_lists:
        return
    if written.startswith("{{") and subject.kind.takes_maps:
        return
    text = written.replace("{{", "{").replace("}}", "}")
    (tmp_path / "config.yaml").write_text(f"'{subject.key}': {text}\n")
    with pytest.raises(ConfigurationError) as caught:
        load_configuration(tmp_path, [])
    said = str(caught.value)

    assert why.format(key=subject.key) in said
    assert "\n" not in said


@ALL
def test_a_key_that_is_almost_right_is_answered_with_the_right_one(subject: Option[object]) -> None:
    said = refusal({f"{subject.key}x": "1"}) or ""

    assert said.startswith(f"unknown option '{subject.key}x'; did you mean ")
    nearest = said.rpartition("did you mean ")[2].strip("'?")
    assert nearest in {*(one.key for one in EVERY), *KNOWN.successors}


@pytest.mark.parametrize("key", ["spark.x", "spark.\ud800", "spark.\0"])
@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_what_no_process_can_be_given_is_refused_for_spark_too(key: str, text: str) -> None:
    said = refusal({key: text}) or ""

    assert said.isprintable()
    assert "holds a NUL or what is no UTF-8" in said


@pytest.mark.parametrize("text", ["x" * 100, "\x1b[2J", "a\nb", "é" * 5_000])
def test_a_key_is_shown_on_one_line_and_not_much_of_it(text: str) -> None:
    said = [refusal({text: "1"}) or "", str(_caught(text))]

    assert [] == [one for one in said if not one.isprintable() or len(one) > LONGEST]


def _caught(override: str) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        load_configuration(None, [override])
    return caught.value


@pytest.mark.parametrize(
    "text", ["a: &a {b: *a}", "[" * 5_000, "a: {b: " * 60 + "1" + "}" * 60, "a: !!int x", "a: 'b"]
)
def test_a_file_that_cannot_be_meant_is_refused_on_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_configuration(tmp_path, [])

    assert "\n" not in str(caught.value)


def test_a_value_may_be_as_large_as_one_message_can_carry() -> None:
    key = options.RESULT_MAX_SIZE.key
    expected = (
        f"{key} is 33554433 bytes: it must be at most 32 mb, larger data belongs in files or tables"
    )

    actual = refusal({key: str((32 << 20) + 1)})

    assert expected == actual
    assert refusal({key: "32 mb"}) is None


def test_defaults_do_not_contradict_each_other_in_pairs() -> None:
    """Each option set to its own default, alone or with another, is what holds anyway."""
    defaults = {one.key: one.default for one in EVERY if one.default is not None}
    pairs = itertools.combinations(defaults.items(), 2)

    actual = [pair for pair in pairs if refusal(dict(pair)) is not None]

    assert [] == actual
