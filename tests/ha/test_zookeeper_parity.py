"""On a real ZooKeeper: what Flink tests of its own, and is one for all backends here."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import pytest
from kazoo import exceptions

from tests.ha import ground
from tests.support.memory_storage import MemoryStorage
from tests.support.zookeeper import Server
from tests.support.zookeeper_clients import PATIENCE_S, Cluster, hands, until
from understudy.cli.launch.joining import check_joinable
from understudy.clock import SystemClock
from understudy.config import Configuration, options
from understudy.core.lease import Timing
from understudy.errors import ConfigurationError, Conflict, LostDataError
from understudy.ha.backends.zookeeper import options as zk
from understudy.ha.backends.zookeeper.register import open_register
from understudy.ha.backends.zookeeper.session import Session, SessionSettings
from understudy.ha.election import Election, Leadership
from understudy.ha.registry import REGISTRY_KEY, Registry
from understudy.ha.retrieval import LEADER_KEY, retrieve
from understudy.ha.services import HighAvailabilityServices
from understudy.ha.storage import InlineStorage
from understudy.ha.turns import NoProofs, open_turns
from understudy.jobmanager import attention
from understudy.model import Incarnation, LeaderRecord

LEASE_S = 1.0
NO_SETTINGS: Mapping[str, str] = {}
"""How long followers here believe their last answer."""


@pytest.fixture
def cluster(zookeeper: Server) -> Cluster:
    return Cluster(zookeeper.connect_string)


@pytest.fixture
def freezer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("freezer")) as server:
        yield server
        server.thaw()


class Contender:
    """A JobManager of which there is nothing but its leadership; ``async with`` ends it."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        register = cluster.open()
        me = LeaderRecord(holder=Incarnation(name), term=0, session="", name=name)
        self.grants: list[Leadership] = []
        self._name = name
        self._registry = Registry(register, cluster.name)
        clock = SystemClock()
        turns = open_turns(
            register.latch(name, b"{}"),
            register,
            Timing.of_session(10.0),
            clock,
            NoProofs(),
            random.Random(name),
        )
        self._election = Election(
            register, me, turns, clock, self._registry.highest_term, lambda deadline: None
        )

    async def __aenter__(self) -> Contender:
        self._task = asyncio.ensure_future(self._election.run(self._lead))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait({self._task}, timeout=PATIENCE_S)

    async def _lead(self, leadership: Leadership) -> None:
        self.grants.append(leadership)
        await self._registry.claim(leadership.term, ephemeral=False)
        await leadership.publish(f"http://{self._name}", f"tcp://{self._name}")
        await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def followed(
    cluster: Cluster, settings: Mapping[str, str] = NO_SETTINGS, lease_s: float = LEASE_S
) -> AsyncIterator[list[str]]:
    """Follow who leads, from the first answer on; yield their names, "" where nobody does."""
    register = cluster.open(**settings)
    names: list[str] = []

    async def follow() -> None:
        async for leader in retrieve(register, SystemClock(), lease_s):
            names.append(leader.rpc.removeprefix("tcp://") if leader else "")

    following = asyncio.ensure_future(follow())
    try:
        await until(lambda: bool(names))
        yield names
    finally:
        following.cancel()


# --- who leads, and who is told -------------------------------------------------------------------


def test_a_leader_and_its_successor_are_elected_and_found_and_leave_no_place(
    zookeeper: Server, cluster: Cluster
) -> None:
    async def scenario() -> None:
        first, second = Contender(cluster, "first"), Contender(cluster, "second")
        async with followed(cluster, lease_s=10.0) as names, contextlib.AsyncExitStack() as closing:
            async with first:
                await until(lambda: names[-1] == "first")
                await closing.enter_async_context(second)
                await asyncio.sleep(0.1)
                assert [] == second.grants
            await until(lambda: names[-1] == "second")
            await closing.aclose()
            await until(lambda: names[-1] == "")

        assert ["first", "second"] == [name for name in names if name]
        assert [1, 2] == [grant.term for one in (first, second) for grant in one.grants]

    asyncio.run(scenario())
    with hands(zookeeper) as client:
        assert client.exists(f"{cluster.path}/latch") is None


def test_a_damaged_record_is_replaced_by_the_first_in_line_at_once(cluster: Cluster) -> None:
    async def scenario() -> None:
        await cluster.open().swap(LEADER_KEY, b"no record", None)
        async with Contender(cluster, "first") as contender, followed(cluster) as names:
            await until(lambda: names[-1] == "first")

        assert ["its record was damaged"] == [grant.reason for grant in contender.grants]

    asyncio.run(scenario())


