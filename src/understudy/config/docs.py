"""Generates the option tables: ``python -m understudy.config.docs docs/configuration.md``."""

from __future__ import annotations

import sys
from pathlib import Path

from understudy.config import flink, options
from understudy.config.option import SAME

_HEAD = """# Configuration

Options come from `config.yaml` in `--config-dir` (nested or dotted keys) and from `-D key=value`,
which wins. Durations are written `20 s`, `1 min`, `500 ms` (a bare number is milliseconds, as in
Flink), sizes `256 kb`. Keys that begin with `spark.` go to Spark as they are. An unknown key is
refused, with the nearest known one.

This page is generated from `src/understudy/config`; change it there.

| key | type | default | meaning | Flink |
|---|---|---|---|---|
"""

_DEPRECATED = """
## Deprecated keys of Flink

They act as their successor, which wins where both are set; a warning names it.

| key | successor |
|---|---|
"""

_NOTHING = """
## Keys of Flink without a meaning here

They do nothing, and a warning says why.

| key | why |
|---|---|
"""


def render() -> str:
    """Return the page as Markdown."""
    rows = [
        f"| `{option.key}` | {option.kind.name} | {_default(option.default)} | {option.meaning} "
        f"| {_flink(option.flink)} |"
        for option in options.OPTIONS
    ]
    deprecated = [f"| `{old}` | `{new}` |" for old, new in sorted(flink.SUCCESSORS.items())]
    nothing = sorted(
        [*flink.WITHOUT_MEANING.items()]
        + [(f"{prefix}*", why) for prefix, why in flink.PREFIXES_WITHOUT_MEANING.items()]
    )
    without = [f"| `{key}` | {why} |" for key, why in nothing]
    return (
        _HEAD
        + "\n".join(rows)
        + "\n"
        + _DEPRECATED
        + "\n".join(deprecated)
        + "\n"
        + _NOTHING
        + "\n".join(without)
        + "\n"
    )


def _default(text: str | None) -> str:
    if text is None:
        return "(unset)"
    return f"`{text}`" if text else "(empty)"


def _flink(text: str) -> str:
    return {"": "not there", SAME: "the same"}.get(text, text)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render(), encoding="utf-8")
