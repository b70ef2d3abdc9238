"""Notices as Events: whose they are, how they are counted, and that nothing waits for them."""

from __future__ import annotations

import asyncio

import pytest

from tests.kubernetes.fake import NAMESPACE, FakeApi
from tests.support.kubernetes import PATIENCE_S, RECORD, register_on, run
from understudy.core.backoff import Backoff
from understudy.ha.backends.kubernetes import register as registers
from understudy.ha.backends.kubernetes.announcer import (
    BURST,
    COMBINED,
    EVENT_S,
    REFILL_S,
    SIMILAR_MAX,
    SIMILAR_S,
    Correlator,
)
from understudy.ha.backends.kubernetes.register import KubernetesRegister
from understudy.ha.register import Notice
from understudy.ha.retrieval import encode_leader
from understudy.kubernetes import pauses

PARKED = Notice("ApplicationParked", "run a waits: its plan is gone", warning=True)
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "flights", "namespace": NAMESPACE, "uid": "5b7e"},
}


def shown(api: FakeApi) -> list[tuple[str, str, int]]:
    events = (api.object("events", name) for name in api.names("events"))
    return sorted((one["involvedObject"]["kind"], one["message"], one["count"]) for one in events)


async def posted(register: KubernetesRegister, *notices: Notice) -> None:
    for notice in notices:
        register.announce(notice)
    await register._here_now().announcer.drained(PATIENCE_S)


def test_events_are_the_deployments_and_the_same_one_is_counted(fake_api: FakeApi) -> None:
    async def main() -> None:
        register = register_on(fake_api)
        fake_api._store("deployments", NAMESPACE, DEPLOYMENT, "ADDED")

        await posted(register, PARKED, Notice("LeaderElected", "a leads"))
        await posted(register, PARKED)

        name = next(one for one in fake_api.names("events"))
        event = fake_api.object("events", name)
        assert [
            ("Deployment", "a leads", 1),
            ("Deployment", PARKED.message, 2),
        ] == shown(fake_api)
        assert "5b7e" == event["involvedObject"]["uid"]
        assert {"Normal", "Warning"} == {
            fake_api.object("events", one)["type"] for one in fake_api.names("events")
        }

    run(main())


@pytest.mark.parametrize("why", ["no deployment", "no right to see it"])
def test_without_a_deployment_events_are_the_leases(fake_api: FakeApi, why: str) -> None:
    async def main() -> None:
        register = register_on(fake_api)
        await register.swap("leader", encode_leader(RECORD), None)
        fake_api.denied = {("get", "deployments")} if why == "no right to see it" else set()

        await posted(register, PARKED)

        (name,) = fake_api.names("events")
        lease = fake_api.object("leases", "flights-leader")
        assert [("Lease", PARKED.message, 1)] == shown(fake_api)
        assert lease["metadata"]["uid"] == fake_api.object("events", name)["involvedObject"]["uid"]

    run(main())


def test_an_event_that_cannot_be_posted_hinders_nothing(
    fake_api: FakeApi, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        register = register_on(fake_api)
        fake_api.denied = {("create", "events")}

        await posted(register, PARKED)

        assert [] == fake_api.names("events")
        await register.swap("registry", b"1", None)

    caplog.set_level("INFO")
    run(main())
    assert "no Event says 'run a waits: its plan is gone'" in caplog.text


def test_an_event_waits_for_a_server_that_is_away(
    fake_api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pauses, "EVENT", Backoff(0.01, 0.01))

    async def main() -> None:
        register = register_on(fake_api)
        fake_api.fail(method="POST", status=500, reason="InternalError", times=2)
        fake_api.fail(method="POST", lose_request=True, times=1)

        await posted(register, PARKED)

        assert [("Lease", PARKED.message, 1)] == shown(fake_api)

    run(main())


def test_an_event_that_the_server_has_forgotten_is_made_again(fake_api: FakeApi) -> None:
    async def main() -> None:
        register = register_on(fake_api)
        await posted(register, PARKED)
        fake_api.remove("events", fake_api.names("events")[0])

        await posted(register, PARKED)

        assert [("Lease", PARKED.message, 2)] == shown(fake_api)

    run(main())


def test_the_last_event_of_a_process_is_posted_before_its_end(
    fake_api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registers, "LAST_EVENTS_S", 20.0)  # A busy machine needs longer.

    async def main() -> None:
        register = register_on(fake_api)
        fake_api.fail(method="POST", delay_s=0.2)
        register.announce(PARKED)

        await asyncio.to_thread(register.release)

        assert [("Lease", PARKED.message, 1)] == shown(fake_api)

    run(main())


def test_many_notices_of_one_reason_become_one_event() -> None:
    heard = Correlator()

    many = [heard.heard(Notice("Odd", f"{n}"), n, n) for n in range(SIMILAR_MAX + 3)]

    assert [1] * SIMILAR_MAX + [1, 2, 3] == [one.count for one in many if one]
    assert [COMBINED + f"{n}" for n in range(SIMILAR_MAX, SIMILAR_MAX + 3)] == [
        one.notice.message for one in many[SIMILAR_MAX:] if one
    ]
    later = heard.heard(Notice("Odd", "later"), 2 * SIMILAR_S, 2 * SIMILAR_S)
    assert later is not None
    assert ("later", 1) == (later.notice.message, later.count)


def test_one_object_gets_some_events_at_once_and_then_few() -> None:
    heard = Correlator()

    posted = [heard.heard(PARKED, 0.0, 0.0) for _ in range(BURST + 5)]

    assert BURST == sum(one is not None for one in posted)
    assert heard.heard(PARKED, REFILL_S - 1, 0.0) is None
    assert heard.heard(PARKED, REFILL_S + 1, 0.0) is not None
    assert heard.heard(PARKED, REFILL_S + 2, 0.0) is None


def test_a_count_ends_when_the_server_forgets_the_event() -> None:
    heard = Correlator()
    heard.heard(PARKED, 0.0, 0.0)

    again = heard.heard(PARKED, 1.0, EVENT_S)

    assert again is not None
    assert 1 == again.count
