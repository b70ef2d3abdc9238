"""The register in ZooKeeper: what hands have done to its nodes, and who may use them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl, make_digest_acl

from tests.support.zookeeper import Server
from tests.support.zookeeper_clients import ROOT, Cluster, hands, until
from understudy.errors import Conflict, CorruptDataError
from understudy.ha.backends.zookeeper.register import OURS, ZooKeeperRegister

AUTHORIZATION = "high-availability.zookeeper.client.authorization"
ALICE, BOB = "digest:alice:secret", "digest:bob:other"


@pytest.fixture
def cluster(zookeeper: Server) -> Cluster:
    return Cluster(zookeeper.connect_string)


# --- versions -------------------------------------------------------------------------------------


def test_a_version_of_a_key_that_was_deleted_and_made_anew_conflicts(cluster: Cluster) -> None:
    """Both nodes have ZooKeeper's version 0: only the nonce tells them apart."""

    async def scenario() -> None:
        paused, other = cluster.open(), cluster.open()
        old = await paused.swap("leader", b"mine", None)
        await other.swap("leader", None, old)
        new = await other.swap("leader", b"theirs", None)

        assert old.partition(".")[2] == new.partition(".")[2] == "0"
        for value in (b"late", None):
            with pytest.raises(Conflict):
                await paused.swap("leader", value, old)
        found = await paused.load("leader")
        assert found is not None
        assert (b"theirs", new) == (found.value, found.version)

    asyncio.run(scenario())


def test_a_reader_who_knew_the_old_nonce_finds_the_new_value(cluster: Cluster) -> None:
    async def scenario() -> None:
        reader, writer = cluster.open(), cluster.open()
        old = await writer.swap("leader", b"one", None)
        await reader.load("leader")
        await writer.swap("leader", None, old)

        assert await reader.load("leader") is None
        await writer.swap("leader", b"two", None)
        found = await reader.load("leader")
        assert found is not None
        assert b"two" == found.value

    asyncio.run(scenario())


def test_reading_makes_no_node_and_the_last_delete_leaves_none(
    zookeeper: Server, cluster: Cluster
) -> None:
    async def scenario() -> None:
        register = cluster.open()
        await register.load("leader")
        await register.keys("")
        with hands(zookeeper) as client:
            assert client.exists(cluster.path) is None
        version = await register.swap("leader", b"one", None)
        await register.swap("leader", None, version)

    asyncio.run(scenario())
    with hands(zookeeper) as client:
        assert client.exists(cluster.path) is None


# --- edited by hand -------------------------------------------------------------------------------


def test_a_key_whose_value_hands_deleted_is_absent_and_no_old_version_counts_again(
    zookeeper: Server, cluster: Cluster
) -> None:
    async def scenario() -> None:
        paused, other = cluster.open(), cluster.open()
        old = await _create(paused)
        with hands(zookeeper) as client:
            _empty(client, cluster.entry("leader"))

        assert await paused.load("leader") is None
        assert await other.load("leader") is None
        new = await other.swap("leader", b"new", None)
        for value in (b"late", None):
            with pytest.raises(Conflict):
                await paused.swap("leader", value, old)
        with pytest.raises(Conflict):
            await paused.swap("leader", b"late", None)
        found = await paused.load("leader")
        assert found is not None
        assert (b"new", new) == (found.value, found.version)

    asyncio.run(scenario())


def test_of_those_who_write_an_emptied_key_at_the_same_time_one_wins(
    zookeeper: Server, cluster: Cluster
) -> None:
    async def scenario() -> None:
        writers = [cluster.open() for _ in range(4)]
        version = await _create(writers[0])
        for number in range(10):
            with hands(zookeeper) as client:
                _empty(client, cluster.entry("leader"))
            outcomes = await asyncio.gather(
                *(one.swap("leader", b"%d" % at, None) for at, one in enumerate(writers)),
                writers[number % 4].swap("leader", b"late", version),
                return_exceptions=True,
            )
            won = {at: one for at, one in enumerate(outcomes) if isinstance(one, str)}
            found = await writers[number % 4].load("leader")

            assert found is not None
            assert [(found.value, found.version)] == [(b"%d" % at, won[at]) for at in won]
            assert all(isinstance(outcomes[at], Conflict) for at in {*range(5)} - {*won})
            version = found.version

    asyncio.run(scenario())


