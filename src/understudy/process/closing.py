"""Closing in steps: an error in one step stops no other step, and all errors are reported."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

_log = logging.getLogger(__name__)


class Closing:
    """The steps that close something; use as a context manager around them."""

    def __init__(self, what: str) -> None:
        """``what``: the name of the thing that is closed, for the report."""
        self._what = what
        self.errors: list[Exception] = []

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Run one step in the block; keep an error for the report."""
        try:
            yield
        except Exception as error:
            error.add_note(f"while closing {self._what}: {name}")
            self.errors.append(error)

    def __enter__(self) -> Closing:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """Log all errors; raise none, as closing cannot be undone."""
        if self.errors:
            causes = "; ".join(f"{type(one).__name__}: {one}" for one in self.errors)
            group = ExceptionGroup(f"{self._what} was closed with errors", self.errors)
            _log.error(
                "%s was closed, but not without errors: %s", self._what, causes, exc_info=group
            )