def test_a_leader_whose_record_hands_deleted_is_found_again_or_another_one_is(
    zookeeper: Server, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        reader = cluster.open()
        first, second = Contender(cluster, "first"), Contender(cluster, "second")
        async with first, followed(cluster) as names:
            await until(lambda: names[-1] == "first")
            async with second:
                entry = await reader.load(LEADER_KEY)
                assert entry is not None
                with hands(zookeeper) as client:
                    client.delete(entry.place)
                await until(lambda: "" in names[1:])
                await until(lambda: names[-1] != "")
                assert await reader.load(LEADER_KEY) is not None
                with pytest.raises(Conflict):
                    await reader.swap(LEADER_KEY, b"late", entry.version)

        terms = [grant.term for one in (first, second) for grant in one.grants]
        assert sorted(set(terms)) == sorted(terms)

    asyncio.run(scenario())
    assert "term 1 ended: the record by which it is found is gone" in caplog.text


def test_a_leader_whose_record_can_be_neither_read_nor_written_goes_and_says_why(
    zookeeper: Server, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    stray = f"{cluster.entry(LEADER_KEY)}/notes"

    async def scenario() -> None:
        async with Contender(cluster, "first") as first, followed(cluster) as names:
            await until(lambda: names[-1] == "first")
            entry = await cluster.open().load(LEADER_KEY)
            assert entry is not None
            with hands(zookeeper) as client:
                client.create(stray, b"by hand")
                client.delete(entry.place)
                await until(lambda: "term 1 ended" in caplog.text)
                client.delete(stray)
            await until(lambda: len(first.grants) == 2)
            await until(lambda: names[-1] == "first")

    asyncio.run(scenario())
    assert "term 1 ended: register entry leader: znode" in caplog.text


def test_a_follower_of_a_silent_ensemble_sees_nobody_and_the_same_leader_after(
    freezer: Server,
) -> None:
    cluster = Cluster(freezer.connect_string, ZK_SESSION_TIMEOUT="20 s")
    impatient = {"ZK_SESSION_TIMEOUT": "1 s", "ZK_CONNECTION_TIMEOUT": "0.3 s"}

    async def scenario() -> None:
        async with Contender(cluster, "first") as leader, followed(cluster, impatient) as names:
            await until(lambda: names[-1] == "first")
            freezer.freeze()
            await until(lambda: names[-1] == "")
            freezer.thaw()
            await until(lambda: names[-1] == "first")

        assert [1] == [grant.term for grant in leader.grants]

    asyncio.run(scenario())


def test_a_loss_names_the_node_that_was_our_place(zookeeper: Server, cluster: Cluster) -> None:
    async def scenario() -> None:
        latch = cluster.open().latch("me", b"{}")
        await latch.ahead()
        with hands(zookeeper) as client:
            (node,) = client.get_children(f"{cluster.path}/latch")
            client.delete(f"{cluster.path}/latch/{node}")

        expected = f"znode {cluster.path}/latch/{node}, our place in line, is gone"
        assert expected == await latch.lost()

    asyncio.run(scenario())


def test_a_registry_whose_value_hands_deleted_is_lost_and_never_made_anew(
    zookeeper: Server, cluster: Cluster
) -> None:
    storage = InlineStorage(MemoryStorage())

    def services() -> HighAvailabilityServices:
        return HighAvailabilityServices(cluster.open(), storage, ground.CLUSTER, ground.LOCATIONS)

    async def scenario() -> None:
        seen = services()
        await ground.opened(seen)
        key = cluster.entry(REGISTRY_KEY)
        with hands(zookeeper) as client:
            (nonce,) = client.get_children(key)
            client.delete(f"{key}/{nonce}")
            for stores in (seen, services()):
                with pytest.raises(LostDataError, match="registry is gone"):
                    await attention.refuse_lost_registry(stores, None)
            assert [] == client.get_children(key)

    asyncio.run(scenario())


# --- a start ------------------------------------------------------------------------------------


def test_a_server_that_is_silent_in_the_middle_of_a_start_and_comes_back_costs_none(
    freezer: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    patient = {"ZK_SESSION_TIMEOUT": "4 s", "ZK_CONNECTION_TIMEOUT": f"{PATIENCE_S} s"}
    cluster = Cluster(freezer.connect_string, **patient)
    register = cluster.open()
    session = register._session
    write = session.write

    async def thaw() -> None:
        await until(lambda: not session.connected)
        freezer.thaw()

    async def scenario() -> None:
        thawing: list[asyncio.Task[None]] = []

        async def freeze_first(request: Any) -> Any:
            monkeypatch.setattr(session, "write", write)
            await asyncio.to_thread(freezer.freeze)
            thawing.append(asyncio.create_task(thaw()))
            return await write(request)

        monkeypatch.setattr(session, "write", freeze_first)
        storage = InlineStorage(MemoryStorage())
        services = HighAvailabilityServices(register, storage, cluster.name, ground.LOCATIONS)
        await check_joinable(Configuration(cluster.settings), services)

        assert thawing
        assert [] == await register.keys("")

    asyncio.run(scenario())
    told = [
        one.getMessage() for one in caplog.records if one.name == "understudy.cli.launch.joining"
    ]
    assert 1 == len(told)
    assert f" for up to {PATIENCE_S:g} s ({zk.ZK_CONNECTION_TIMEOUT.key})" in told[0]


# --- stores ---------------------------------------------------------------------------------------


def test_applications_and_jobs_are_put_recovered_changed_and_removed(cluster: Cluster) -> None:
    storage = InlineStorage(MemoryStorage())

    def services() -> HighAvailabilityServices:
        return HighAvailabilityServices(cluster.open(), storage, ground.CLUSTER, ground.LOCATIONS)

    async def scenario() -> None:
        plans = await ground.opened(services())
        jobs = [ground.job(number) for number in (2, 1, 3)]
        for job in jobs:
            await plans.add(1, job)
        stores = services()
        stored, plans = await ground.taken_over(stores, 2)
        found = list(plans.entries.values())
        record = await stores.applications.record(stored.body)
        await plans.update(2, jobs[0].job_id, lambda entry: ground.job(2, attempt=2))
        again, changed = await ground.taken_over(services(), 3)
        second = next(iter(changed.entries.values()))
        await again.delete(3)
        body = await services().registry.bury(3, ground.APPLICATION, None)
        await services().registry.sweep(3)

        assert (jobs, ground.record()) == (found, record)
        assert 2 == second.attempt
        assert {} == body.applications
        assert ["registry"] == await cluster.open().keys("")

    asyncio.run(scenario())


# --- answers and settings -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (exceptions.NoNodeError, exceptions.NoNodeError),  # Refused: the register says of what.
        (exceptions.NodeExistsError, exceptions.NodeExistsError),
        (exceptions.BadVersionError, exceptions.BadVersionError),
        (exceptions.NotEmptyError, exceptions.NotEmptyError),
        (exceptions.NoAuthError, PermissionError),  # Unknown, and looked up: each is an OSError.
        (exceptions.InvalidACLError, PermissionError),
        (exceptions.ConnectionLoss, ConnectionResetError),
        (exceptions.SessionExpiredError, ConnectionResetError),
        (exceptions.SessionMovedError, ConnectionResetError),
        (exceptions.BadArgumentsError, OSError),
        (exceptions.NotReadOnlyCallError, OSError),
        (exceptions.MarshallingError, OSError),
        (exceptions.AuthFailedError, ConfigurationError),  # Trying again does not help.
    ],
)
def test_each_answer_is_refused_unknown_or_for_a_person(
    answer: type[exceptions.KazooException], expected: type[Exception]
) -> None:
    session = Session(SessionSettings((("zk1", 2181),), session_s=20.0, connection_s=15.0))

    assert expected is type(session.understood(answer()))


@pytest.mark.parametrize(
    "text", ["zk1:2181,zk2:2182", " zk1 , zk2:2182 ", "zk1:2181;zk2:2182", "zk1:2181, ,zk2:2182,"]
)
def test_a_quorum_is_read_however_it_is_spaced(text: str) -> None:
    settings = {options.HA_TYPE.key: "zookeeper", zk.ZK_QUORUM.key: text}

    assert (("zk1", 2181), ("zk2", 2182)) == Configuration(settings).get(zk.ZK_QUORUM)


@pytest.mark.parametrize(
    ("root", "name", "expected"),
    [
        ("/flink", "flights", "/flink/flights"),
        ("/flink/", "flights", "/flink/flights"),
        ("//flink/ours//", "flights", "/flink/ours/flights"),
        ("/flink", "of/us.", "/flink/of%2Fus%2E"),
    ],
)
def test_the_path_of_a_cluster_has_no_slash_too_many(root: str, name: str, expected: str) -> None:
    settings = {
        options.HA_TYPE.key: "zookeeper",
        zk.ZK_QUORUM.key: "zk1",
        zk.ZK_ROOT.key: root,
    }

    assert expected == open_register(name, settings).status()["path"]
