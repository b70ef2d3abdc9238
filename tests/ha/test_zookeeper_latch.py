"""The line in ZooKeeper, where more can be done to it than to any line; see the contract's too."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.zookeeper import Server
from tests.support.zookeeper_clients import PATIENCE_S, Cluster, hands, until
from understudy.errors import LeadershipLost
from understudy.ha.backends.zookeeper.latch import ZooKeeperLatch

MOMENT_S = 0.3
"""A server on loopback answers in a hundredth of that."""


@pytest.fixture
def cluster(zookeeper: Server) -> Cluster:
    return Cluster(zookeeper.connect_string)


def test_a_place_that_was_deleted_by_hand_is_lost(zookeeper: Server, cluster: Cluster) -> None:
    async def scenario() -> None:
        latch = cluster.open().latch("me", b"note")
        await latch.ahead()
        lost = asyncio.ensure_future(latch.lost())
        await asyncio.sleep(0.05)
        with hands(zookeeper) as client:
            for node in client.get_children(f"{cluster.path}/latch"):
                client.delete(f"{cluster.path}/latch/{node}")
        async with asyncio.timeout(PATIENCE_S):
            reason = await lost

        assert "our place in line, is gone" in reason
        with pytest.raises(LeadershipLost, match="is gone"):
            await latch.renew()
        assert await latch.ahead() is None, "it stands in line anew"
        await latch.renew()

    asyncio.run(scenario())


def test_who_stands_in_line_is_seen_without_standing_in_it(cluster: Cluster) -> None:
    async def scenario() -> list[list[str]]:
        looking = cluster.open()
        seen = [await looking.line()]
        first, second = (cluster.open().latch(me, b"") for me in ("first-one", "second-one"))
        await first.ahead()
        await second.ahead()
        seen.append(await looking.line())
        await first.leave()
        return [*seen, await looking.line()]

    assert [[], ["first-one", "second-one"], ["second-one"]] == asyncio.run(scenario())


def test_what_happens_to_documents_wakes_nobody_in_line(cluster: Cluster) -> None:
    """Each would read the line again: 200 standbys at each change of the leader's record."""

    async def scenario() -> None:
        first = cluster.open().latch("first", b"")
        await first.ahead()
        register = cluster.open()
        standby = register.latch("standby", b"")
        assert "first" == await standby.ahead()
        moved = asyncio.ensure_future(standby.moved())
        changes = register.changes("leader")
        await anext(changes)
        await cluster.open().swap("leader", b"one", None)
        await anext(changes)
        await asyncio.wait({moved}, timeout=MOMENT_S)
        woken = moved.done()
        await first.leave()
        async with asyncio.timeout(MOMENT_S * 10):
            await moved

        assert not woken

    asyncio.run(scenario())


def test_a_place_whose_making_was_never_answered_is_found_again(
    zookeeper: Server, cluster: Cluster
) -> None:
    async def scenario() -> None:
        latch = cluster.open().latch("me", b"")
        await latch._parents.make(latch._path)
        await latch._stand()
        await latch._stand()

        assert await latch.ahead() is None
        with hands(zookeeper) as client:
            assert 1 == len(client.get_children(f"{cluster.path}/latch"))
        other = cluster.open().latch("other", b"")
        assert "me" == await other.ahead()
        await latch.leave()
        assert await other.ahead() is None

    asyncio.run(scenario())


def test_a_place_counts_for_the_session_that_made_it_only(cluster: Cluster) -> None:
    """The session is replaced between finding the place and noting whose it is."""

    async def scenario() -> None:
        latch = cluster.open().latch("me", b"")
        await latch.ahead()
        found = latch._mine

        async def replaced(line: list[str], session: int) -> str | None:
            mine = await found(line, session)
            latch._session.number += 1
            return mine

        latch._mine = replaced  # type: ignore[method-assign]
        await latch.ahead()

        with pytest.raises(LeadershipLost, match="session was lost"):
            await latch.renew()
        assert "the ZooKeeper session was lost" == await latch.lost()

    asyncio.run(scenario())


def test_a_line_of_others_who_write_nonsense_is_passed_over(
    zookeeper: Server, cluster: Cluster
) -> None:
    async def scenario() -> ZooKeeperLatch:
        latch = cluster.open().latch("me", b"")
        with hands(zookeeper) as client:
            client.create(f"{cluster.path}/latch/notes", b"by hand", makepath=True)
            client.create(f"{cluster.path}/latch/x-1", b"by hand")
        assert await latch.ahead() is None
        await latch.leave()
        return latch

    asyncio.run(scenario())
    with hands(zookeeper) as client:
        assert {"notes", "x-1"} == set(client.get_children(f"{cluster.path}/latch"))


def test_the_intolerant_lose_with_the_connection(tmp_path_factory: pytest.TempPathFactory) -> None:
    async def scenario(server: Server) -> None:
        cluster = Cluster(server.connect_string)
        brave = cluster.open().latch("brave", b"")
        afraid = cluster.open(ZK_TOLERATE_SUSPENDED="false").latch("afraid", b"")
        await brave.ahead()
        await afraid.ahead()
        both = [asyncio.ensure_future(one.lost()) for one in (brave, afraid)]
        await asyncio.sleep(0.05)
        server.kill()
        await until(both[1].done)

        assert "the connection to ZooKeeper is suspended" == both[1].result()
        assert not both[0].done()

    with Server(tmp_path_factory.mktemp("killed")) as server:
        asyncio.run(scenario(server))
