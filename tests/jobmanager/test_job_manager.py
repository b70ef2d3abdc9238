"""A term: what ends it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from understudy.jobmanager import job_manager
from understudy.jobmanager.job_manager import JobManager
from understudy.jobmanager.resource_manager import ResourceManager

PATIENCE_S = 30.0


class Endless:
    """A `Dispatcher` that always has something to do."""

    def __init__(self, *_: object) -> None:
        pass

    async def run(self, publish: object) -> None:
        """Lead for ever."""
        await asyncio.Event().wait()


def test_a_term_in_which_nobody_gives_up_the_silent_any_more_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(resources: ResourceManager) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        leader: Any = SimpleNamespace(
            _adoption_grace_s=1.0,
            _changed=asyncio.Event(),
            _binding=None,
            around=SimpleNamespace(locks=None, clock=None),
            standbys={},
        )
        leadership: Any = SimpleNamespace(term=1, reason="first")
        async with asyncio.timeout(PATIENCE_S):
            await JobManager._lead(leader, leadership)

    monkeypatch.setattr(job_manager, "Dispatcher", Endless)
    monkeypatch.setattr(ResourceManager, "give_up_the_silent", fail)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        asyncio.run(main())