def test_who_follows_a_key_that_hands_have_emptied_is_told_once_it_has_a_value_again(
    zookeeper: Server, cluster: Cluster
) -> None:
    async def scenario() -> None:
        register, seen = cluster.open(), list[bytes]()
        await _create(register)

        async def follow() -> None:
            async for _ in register.changes("leader"):
                found = await register.load("leader")
                seen.append(found.value if found else b"")

        following = asyncio.ensure_future(follow())
        await until(lambda: seen[-1:] == [b"one"])
        with hands(zookeeper) as client:
            _empty(client, cluster.entry("leader"))
        await until(lambda: seen[-1:] == [b""])
        version = await cluster.open().swap("leader", b"two", None)
        await until(lambda: seen[-1:] == [b"two"])
        await cluster.open().swap("leader", b"three", version)
        await until(lambda: seen[-1:] == [b"three"])
        following.cancel()

    asyncio.run(scenario())


def test_an_emptied_key_is_not_listed_and_what_is_left_of_it_goes(
    zookeeper: Server, cluster: Cluster
) -> None:
    async def scenario() -> None:
        register = cluster.open()
        await _create(register)
        version = await _create(register, "other")
        with hands(zookeeper) as client:
            _empty(client, cluster.entry("leader"))
            assert ["other"] == await register.keys("")
            assert ["other"] == client.get_children(f"{cluster.path}/register")
            await register.swap("other", None, version)
            assert client.exists(cluster.path) is None

    asyncio.run(scenario())


def test_a_key_with_something_else_instead_of_its_value_is_named_with_its_node(
    zookeeper: Server, cluster: Cluster
) -> None:
    with hands(zookeeper) as client:
        client.create(f"{cluster.entry('leader')}/notes", b"do not touch", makepath=True)

    async def scenario() -> None:
        with pytest.raises(CorruptDataError, match=re.escape(cluster.entry("leader"))):
            await cluster.open().load("leader")
        with pytest.raises(Conflict):
            await cluster.open().swap("leader", b"value", None)

    asyncio.run(scenario())


def test_a_key_with_two_values_is_named_with_its_node(zookeeper: Server, cluster: Cluster) -> None:
    asyncio.run(_create(cluster.open()))
    with hands(zookeeper) as client:
        client.create(f"{cluster.entry('leader')}/0123456789ab", b"two")

    with pytest.raises(CorruptDataError, match=rf"{cluster.entry('leader')} .* has 2"):
        asyncio.run(cluster.open().load("leader"))


def test_what_was_put_under_a_key_by_hand_is_named_when_the_key_is_deleted(
    zookeeper: Server, cluster: Cluster
) -> None:
    version = asyncio.run(_create(cluster.open()))
    with hands(zookeeper) as client:
        client.create(f"{cluster.entry('leader')}/notes", b"do not touch")

    async def scenario() -> None:
        register = cluster.open()
        found = await register.load("leader")
        assert found is not None
        assert b"one" == found.value
        with pytest.raises(CorruptDataError, match=re.escape(cluster.entry("leader"))):
            await register.swap("leader", None, version)

    asyncio.run(scenario())


def test_nodes_above_that_hands_have_made_stay(zookeeper: Server) -> None:
    cluster = Cluster(zookeeper.connect_string, ZK_ROOT=f"/chroot-{id(zookeeper)}")
    root = f"/chroot-{id(zookeeper)}"
    with hands(zookeeper) as client:
        client.create(root)

        async def scenario() -> None:
            register = cluster.open()
            await register.swap("leader", None, await register.swap("leader", b"one", None))

        asyncio.run(scenario())
        assert [] == client.get_children(root)
        client.delete(root)


