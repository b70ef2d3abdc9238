"""The leader's record in Kubernetes, the rights that it needs, and who empties it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time

import pytest

from tests.kubernetes.fake import FakeApi
from tests.support.kubernetes import CLUSTER, RECORD, register_on, run
from understudy.ha.backends.kubernetes import options as k8s
from understudy.ha.backends.kubernetes.leader_view import ANNOTATION
from understudy.ha.register import Release
from understudy.ha.retrieval import encode_leader
from understudy.kubernetes.client import RequestLimits
from understudy.model import Incarnation, LeaderRecord


def test_a_followed_map_is_split_in_time(fake_api: FakeApi) -> None:
    async def main() -> None:
        register = register_on(fake_api, lock=k8s.CONFIG_MAP)
        other = register_on(fake_api, lock=k8s.CONFIG_MAP)
        await register.swap("artifacts", b"x" * 600_000, None)
        version = await register.swap("leader", encode_leader(RECORD), None)
        changes = register.changes("leader")
        await anext(changes)
        await anext(changes)  # After the list.
        await other.swap("leader", encode_leader(RECORD), version)
        assert await anext(changes) is not None  # What is sent has no sizes.

        await register.swap("registry", b"x" * 600_000, None)

        assert ["artifacts", "leader", "registry"] == await other.keys("")

    run(main())


def test_the_leader_is_in_a_lease_that_others_can_read(fake_api: FakeApi) -> None:
    async def main() -> None:
        await register_on(fake_api).swap("leader", encode_leader(RECORD), None)

        spec = fake_api.object("leases", "flights-leader")["spec"]

        assert f"jobmanager-1_{'a' * 32}" == spec["holderIdentity"]
        assert (15, 7) == (spec["leaseDurationSeconds"], spec["leaseTransitions"])
        assert "2023-11-14T22:13:20.000000Z" == spec["acquireTime"]
        assert [] == fake_api.names("configmaps")

    run(main())


def test_the_leader_can_be_in_the_map_with_the_annotation_of_flip_144(fake_api: FakeApi) -> None:
    async def main() -> None:
        register = register_on(fake_api, lock=k8s.CONFIG_MAP)
        await register.swap("registry", b"{}", None)
        await register.swap("leader", encode_leader(RECORD), None)

        found = fake_api.object("configmaps", CLUSTER)
        shown = json.loads(found["metadata"]["annotations"][ANNOTATION])

        assert f"jobmanager-1_{'a' * 32}" == shown["holderIdentity"]
        assert (15, 7) == (shown["leaseDurationSeconds"], shown["leaderTransitions"])
        assert {"registry"} == set(found["data"])
        assert ["leader", "registry"] == await register_on(fake_api, lock=k8s.CONFIG_MAP).keys("")
        assert [] == fake_api.names("leases")

    run(main())


@pytest.mark.parametrize("lock", [k8s.LEASE, k8s.CONFIG_MAP])
def test_the_guardian_empties_the_record_of_a_dead_leader(fake_api: FakeApi, lock: str) -> None:
    async def main() -> None:
        register, standby = register_on(fake_api, lock=lock), register_on(fake_api, lock=lock)
        programs: list[Release] = []
        register.on_release(programs.append)
        version = await register.swap("leader", encode_leader(RECORD), None)
        await register.swap("leader", encode_leader(RECORD), version)

        assert 1 == len(programs)
        done = await asyncio.to_thread(_execute, programs[0])

        assert (0, "") == (done.returncode, done.stderr)
        vacant = LeaderRecord(holder=Incarnation(""), term=7, session="5b7e")
        entry = await standby.load("leader")
        assert entry is not None
        assert encode_leader(vacant) == entry.value
        if lock == k8s.LEASE:
            assert "" == fake_api.object("leases", "flights-leader")["spec"]["holderIdentity"]

    run(main())


def test_the_guardian_leaves_the_record_of_a_later_leader(fake_api: FakeApi) -> None:
    async def main() -> None:
        register, standby = register_on(fake_api), register_on(fake_api)
        programs: list[Release] = []
        register.on_release(programs.append)
        version = await register.swap("leader", encode_leader(RECORD), None)
        later = encode_leader(LeaderRecord(holder=Incarnation("b"), term=8, session=""))
        await standby.swap("leader", later, version)

        done = await asyncio.to_thread(_execute, programs[0])

        assert 0 == done.returncode
        entry = await standby.load("leader")
        assert entry is not None
        assert later == entry.value

    run(main())


def test_missing_rights_are_named_with_the_rule_to_add(fake_api: FakeApi) -> None:
    async def main() -> None:
        register = register_on(fake_api)
        fake_api.denied = {("create", "leases"), ("patch", "leases"), ("watch", "configmaps")}

        with pytest.raises(PermissionError) as refused:
            await register.prove()

        said = str(refused.value)
        assert 'apiGroups: [""], resources: ["configmaps"], verbs: ["watch"]' in said
        assert (
            'apiGroups: ["coordination.k8s.io"], resources: ["leases"], verbs: ["create", "patch"]'
            in said
        )
        assert 2 == len(register.status()["missing_rights"])  # type: ignore[arg-type]
        (event,) = fake_api.names("events")
        shown = fake_api.object("events", event)
        assert ("Lease", "flights-leader") == (
            shown["involvedObject"]["kind"],
            shown["involvedObject"]["name"],
        )
        assert shown["message"] in said

    run(main())


def test_a_right_that_is_revoked_later_is_named_too(fake_api: FakeApi) -> None:
    async def main() -> None:
        register = register_on(fake_api)
        version = await register.swap("registry", b"1", None)
        fake_api.denied = {("patch", "configmaps")}

        with pytest.raises(PermissionError, match=r'may not patch configmaps.*verbs: \["patch"\]'):
            await register.swap("registry", b"2", version)

        assert "we may not patch configmaps" in str(register.status()["problem"])
        fake_api.denied = set()
        await register.swap("registry", b"2", version)

    run(main())


def test_the_proof_leaves_nothing(fake_api: FakeApi) -> None:
    async def main() -> None:
        await register_on(fake_api).prove()

        assert {} == fake_api.objects

    run(main())


def test_a_webhook_that_takes_part_in_no_dry_run_is_no_obstacle(fake_api: FakeApi) -> None:
    async def main() -> None:
        said = b'{"kind": "Status", "message": "admission webhook x does not support dry run"}'
        fake_api.fail(method="POST", path="dryRun", status=400, body=said)

        await register_on(fake_api).prove()

        fake_api.fail(method="POST", path="dryRun", status=400, reason="BadRequest")
        with pytest.raises(OSError, match="400"):
            await register_on(fake_api).prove()

    run(main())


def test_a_renewal_waits_for_no_other_request(fake_api: FakeApi) -> None:
    async def main() -> None:
        register = register_on(fake_api, limits=RequestLimits(common_s=20.0))
        version = await register.swap("leader", b"1", None)
        fake_api.fail(path="configmaps", delay_s=15.0, times=100)
        others = [asyncio.create_task(register.load(f"key-{n}")) for n in range(20)]
        await asyncio.sleep(0)
        began = time.monotonic()

        await register.swap("leader", b"2", version)
        assert await register.load("leader") is not None

        assert time.monotonic() - began < 5.0
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    run(main())


def test_a_renewal_does_not_share_the_patience_of_other_requests(fake_api: FakeApi) -> None:
    async def main() -> None:
        register = register_on(fake_api, limits=RequestLimits(common_s=0.2))
        version = await register.swap("leader", b"1", None)
        fake_api.fail(path="configmaps", status=429, headers={"retry-after": "60"})
        with pytest.raises(TimeoutError):
            await register.load("registry")

        await asyncio.wait_for(register.swap("leader", b"2", version), 4.0)

    run(main())


def _execute(release: Release) -> subprocess.CompletedProcess[str]:
    assert sys.executable == release.argv[0]
    return subprocess.run(
        release.argv, input=release.input, capture_output=True, text=True, timeout=30, check=False
    )
