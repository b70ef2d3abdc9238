from __future__ import annotations

import functools
import inspect
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import understudy
from tests.house.repository import ROOT, modules, texts
from tests.support.pages import blocks, pages
from understudy import errors
from understudy.cli.commands.group import EXAMPLES, MODULES, app
from understudy.config.docs import render

DOCUMENTS = ("README", "ARCHITECTURE", "GLOSSARY", "CONTRIBUTING", "CHANGELOG")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_written(name: str) -> None:
    text = (ROOT / f"{name}.md").read_text()

    assert text.startswith("# ")
    assert len(text) > 400


def test_the_license_is_apache_2() -> None:
    text = (ROOT / "LICENSE").read_text()

    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text


def test_the_options_are_documented_as_they_are_declared() -> None:
    expected = render()

    actual = (ROOT / "docs" / "configuration.md").read_text()

    assert expected == actual, "run: make docs"


def test_each_link_between_documents_leads_somewhere() -> None:
    expected: list[str] = []

    actual = [
        f"{path.relative_to(ROOT)}: {target}"
        for path, text in texts()
        if path.suffix == ".md"
        for target in re.findall(r"\]\((?!http)([^)#\s]+)", text)
        if not (path.parent / target).exists()
    ]

    assert expected == actual


def test_each_file_that_a_document_names_is_there() -> None:
    expected: list[str] = []

    actual = [
        f"{name}.md: {named}"
        for name in DOCUMENTS[:4]
        for named in re.findall(
            r"`((?:src|tests|examples|docs|requirements|\.ci)/[\w./-]+)`",
            (ROOT / f"{name}.md").read_text(),
        )
        if not (ROOT / named).exists()
    ]

    assert expected == actual


@pytest.mark.parametrize("path", ["README.md", "CONTRIBUTING.md"])
def test_each_make_target_that_is_named_exists(path: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"make ([a-z]+)\b", "\n".join(_code(ROOT / path))))

    assert named
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_each_command_and_flag_that_a_page_shows_exists(page: Path) -> None:
    for words in _commands(page):
        text = _help(*_command(words))
        for flag in (word for word in words[1:] if word.startswith("--")):
            assert flag.split("=")[0] in text, (words, flag)


def test_the_readme_shows_commands() -> None:
    assert len(_commands(ROOT / "README.md")) > 15


def _commands(page: Path) -> list[list[str]]:
    """Return the words of each command of ours in the shell blocks and transcripts of a page."""
    lines = [
        line.split(" #")[0].strip().removeprefix("$ ")
        for block in blocks(page)
        if block.language in {"sh", "console", "text", ""}
        for line in block.text.replace("\\\n", " ").splitlines()
    ]
    return [line.split() for line in lines if re.match(r"understudy [a-z-]", line)]


def test_each_command_has_examples_with_flags_that_exist() -> None:
    assert {name.split()[0] for name in EXAMPLES} == {*MODULES}

    for name, lines in EXAMPLES.items():
        words = [word for line in lines for word in line.split()]
        for flag in (word for word in words if re.match("--?[a-z]", word) and word != "-H"):
            assert flag in _help(*name.split()), (name, flag)
        assert all(line in _help(*name.split()) for line in lines), name


def _command(words: list[str]) -> list[str]:
    groups = {"artifacts", "cleanup", "cluster", "session", "zookeeper"}
    return words[1:3] if words[1] in groups else words[1:2]


@functools.cache
def _help(*command: str) -> str:
    told = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke(app, [*command, "--help"])
    assert 0 == told.exit_code, command
    return told.output


def test_each_public_name_is_documented() -> None:
    expected: list[str] = []

    actual = [name for name in understudy.__all__ if not inspect.getdoc(getattr(understudy, name))]

    assert expected == actual


def test_each_module_says_what_it_is_for() -> None:
    expected: list[str] = []

    actual = [
        str(path.relative_to(ROOT))
        for path, text in modules()
        if (ROOT / "src") in path.parents and not text.lstrip("#!").lstrip().startswith('"""')
    ]

    assert expected == actual


def test_the_tree_of_errors_is_drawn_as_it_is() -> None:
    classes = {
        name: one
        for name, one in vars(errors).items()
        if isinstance(one, type) and issubclass(one, errors.UnderstudyError)
    }
    expected = {
        name: next(base.__name__ for base in one.__mro__[1:])
        for name, one in classes.items()
        if one is not errors.UnderstudyError
    }

    actual = _drawn(errors.__doc__ or "")

    assert expected == actual


def test_each_error_has_a_code_of_its_own() -> None:
    codes = [
        one.code
        for one in vars(errors).values()
        if isinstance(one, type) and issubclass(one, errors.UnderstudyError)
    ]

    assert sorted(set(codes)) == sorted(codes)


GLOSSARY_WORDS_MAX = 30
"""More words than these nobody learns; a word that few places use is explained there."""


def test_the_glossary_explains_few_words_and_each_noun_of_the_design() -> None:
    text = (ROOT / "GLOSSARY.md").read_text()
    words = re.findall(r"\*\*([^*]+)\*\*", text)
    nouns = {
        "cluster", "run", "JobManager", "TaskManager", "slot", "driver", "application", "job",
        "ExecutionPlan", "attempt", "intent", "dirty", "clean", "term", "backend", "register",
        "registry", "guardian", "obituary", "adopt", "reached", "displaced", "tombstone",
        "liveness lock", "incarnation", "spare", "lease", "main", "result", "safe write",
    }  # fmt: skip

    assert set() == nouns - set(words)
    assert sorted(words, key=str.lower) == words
    assert len(words) <= GLOSSARY_WORDS_MAX


def _code(path: Path) -> list[str]:
    """Return the lines of all shell blocks."""
    lines: list[str] = []
    fence = None
    for line in path.read_text().splitlines():
        if line.startswith("```"):
            fence = line.removeprefix("```") if fence is None else None
        elif fence == "sh":
            lines.append(line)
    return lines


def _drawn(tree: str) -> dict[str, str]:
    parents: list[str] = []
    drawn = {}
    for line in tree.splitlines():
        match = re.match(r"^((?:[│ ] {3})*)(?:[├└]── )(\w+)", line)
        if line.startswith("UnderstudyError"):
            parents = ["UnderstudyError"]
        elif match:
            depth = len(match.group(1)) // 4 + 1
            parents = [*parents[:depth], match.group(2)]
            drawn[match.group(2)] = parents[depth - 1]
    return drawn
