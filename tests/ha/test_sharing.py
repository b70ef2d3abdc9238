"""One request for all who ask at the same time, and never an answer from before one asked."""

from __future__ import annotations

import asyncio

import pytest

from understudy.ha.backends.zookeeper.register import Sharing


class Server:
    """Answers with how often it was asked, when it is told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.answers = asyncio.Event()

    async def answer(self) -> int:
        self.asked += 1
        mine = self.asked
        await self.answers.wait()
        return mine


async def turn() -> None:
    """Let all who can go on, go on."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_who_asks_while_a_request_is_under_way_shares_the_next_one() -> None:
    async def scenario() -> None:
        server, sharing = Server(), Sharing[int]()
        first = asyncio.ensure_future(sharing.ask("leader", server.answer))
        await turn()
        later = [asyncio.ensure_future(sharing.ask("leader", server.answer)) for _ in range(100)]
        await turn()
        under_way = server.asked
        server.answers.set()

        assert [1, *[2] * 100] == await asyncio.gather(first, *later)
        assert (1, 2) == (under_way, server.asked)
        assert 3 == await sharing.ask("leader", server.answer)

    asyncio.run(scenario())


def test_each_key_has_its_own() -> None:
    async def scenario() -> None:
        server, sharing = Server(), Sharing[int]()
        both = [asyncio.ensure_future(sharing.ask(key, server.answer)) for key in ("a", "b")]
        await turn()

        assert 2 == server.asked
        server.answers.set()
        assert [1, 2] == await asyncio.gather(*both)

    asyncio.run(scenario())


def test_who_gives_up_leaves_it_to_the_others() -> None:
    async def scenario() -> None:
        server, sharing = Server(), Sharing[int]()
        hasty = asyncio.ensure_future(sharing.ask("leader", server.answer))
        await turn()
        waiting = [asyncio.ensure_future(sharing.ask("leader", server.answer)) for _ in range(2)]
        await turn()
        hasty.cancel()
        waiting[0].cancel()
        await turn()
        server.answers.set()

        assert 2 == await waiting[1]
        assert 3 == await sharing.ask("leader", server.answer)

    asyncio.run(scenario())


def test_an_error_reaches_all_who_asked_for_it_and_nobody_after() -> None:
    async def scenario() -> None:
        server, sharing = Server(), Sharing[int]()
        server.answers.set()

        async def fails() -> int:
            raise ConnectionResetError

        asked = [asyncio.ensure_future(sharing.ask("leader", fails)) for _ in range(3)]
        found = await asyncio.gather(*asked, return_exceptions=True)

        assert [ConnectionResetError] * 3 == [type(one) for one in found]
        assert 1 == await sharing.ask("leader", server.answer)

    asyncio.run(scenario())


@pytest.mark.parametrize("times", [1, 2])
def test_each_event_loop_has_its_own(times: int) -> None:
    sharing = Sharing[int]()

    async def once() -> int:
        return 7

    async def scenario() -> None:
        assert 7 == await sharing.ask("leader", once)

    for _ in range(times):
        asyncio.run(scenario())
