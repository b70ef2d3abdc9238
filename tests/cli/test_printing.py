"""What commands print where there is no terminal, or one that knows few characters."""

from __future__ import annotations

import io
import json
import sys

import pytest

from understudy.cli import app
from understudy.cli.commands.ask import print_json
from understudy.process.printed import is_terminal


@pytest.mark.parametrize("text", ["Zürich → Bern", "\udcff"])
def test_json_is_printed_to_any_terminal(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", stream)
    print_json({"name": text})
    stream.flush()

    assert {"name": text} == json.loads(raw.getvalue())


def test_a_stream_that_a_process_began_without_is_no_terminal() -> None:
    """As after ``2>&-``."""
    assert not is_terminal(None)
    assert not is_terminal(io.StringIO())


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_help_is_printed_to_a_terminal_of_few_characters(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "argv", ["understudy", "run-application", "--help"])
    with pytest.raises(SystemExit) as ended:
        app.main()
    stream.flush()

    assert not ended.value.code
    assert "Start a cluster here" in raw.getvalue().decode(encoding)