# --- who may --------------------------------------------------------------------------------------


def test_what_one_identity_made_another_cannot_use_and_is_told_why(zookeeper: Server) -> None:
    cluster = Cluster(zookeeper.connect_string, ZK_ACL="creator", ZK_AUTHORIZATION=ALICE)
    root = f"/private-{cluster.name}"

    async def scenario() -> None:
        version = await cluster.open(ZK_ROOT=root).swap("leader", b"one", None)
        await refused(cluster.open(ZK_ROOT=root, ZK_AUTHORIZATION=BOB), version)
        again = cluster.open(ZK_ROOT=root)
        found = await again.load("leader")
        assert found is not None
        await again.swap("leader", None, version)

    asyncio.run(scenario())


def test_an_acl_that_is_changed_meanwhile_is_told_of_by_every_verb(
    zookeeper: Server, cluster: Cluster
) -> None:
    register = cluster.open()
    theirs = [make_digest_acl("admin", "secret", all=True)]

    async def scenario() -> None:
        version = await _create(register)
        await _create(register, "other")
        with hands(zookeeper, auth_data={("digest", "admin:secret")}) as client:
            place = cluster.entry("leader")
            found = await register.load("leader")
            assert found is not None
            for path in (found.place, place, f"{cluster.path}/register"):
                client.set_acls(path, theirs)
            try:
                await refused(register, version)
            finally:
                for path in (f"{cluster.path}/register", place, found.place):
                    client.set_acls(path, OPEN_ACL_UNSAFE)
        await register.swap("leader", b"two", version)

    asyncio.run(scenario())


def test_a_root_that_was_made_for_us_is_enough(tmp_path_factory: pytest.TempPathFactory) -> None:
    """In ensembles of others nobody may create or delete anything at the top."""
    with Server(tmp_path_factory.mktemp("locked")) as server, hands(server) as client:
        client.create(ROOT)
        client.set_acls("/", [make_acl("world", "anyone", read=True)])
        cluster = Cluster(server.connect_string)

        async def scenario() -> None:
            register = cluster.open()
            latch = register.latch("me", b"{}")
            version = await register.swap("leader", b"one", None)
            assert await latch.ahead() is None
            await latch.leave()
            await register.swap("leader", None, version)

        asyncio.run(scenario())
        assert [] == client.get_children(ROOT)


def test_what_may_not_be_removed_above_stays_and_the_delete_holds(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with Server(tmp_path_factory.mktemp("append-only")) as server, hands(server) as client:
        client.set_acls("/", [make_acl("world", "anyone", read=True, create=True)])
        cluster = Cluster(server.connect_string)

        async def scenario() -> None:
            register = cluster.open()
            version = await register.swap("leader", b"one", None)
            await register.swap("leader", None, version)

        asyncio.run(scenario())
        assert [] == client.get_children(ROOT)
        assert OURS == client.get(ROOT)[0]


async def refused(register: ZooKeeperRegister, version: str) -> None:
    """Try every verb, and expect each to be told why it may not."""
    attempts: list[Callable[[], Awaitable[object]]] = [
        lambda: register.load("leader"),
        lambda: register.swap("leader", b"two", version),
        lambda: register.swap("leader", None, version),
        lambda: register.swap("third", b"two", None),
        lambda: register.keys(""),
    ]
    for attempt in attempts:
        with pytest.raises(PermissionError, match=AUTHORIZATION):
            await attempt()


async def _create(register: ZooKeeperRegister, key: str = "leader") -> str:
    return await register.swap(key, b"one", None)


def _empty(client: KazooClient, key: str) -> None:
    """Delete the value of a key, as ``zkCli delete`` does, and leave the key's own node."""
    (nonce,) = client.get_children(key)
    client.delete(f"{key}/{nonce}")
