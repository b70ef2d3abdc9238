"""What a writer of Spark says in a fenced batch: no Spark runs, the refusals need none."""

from __future__ import annotations

from typing import Any

import pytest

from understudy.errors import CheckpointError
from understudy.spark import writes


class FakeWriter:
    """A writer that was told its format, in the batch of a fence that refuses to be reached."""

    def __init__(self, format_: str) -> None:
        self._df = self._spark = None
        self._understudy_told = {
            "mode": "append",
            "format": format_,
            "options": {},
            "partitioned": False,
        }

    def save(self, path: str | None = None) -> None:
        """See Spark's ``save``."""
        raise AssertionError("written past the fence")


@pytest.fixture(autouse=True)
def _in_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    fence: Any = object()
    monkeypatch.setattr(writes._calling, "fence", fence, raising=False)


def save(format_: str, *path: str) -> None:
    """Save as the replaced method does."""
    writes._routed("save", FakeWriter.save)(FakeWriter(format_), *path)


@pytest.mark.parametrize("format_", ["kafka", "jdbc"])
@pytest.mark.parametrize("path", [(), ("/out",)])
def test_a_format_that_is_not_safe_is_refused_for_that_and_not_for_its_path(
    format_: str, path: tuple[str, ...]
) -> None:
    with pytest.raises(CheckpointError, match=f"format='{format_}' cannot be written safely"):
        save(format_, *path)


@pytest.mark.parametrize("format_", ["parquet", "delta"])
def test_a_safe_format_needs_its_path_as_an_argument(format_: str) -> None:
    with pytest.raises(CheckpointError, match="needs its path as an argument"):
        save(format_)
