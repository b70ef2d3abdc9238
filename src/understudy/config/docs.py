"""Generates the option tables: ``python -m understudy.config.docs docs/configuration.md``."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from understudy.config import backends, flink, options
from understudy.config.known import known_with
from understudy.config.option import SAME, Option

_HEAD = """# Configuration

Options come from `config.yaml` in `--config-dir` (nested or dotted keys) and from `-D key=value`,
which wins. Durations are written `20 s`, `1 min`, `500 ms` (a bare number is milliseconds, as in
Flink), sizes `256 kb`. Keys that begin with `spark.` go to Spark as they are. An unknown key is
refused, with the nearest known one.

This page is generated from `src/understudy/config`; change it there.

| key | type | default | meaning | Flink |
|---|---|---|---|---|
"""

_OF_BACKEND = """
## With `high-availability.type: {name}`

| key | type | default | meaning | Flink |
|---|---|---|---|---|
"""

_OF_KUBERNETES = """
## On Kubernetes

Where the API server is, and what the pods of a cluster are that is deployed there
([Kubernetes](kubernetes.md)). Keys that begin with `containerized.master.env.` and
`containerized.taskmanager.env.` set environment variables in the pods of JobManagers and
TaskManagers.

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
    known = known_with({})
    deprecated = [f"| `{old}` | `{new}` |" for old, new in sorted(known.successors.items())]
    nothing = sorted(
        [
            *known.without_meaning.items(),
            *((f"{prefix}*", why) for prefix, why in flink.PREFIXES_WITHOUT_MEANING.items()),
        ]
    )
    without = [f"| `{key}` | {why} |" for key, why in nothing]
    return (
        _HEAD
        + _rows(one for one in options.OPTIONS if one not in options.ON_KUBERNETES)
        + _OF_KUBERNETES
        + _rows(options.ON_KUBERNETES)
        + "".join(
            _OF_BACKEND.format(name=name) + _rows(backend.options)
            for name, backend in backends.ours()
            if backend.options
        )
        + _DEPRECATED
        + "\n".join(deprecated)
        + "\n"
        + _NOTHING
        + "\n".join(without)
        + "\n"
    )


def _rows(declared: Iterable[Option[Any]]) -> str:
    return "".join(
        f"| `{option.key}` | {option.kind.name} | {_default(option.default)} | {option.meaning} "
        f"| {_flink(option.flink)} |\n"
        for option in declared
    )


def _default(text: str | None) -> str:
    if text is None:
        return "(unset)"
    return f"`{text}`" if text else "(empty)"


def _flink(text: str) -> str:
    return {"": "not there", SAME: "the same"}.get(text, text)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render(), encoding="utf-8")
