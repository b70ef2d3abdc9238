"""README and the pages of docs: what they show is right, and in words that were explained."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.repository import ROOT, modules
from tests.support.pages import GAP, Block, blocks, missing_line, pages
from understudy.config import options
from understudy.config.option import Option

OF_THE_HOUSE = re.compile(
    r"\b(register|registry|documents?|reached|terms?|tombstones?|attention|clean|dirty)\b",
    re.IGNORECASE,
)
"""Words that confuse who reads them for the first time."""

MESSAGE_LITERALS_MIN = 12
"""So many characters of a quoted message are Understudy's own, or the quotation says nothing."""


def every_block() -> Iterator[Block]:
    return (block for page in pages() for block in blocks(page))


def test_each_python_block_can_be_compiled() -> None:
    for block in every_block():
        if block.language == "python":
            compile(block.text, block.place, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_a_block_with_the_name_of_an_example_is_that_example() -> None:
    compared = [
        (block.place, block.text, example.read_text())
        for block in every_block()
        if (example := ROOT / "examples" / Path(block.marks.get("file", "-")).name).is_file()
    ]

    assert len(compared) >= 2, "README and the quickstart show it"
    for place, shown, kept in compared:
        assert kept == shown, place


def test_each_page_stands_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    expected = {page.name for page in pages()} - {"README.md"}

    actual = set(re.findall(r"\]\(([\w-]+\.md)\)", index))

    assert expected == actual


def test_the_readme_does_without_the_words_of_the_house() -> None:
    expected: list[str] = []

    actual = [
        f"{number}: {match[0]}"
        for number, line in enumerate((ROOT / "README.md").read_text().splitlines(), 1)
        for match in OF_THE_HOUSE.finditer(line)
    ]

    assert expected == actual


def test_each_extra_that_a_page_installs_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    expected: set[str] = set()

    actual = {
        extra
        for page in pages()
        for named in re.findall(r"(?:understudy|['./ ]\.)\[([\w,]+)\]", page.read_text())
        for extra in named.split(",")
    } - project["optional-dependencies"].keys()

    assert expected == actual


@pytest.mark.parametrize(
    ("expected", "output", "missing"),
    [
        ("a … c\nd", "x\na b c\ny\nd\n", ""),
        ("d\na … c", "x\na b c\ny\nd\n", "a … c"),
        ("a\na", "a\n", "a"),
        ("a.c", "abc\n", "a.c"),
    ],
)
def test_output_is_compared_line_by_line(expected: str, output: str, missing: str) -> None:
    assert missing == missing_line(expected, output)


def test_each_message_of_the_troubleshooting_stands_in_the_source() -> None:
    templates = list(_templates())
    quoted = [
        match[1]
        for line in (ROOT / "docs" / "troubleshooting.md").read_text().splitlines()
        if (match := re.match(r"\| `(.+?)` \|", line))
    ]
    expected: list[str] = []

    actual = [text for text in quoted if not any(_is_from(text, one) for one in templates)]

    assert len(quoted) > 60
    assert expected == actual


@pytest.mark.parametrize("text", ["… cannot be kept: nonsense", "unknown choice …", "… is …: …"])
def test_a_message_that_is_not_in_the_source_is_noticed(text: str) -> None:
    assert not any(_is_from(text, one) for one in _templates())


def _is_from(quoted: str, template: str) -> bool:
    """Return whether the pieces of a quoted message stand in a template, in this order."""
    pieces = [piece for piece in quoted.split(GAP) if piece.strip()]
    if sum(map(len, pieces)) < MESSAGE_LITERALS_MIN:
        return False
    at = 0
    for piece in pieces:
        found = template.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return True


@functools.cache
def _templates() -> tuple[str, ...]:
    """Return each text of the source, with a gap for what is filled in, but for keys of options."""
    return tuple(
        text
        for path, source in modules()
        if ROOT / "src" in path.parents
        for node in ast.walk(ast.parse(source))
        if (text := _text(node)) and len(text) >= MESSAGE_LITERALS_MIN
    )


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    if isinstance(node, ast.FormattedValue):
        return _key(node.value) or GAP
    return ""


def _key(node: ast.expr) -> str:
    """Return the key of an option that is filled in by its name."""
    if not (isinstance(node, ast.Attribute) and node.attr == "key"):
        return ""
    name = getattr(node.value, "attr", "") or getattr(node.value, "id", "")
    option = getattr(options, name, None)
    return option.key if isinstance(option, Option) else ""


OTHERWISE = {"configuration.md", "flink-parity.md", "benchmarks.md", "benchmarks-zookeeper.md"}
"""Tables that are generated, and pages for readers of Flink's code."""

OLD_WAYS = re.compile(r"\b(anew|goes? on|going on|told|whoever|whomever|as what)\b", re.IGNORECASE)
"""Words that must be read twice: again, continues, printed or reported, anyone who, what."""


@pytest.mark.parametrize(
    "page",
    [page for page in pages() if page.name not in OTHERWISE],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_a_page_is_plain_english(page: Path) -> None:
    expected: list[str] = []

    actual = [
        paragraph[max(0, match.start() - 60) :][:120]
        for paragraph in _prose(page)
        for match in OLD_WAYS.finditer(paragraph)
    ]

    assert expected == actual


EXPLAINS = r"(\*{0}\*|\b{0}\b[^.]{{0,40}} \(|\([^).]{{0,40}}\b{0}\b)"
"""A word is explained as *word*, with parentheses behind it, or stands in parentheses itself."""


@pytest.mark.parametrize(
    "page",
    [page for page in pages() if page.name not in OTHERWISE],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_a_page_explains_a_word_of_the_house_where_it_first_stands(page: Path) -> None:
    explained: set[str] = set()
    unexplained: list[str] = []

    for paragraph in _prose(page):
        for match in OF_THE_HOUSE.finditer(paragraph):
            word = match[0].lower().removesuffix("s")
            if word not in explained:
                explained.add(word)
                if not re.search(EXPLAINS.format(f"{word}s?"), paragraph, re.IGNORECASE):
                    unexplained.append(f"{word}: {paragraph[max(0, match.start() - 60) :][:120]}")

    assert [] == unexplained


def _prose(page: Path) -> Iterator[str]:
    """Return the paragraphs, without what stands in code, in links and in headings."""
    text = re.sub(r"^\s*```.*?^\s*```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"`[^`]*`|\]\([^)]*\)|^#.*", "", text, flags=re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n|\n(?=[|-])", text):
        yield " ".join(paragraph.split())
