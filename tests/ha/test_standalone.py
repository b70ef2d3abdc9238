"""The register of those who are told where the one JobManager is."""

from __future__ import annotations

import pytest

from tests.support.virtual_time import run_virtual, virtual_clock
from understudy.ha.retrieval import LEADER_KEY, retrieve, serving_leader
from understudy.ha.standalone import ConfiguredLeader

RPC, REST = "unix:@here", "http://localhost:8081"


def test_the_leader_is_where_the_configuration_says() -> None:
    async def main() -> None:
        leader = await serving_leader(ConfiguredLeader(RPC, REST))

        assert leader is not None
        assert (RPC, REST) == (leader.rpc, leader.rest)

    run_virtual(main())


def test_it_is_retrieved_once_and_never_changes() -> None:
    async def main() -> None:
        found = retrieve(ConfiguredLeader(RPC, REST), virtual_clock(), 15.0)
        leader = await anext(aiter(found))

        assert leader is not None
        assert RPC == leader.rpc

    run_virtual(main())


def test_nothing_else_is_known_and_nothing_can_be_written() -> None:
    async def main() -> None:
        register = ConfiguredLeader(RPC, REST)
        known = await register.keys("")
        registry = await register.load("registry")
        with pytest.raises(OSError, match="there is no shared register"):
            await register.swap("registry", b"mine", None)

        assert [LEADER_KEY] == known
        assert registry is None

    run_virtual(main())
