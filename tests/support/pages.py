"""The fenced blocks of a page, which say in their info string what a test does with them.

```` ```python file=app.py ````       saved under this name; blocks of one name form one file
```` ```sh run ````                   executed (sh, or python), and must exit with 0
```` ```sh run exit=1 ````            ... with 1
```` ```sh run=background ````        executed beside the blocks that follow, and must exit with 0
```` ```sh run=cluster ````           executed where `kubectl` reaches a cluster (tests/kubernetes)
```` ```sh run after="3 of 20" ````   executed once the background block has printed this
```` ```text output ````              lines of the output of the last command, in this order; `…`
                                      stands for anything
```` ```text output=background ````   ... of the background block, which has ended

A page with the mark `spark` in a block is executed with real Spark, every other one with drivers
without a session. Blocks without marks are not executed.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.house.repository import ROOT
from tests.journeys import harness

GAP = "…"
CLUSTER = "cluster"
MARKS = {"file", "run", "exit", "after", "output", "spark"}

WITHOUT_SESSIONS = {"taskmanager.driver.type": "session-less"}
SMALL_SPARK = {
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    place: str
    language: str
    marks: Mapping[str, str]
    text: str


def pages() -> list[Path]:
    """Return README.md and each page that a person has written about the use of Understudy."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    """Return the fenced blocks of a page. Raises `ValueError` for a mark that has no meaning."""
    opened, info, lines = 0, "", list[str]()
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = re.match(r"\s*```(.*)", line)
        if fence is None:
            lines.append(line)
        elif opened:
            place = f"{page.relative_to(ROOT)}:{opened}"
            yield Block(place, *_meaning(place, info), "\n".join(lines) + "\n")
            opened = 0
        else:
            opened, info, lines = number, fence.group(1), []


def _meaning(place: str, info: str) -> tuple[str, dict[str, str]]:
    language, *words = shlex.split(info) or [""]
    marks = dict(word.partition("=")[::2] for word in words)
    if unknown := marks.keys() - MARKS:
        raise ValueError(f"{place}: {sorted(unknown)}: known marks are {sorted(MARKS)}")
    return language, marks


def needs_spark(page: Path) -> bool:
    """Return whether the page is executed with real Spark."""
    return any("spark" in block.marks for block in blocks(page))


def is_executed(page: Path) -> bool:
    """Return whether the page has a block that is executed where no Kubernetes is needed."""
    return any(block.marks.get("run", CLUSTER) != CLUSTER for block in blocks(page))


def execute(page: Path, place: Path) -> None:
    """Do in a directory what the page says; raise AssertionError where the outcome differs."""
    settings = SMALL_SPARK if needs_spark(page) else WITHOUT_SESSIONS
    (place / "conf").mkdir()
    (place / "conf" / "config.yaml").write_text(yaml.safe_dump(settings))
    reader = Reader(place)
    try:
        for block in blocks(page):
            reader.follow(block)
        if reader.background:
            reader.background.ended(0)
    finally:
        reader.close()


class Reader:
    """Somebody who follows a page step by step, in a directory and a terminal or two."""

    def __init__(self, place: Path, variables: Mapping[str, str] | None = None) -> None:
        """``variables``: the environment of commands, where it is another than usual."""
        self.place = place
        self._variables = variables or _variables(place)
        self.background: Background | None = None
        self._output = ""
        self._files: set[str] = set()

    def follow(self, block: Block) -> None:
        """Do what one block says."""
        if name := block.marks.get("file"):
            self._save(name, block.text)
        if "output" in block.marks:
            self._compare(block)
        elif block.marks.get("run") == "background":
            self.background = Background(block, self.place)
        elif "run" in block.marks:
            self._run(block)

    def close(self) -> None:
        """End what the page has started."""
        if self.background:
            self.background.close()

    def _save(self, name: str, text: str) -> None:
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_text() if name in self._files else ""
        self._files.add(name)
        path.write_text(before + text)

    def _run(self, block: Block) -> None:
        if after := block.marks.get("after"):
            assert self.background, f"{block.place}: nothing runs in the background"
            self.background.printed(after)
        done = subprocess.run(
            _command(block, self.place),
            cwd=self.place,
            env=self._variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=harness.WHOLE_S,
            check=False,
        )
        self._output = done.stdout

        assert int(block.marks.get("exit", 0)) == done.returncode, f"{block.place}: {done.stdout}"

    def _compare(self, block: Block) -> None:
        output = self._output
        if block.marks["output"] == "background":
            assert self.background, f"{block.place}: nothing runs in the background"
            output = self.background.ended(0)
        missing = missing_line(block.text, output)

        assert not missing, f"{block.place}: {missing!r} is not in\n{output}"


class Background:
    """A command that runs beside the others."""

    def __init__(self, block: Block, place: Path) -> None:
        self.place = block.place
        self._process = subprocess.Popen(
            _command(block, place),
            cwd=place,
            env=_variables(place),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._output = ""
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self._output += line
                self._changed.notify_all()
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def printed(self, text: str) -> None:
        """Wait until the command has printed this."""
        with self._changed:
            self._changed.wait_for(lambda: text in self._output or self._closed, harness.PATIENCE_S)

            assert text in self._output, f"{self.place}: {text!r} is not in\n{self._output}"

    def ended(self, code: int) -> str:
        """Wait for the end of the command; return what it has printed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed, harness.WHOLE_S)

            assert self._closed, f"{self.place}: the command does not end\n{self._output}"
        assert code == self._process.wait(harness.PATIENCE_S), f"{self.place}:\n{self._output}"
        return self._output

    def close(self) -> None:
        """End the command if it runs: it closes its cluster."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(harness.PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()


def missing_line(expected: str, output: str) -> str:
    """Return the first expected line that is not in the output after those before it, or ""."""
    rest = iter(output.splitlines())
    for line in filter(str.strip, expected.splitlines()):
        pattern = re.compile(".*".join(map(re.escape, line.strip().split(GAP))))
        if not any(pattern.fullmatch(found.strip()) for found in rest):
            return line
    return ""


def _command(block: Block, place: Path) -> list[str]:
    if block.language == "python":
        path = place / f"block-{block.place.rpartition(':')[2]}.py"
        path.write_text(block.text)
        return [sys.executable, str(path)]
    # What is in the foreground of a script of one command is that command: it gets the signals.
    return ["sh", "-ec", block.text]


def _variables(place: Path) -> dict[str, str]:
    variables = harness.environment(place)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return {**variables, "PATH": path, "UNDERSTUDY_CONF_DIR": str(place / "conf")}
