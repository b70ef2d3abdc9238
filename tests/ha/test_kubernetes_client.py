"""The client of the Kubernetes API, and its watch, before a server with exact faults."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.kubernetes.fake import NAMESPACE, TOKEN, FakeApi
from tests.support.kubernetes import access_to, run, until
from understudy.core.backoff import Backoff
from understudy.errors import ConfigurationError
from understudy.kubernetes import client as clients
from understudy.kubernetes import pauses
from understudy.kubernetes.client import (
    ApiRequest,
    Client,
    Lane,
    RequestLimits,
    Traffic,
)
from understudy.kubernetes.kinds import CONFIG_MAP
from understudy.kubernetes.refusals import (
    ApiRefusal,
    Contested,
    Forbidden,
    Invalid,
    judged,
)
from understudy.kubernetes.watch import Change, ChangeBell, Watch

NAME = "flights"
QUICK = RequestLimits(common_s=0.3, renewal_s=0.3)


def client_of(
    api: FakeApi, limits: RequestLimits | None = None, read_token: Callable[[], str] = lambda: TOKEN
) -> Client:
    return Client(access_to(api, read_token), limits or RequestLimits(), Traffic())


def creating(name: str = NAME, **data: str) -> ApiRequest:
    body = {"metadata": {"name": name, "labels": {"app": "flights"}}, "data": data}
    return ApiRequest("create", CONFIG_MAP, body={"apiVersion": "v1", "kind": "ConfigMap", **body})


def patching(version: str | None = None, **data: str) -> ApiRequest:
    fence = {"metadata": {"resourceVersion": version}} if version else {}
    return ApiRequest("patch", CONFIG_MAP, NAME, body={**fence, "data": data})


def test_a_server_that_asks_for_patience_gets_it(fake_api: FakeApi) -> None:
    async def main() -> None:
        client = client_of(fake_api)
        await client.send(creating(a="1"))
        fake_api.fail(method="PATCH", status=429, headers={"retry-after": "1"})
        began = time.monotonic()

        await client.send(patching(a="2"))

        assert time.monotonic() - began >= 1.0
        assert (1, 2) == (client.counts.throttled, fake_api.count("PATCH"))
        assert {"a": "2"} == fake_api.object("configmaps", NAME)["data"]

    run(main())


def test_patience_ends_with_the_limit_of_the_request(fake_api: FakeApi) -> None:
    async def main() -> None:
        client = client_of(fake_api, QUICK)
        fake_api.fail(status=429, headers={"retry-after": "60"}, times=100)
        began = time.monotonic()

        with pytest.raises(TimeoutError, match="asks for no request for 60 s more"):
            await client.send(creating())

        assert time.monotonic() - began < 5
        assert 1 == fake_api.count("POST")

    run(main())


def test_patience_for_other_requests_delays_no_renewal(fake_api: FakeApi) -> None:
    async def main() -> None:
        client = client_of(fake_api, QUICK)
        await client.send(creating(a="1"))
        fake_api.fail(method="GET", status=429, headers={"retry-after": "60"})
        with pytest.raises(TimeoutError):
            await client.get(CONFIG_MAP, NAME)

        await client.send(patching(a="2"), Lane.RENEWAL)

        assert {"a": "2"} == fake_api.object("configmaps", NAME)["data"]

    run(main())


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_read_is_repeated_after_an_error_of_the_server(fake_api: FakeApi, status: int) -> None:
    async def main() -> None:
        client = client_of(fake_api)
        await client.send(creating(a="1"))
        fake_api.fail(method="GET", status=status, times=2)

        found = await client.get(CONFIG_MAP, NAME)

        assert found is not None
        assert {"a": "1"} == found["data"]
        assert 2 == client.counts.retries

    run(main())


def test_a_read_is_not_repeated_for_ever(fake_api: FakeApi) -> None:
    async def main() -> None:
        fake_api.fail(method="GET", status=500, reason="InternalError", times=100)

        with pytest.raises(ApiRefusal, match="answers 500 to get configmaps 'flights'"):
            await client_of(fake_api).get(CONFIG_MAP, NAME)

        assert clients.READS_MAX == fake_api.count("GET")

    run(main())


@pytest.mark.parametrize(
    "fault", [{"status": 500}, {"status": 504}, {"lose_request": True}, {"lose_answer": True}]
)
def test_a_write_with_an_unknown_outcome_is_not_repeated(
    fake_api: FakeApi, fault: dict[str, Any]
) -> None:
    async def main() -> None:
        client = client_of(fake_api)
        await client.send(creating(a="1"))
        fake_api.fail(method="PATCH", **fault)

        with pytest.raises(OSError, match=r"API server"):
            await client.send(patching(a="2"))

        assert 1 == fake_api.count("PATCH")

    run(main())


@pytest.mark.parametrize("status", [200, 502])
def test_a_page_of_a_proxy_is_no_answer(fake_api: FakeApi, status: int) -> None:
    async def main() -> None:
        page = b"<html><h1>Please log in</h1></html>"
        fake_api.fail(method="POST", status=status, body=page)

        with pytest.raises(ApiRefusal, match=r"something between us and it answers.*Please log in"):
            await client_of(fake_api).send(creating())

    run(main())


@pytest.mark.parametrize(
    "fault",
    [
        {"body": b"<html>404 page not found</html>"},
        {"reason": "NotFound"},  # The server could not find the requested resource.
    ],
    ids=["proxy", "path"],
)
def test_a_404_that_is_not_about_the_object_is_no_absence(
    fake_api: FakeApi, fault: dict[str, Any]
) -> None:
    async def main() -> None:
        fake_api.fail(method="GET", status=404, times=100, **fault)

        with pytest.raises(ApiRefusal, match="502 to get"):
            await client_of(fake_api).get(CONFIG_MAP, NAME)

        with pytest.raises(ApiRefusal):
            await client_of(fake_api).list(CONFIG_MAP, {})

    run(main())


def test_a_kubeconfig_that_is_being_written_is_read_again(fake_api: FakeApi) -> None:
    async def main() -> None:
        answers: list[str | Exception] = [ConfigurationError("config is no kubeconfig"), TOKEN]

        def read_token() -> str:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        client = client_of(fake_api, read_token=read_token)
        with pytest.raises(OSError, match="is no kubeconfig"):
            await client.send(creating())

        await client.send(creating())

    run(main())


def test_nobody_is_asked_to_be_quiet_for_ever(fake_api: FakeApi) -> None:
    assert clients.QUIET_MAX_S == clients._seconds("86400")
    assert 3.0 == clients._seconds("3")
    assert pauses.REQUEST.first_s == clients._seconds("Wed, 21 Oct 2026 07:28:00 GMT")


def test_an_absent_object_is_none(fake_api: FakeApi) -> None:
    async def main() -> None:
        assert await client_of(fake_api).get(CONFIG_MAP, NAME) is None

    run(main())


def test_a_stale_version_is_contested(fake_api: FakeApi) -> None:
    async def main() -> None:
        client = client_of(fake_api)
        created = await client.send(creating(a="1"))
        assert created is not None
        version = created["metadata"]["resourceVersion"]
        await client.send(patching(version, a="2"))

        with pytest.raises(Contested):
            await client.send(patching(version, a="3"))

        with pytest.raises(Contested):
            await client.send(creating())

    run(main())


def test_what_kubernetes_does_not_accept_is_not_retried(fake_api: FakeApi) -> None:
    async def main() -> None:
        with pytest.raises(Invalid, match="Too long"):
            await client_of(fake_api).send(creating(a="x" * (1 << 20) + "x"))

        assert 1 == fake_api.count("POST")

    run(main())


def test_a_refused_token_is_read_again(fake_api: FakeApi) -> None:
    async def main() -> None:
        tokens = iter(["old", TOKEN])
        client = client_of(fake_api, read_token=lambda: next(tokens))

        await client.send(creating())

        assert ["Bearer old", f"Bearer {TOKEN}"] == [
            one.headers["authorization"] for one in fake_api.asked
        ]

    run(main())


def test_a_token_that_stays_refused_is_named(fake_api: FakeApi) -> None:
    async def main() -> None:
        client = client_of(fake_api, read_token=lambda: "old")

        with pytest.raises(Forbidden, match=r"does not know us.*renew the token"):
            await client.send(creating())

        assert 2 == fake_api.count("POST")

    run(main())


def test_an_old_token_is_read_again(fake_api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(clients, "TOKEN_AGE_S", 0.0)
        read: list[str] = []
        fake_api.tokens |= {"t1", "t2"}

        def read_token() -> str:
            read.append(f"t{len(read) + 1}")
            return read[-1]

        client = client_of(fake_api, read_token=read_token)
        await client.send(creating())
        await client.get(CONFIG_MAP, NAME)

        assert ["Bearer t1", "Bearer t2"] == [
            one.headers["authorization"] for one in fake_api.asked
        ]

    run(main())


def test_a_token_that_cannot_be_read_for_a_moment_is_kept(
    fake_api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        monkeypatch.setattr(clients, "TOKEN_AGE_S", 0.0)
        answers = [TOKEN]

        def read_token() -> str:
            if not answers:
                raise FileNotFoundError("the kubelet is replacing it")
            return answers.pop()

        client = client_of(fake_api, read_token=read_token)
        await client.send(creating())

        assert await client.get(CONFIG_MAP, NAME) is not None

    run(main())


def test_a_refusal_is_a_problem_that_is_shown(fake_api: FakeApi) -> None:
    async def main() -> None:
        client = client_of(fake_api)
        fake_api.denied = {("create", "configmaps")}
        with pytest.raises(Forbidden, match="add to the Role"):
            await client.send(creating())

        assert "we may not create configmaps" in client.counts.problem
        assert 1 == client.counts.failures

    run(main())


def test_a_refusal_that_no_role_can_lift_names_no_role() -> None:
    said = {
        "kind": "Status",
        "reason": "Forbidden",
        "message": 'configmaps "flights" is forbidden: exceeded quota: few, limited: configmaps=3',
    }

    refusal = judged(("create", CONFIG_MAP, ""), NAMESPACE, 403, json.dumps(said).encode())

    assert "exceeded quota" in str(refusal)
    assert "Role" not in str(refusal)


def test_a_frozen_server_costs_the_limit_and_is_told(fake_api: FakeApi) -> None:
    async def main() -> None:
        client = client_of(fake_api, QUICK)
        fake_api.freeze()

        with pytest.raises(TimeoutError, match=fake_api.url):
            await client.send(creating())

        assert "silent" in client.counts.problem
        fake_api.thaw()

    run(main())


def test_a_restarted_server_is_found_again(fake_api: FakeApi) -> None:
    async def main() -> None:
        client = client_of(fake_api)
        await client.send(creating())
        fake_api.stop()
        with pytest.raises(OSError, match="cannot be asked"):
            await client.send(patching(a="1"))
        fake_api.start()

        assert await client.get(CONFIG_MAP, NAME) is not None

    run(main())


def test_a_list_is_read_in_pages(fake_api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(clients, "PAGE_OBJECTS", 2)
        client = client_of(fake_api)
        for number in range(5):
            await client.send(creating(f"flights-{number}"))
        fake_api.fail(method="GET", path="continue", status=410, reason="Expired")

        found, version = await client.list(CONFIG_MAP, {"labelSelector": "app=flights"})

        assert [f"flights-{n}" for n in range(5)] == [one["metadata"]["name"] for one in found]
        assert version.isdecimal()
        # One page, which was too old for the next; then three of a new snapshot.
        assert 5 == fake_api.count("GET")

    run(main())


def test_no_proxy_of_the_environment_is_used(
    fake_api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")

        assert await client_of(fake_api).get(CONFIG_MAP, NAME) is None

    run(main())


# --- watches --------------------------------------------------------------------------------------


@asynccontextmanager
async def followed(api: FakeApi, silence_s: float = 60.0) -> AsyncIterator[Follower]:
    """Follow one ConfigMap; the watch runs on return."""
    client = client_of(api)
    await client.send(creating(a="1"))
    watch = Watch(client, CONFIG_MAP, {"fieldSelector": f"metadata.name={NAME}"}, silence_s)
    with watch.following() as bell:
        follower = Follower(client, watch, bell)
        assert await follower.woken() is None  # The list: something may have changed.
        await until(lambda: api.count("GET", "'watch': 'true'") > 0)
        yield follower


class Follower:
    """One follower of a watch."""

    def __init__(self, client: Client, watch: Watch, bell: ChangeBell) -> None:
        self.client, self.watch, self.bell = client, watch, bell
        self._number = 1

    async def woken(self) -> Change | None:
        return await self.bell.rung()

    async def change(self) -> None:
        self._number += 1
        await self.client.send(patching(a=str(self._number)))


def test_a_change_wakes_and_nothing_is_listed(fake_api: FakeApi) -> None:
    async def main() -> None:
        async with followed(fake_api) as follower:
            for _ in range(3):
                await follower.change()
                change = await follower.woken()

                assert change is not None
                assert NAME == change.found["metadata"]["name"]
                assert "data" not in change.found

            assert (1, 3) == (follower.watch.lists, follower.watch.events)

    run(main())


def test_a_change_of_another_object_does_not_wake(fake_api: FakeApi) -> None:
    async def main() -> None:
        async with followed(fake_api) as follower:
            await follower.client.send(creating("orders"))
            await follower.change()

            change = await follower.woken()

            assert change is not None
            assert (NAME, 1) == (change.found["metadata"]["name"], follower.watch.events)

    run(main())


def test_a_deletion_wakes(fake_api: FakeApi) -> None:
    async def main() -> None:
        async with followed(fake_api) as follower:
            fake_api.remove("configmaps", NAME)

            change = await follower.woken()

            assert change is not None
            assert change.is_gone

    run(main())


def test_a_version_that_is_too_old_leads_to_a_new_list(fake_api: FakeApi) -> None:
    async def main() -> None:
        async with followed(fake_api) as follower:
            fake_api.watches_end_after = 1
            await follower.change()
            await follower.woken()
            fake_api.compact()
            fake_api.change("configmaps", NAME, lambda one: one["data"].update(a="x"))
            fake_api.watches_end_after = None
            fake_api.compact()

            await until(lambda: follower.watch.lists >= 2)
            await follower.woken()
            await follower.change()
            await follower.woken()

    run(main())


def test_watches_that_close_early_again_and_again_lead_to_a_new_list(fake_api: FakeApi) -> None:
    async def main() -> None:
        async with followed(fake_api) as follower:
            fake_api.watches_end_after = 0
            fake_api.end_watches()
            lists = follower.watch.lists

            await until(lambda: follower.watch.lists > lists + 1)
            fake_api.watches_end_after = None
            await follower.change()
            await follower.woken()

    run(main())


def test_the_pauses_between_watches_that_close_early_grow(
    fake_api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        asked: list[int] = []

        def pause_s(_: Backoff, failures: int) -> float:
            asked.append(failures)
            return 0.0

        monkeypatch.setattr(pauses, "pause_s", pause_s)
        fake_api.watches_end_after = 0
        with Watch(client_of(fake_api), CONFIG_MAP, {}, clients.SILENCE_S).following():
            await until(lambda: len(asked) >= 6)

        assert [1, 2, 3, 4, 5, 6] == asked[:6]

    run(main())


def test_a_silent_watch_is_dropped_and_a_missed_change_found(fake_api: FakeApi) -> None:
    async def main() -> None:
        async with followed(fake_api, silence_s=0.3) as follower:
            fake_api.silent = True
            await follower.change()

            await until(lambda: follower.watch.lists >= 2)
            await follower.woken()

            assert 0 == follower.watch.events

    run(main())


def test_bookmarks_keep_an_idle_watch_and_its_version_fresh(fake_api: FakeApi) -> None:
    async def main() -> None:
        fake_api.bookmark_s = 0.05
        async with followed(fake_api, silence_s=1.0) as follower:
            await follower.client.send(
                ApiRequest(
                    "create",
                    CONFIG_MAP,
                    body={"metadata": {"name": "foreign"}, "data": {}},
                )
            )
            await asyncio.sleep(0.3)
            fake_api.compact()  # All but the version of the last bookmarks.
            fake_api.end_watches()
            await until(lambda: fake_api.count("GET", "'watch': 'true'") >= 2)
            await follower.change()
            await follower.woken()

    run(main())


def test_a_server_that_was_away_is_watched_again(fake_api: FakeApi) -> None:
    async def main() -> None:
        async with followed(fake_api) as follower:
            fake_api.stop()
            await follower.woken()  # So that the follower learns that nobody can be asked.
            fake_api.start()
            lists = follower.watch.lists

            await until(lambda: follower.watch.lists > lists)
            await follower.change()
            await follower.woken()

    run(main())


def test_all_followers_share_one_watch_which_ends_with_the_last(fake_api: FakeApi) -> None:
    async def main() -> None:
        async with followed(fake_api) as follower:
            with follower.watch.following() as other:
                await follower.change()
                await follower.woken()
                await other.rung()

            assert 1 == fake_api.count("GET", "'watch': 'true'")
        await until(lambda: not [w for w in fake_api._open if getattr(w, "watches", False)])

    run(main())


def test_a_server_that_wants_no_watch_gets_patience(fake_api: FakeApi) -> None:
    async def main() -> None:
        fake_api.fail(path="watch=true", status=429, headers={"retry-after": "1"})
        watch = Watch(client_of(fake_api), CONFIG_MAP, {}, clients.SILENCE_S)
        began = time.monotonic()
        with watch.following():
            await until(lambda: fake_api.count("GET", "'watch': 'true'") >= 2)

        assert time.monotonic() - began >= 1.0

    run(main())


def test_a_watch_without_the_right_says_so_and_tries_again(
    fake_api: FakeApi, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        fake_api.denied = {("watch", "configmaps")}
        watch = Watch(client_of(fake_api), CONFIG_MAP, {}, 60.0)
        with watch.following():
            await until(lambda: "we may not watch configmaps" in caplog.text)
            fake_api.denied = set()
            before = fake_api.count("GET", "'watch': 'true'")
            await until(lambda: fake_api.count("GET", "'watch': 'true'") > before)

    run(main())


def test_what_ends_a_watch_is_raised_by_its_followers(
    fake_api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with followed(fake_api) as follower:

            async def fail(*_: object, **__: object) -> None:
                raise RuntimeError("a defect")

            monkeypatch.setattr(follower.watch, "_list", fail)
            fake_api.end_watches()

            async def woken_for_ever() -> None:
                while True:
                    await follower.woken()

            with pytest.raises(RuntimeError, match="a defect"):
                await woken_for_ever()

    run(main())


def test_the_limits_of_pauses() -> None:
    assert 0.0 == pauses.pause_s(pauses.WATCH, 0)
    for failures in (1, 2, 50, 5_000):  # The API server may be away for hours.
        assert 0.1 <= pauses.pause_s(pauses.WATCH, failures) <= 1.5 * pauses.WATCH.max_s
    assert NAMESPACE
