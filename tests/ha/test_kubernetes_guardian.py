"""What the guardian of a leader on Kubernetes is given."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.kubernetes.fake import FakeApi
from tests.support.kubernetes import RECORD, access_to, register_on, run
from understudy.ha.backends.kubernetes import options as k8s
from understudy.ha.backends.kubernetes.register import KubernetesRegister
from understudy.ha.register import Release
from understudy.ha.retrieval import encode_leader
from understudy.kubernetes import client as clients
from understudy.kubernetes.client import RequestLimits


def test_the_guardian_asks_below_the_path_of_the_server(fake_api: FakeApi) -> None:
    async def main() -> None:
        access = replace(access_to(fake_api), server="https://rancher.test/k8s/clusters/c-1")
        register = KubernetesRegister(
            "flights", access, name="flights", lock=k8s.LEASE, limits=RequestLimits()
        )
        programs: list[Release] = []
        register.on_release(programs.append)

        register._note_holder(encode_leader(RECORD))

        path = json.loads(programs[0].input)["path"]
        assert path.startswith("/k8s/clusters/c-1/apis/coordination.k8s.io/v1/namespaces/")

    run(main())


def test_the_guardian_is_told_of_a_new_token(
    fake_api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        monkeypatch.setattr(clients, "TOKEN_AGE_S", 0.0)
        fake_api.tokens |= {"first", "second"}
        tokens = ["first"]
        access = access_to(fake_api, lambda: tokens[-1])
        register = KubernetesRegister(
            "flights", access, name="flights", lock=k8s.LEASE, limits=RequestLimits()
        )
        programs: list[Release] = []
        register.on_release(programs.append)
        version = await register.swap("leader", encode_leader(RECORD), None)
        version = await register.swap("leader", encode_leader(RECORD), version)
        tokens.append("second")
        await register.swap("leader", encode_leader(RECORD), version)

        assert ["first", "second"] == [json.loads(one.input)["token"] for one in programs]

    run(main())


def test_what_a_release_needs_is_not_shown(fake_api: FakeApi) -> None:
    async def main() -> None:
        register = register_on(fake_api)
        programs: list[Release] = []
        register.on_release(programs.append)
        await register.swap("leader", encode_leader(RECORD), None)

        assert "fake-token" in programs[0].input
        assert "fake-token" not in repr(programs[0])

    run(main())
