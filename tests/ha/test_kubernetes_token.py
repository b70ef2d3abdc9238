"""The token of the client of the Kubernetes API while its file is empty or hangs."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.ha.test_kubernetes_client import NAME, QUICK, client_of, creating
from tests.kubernetes.fake import TOKEN, FakeApi
from tests.support.kubernetes import run
from understudy.kubernetes import client as clients
from understudy.kubernetes.kinds import CONFIG_MAP


def test_a_token_file_that_is_empty_for_a_moment_makes_nobody_anonymous(
    fake_api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        monkeypatch.setattr(clients, "TOKEN_AGE_S", 0.0)
        answers = [TOKEN, "", TOKEN]
        client = client_of(fake_api, read_token=lambda: answers.pop(0))
        await client.send(creating())

        await client.get(CONFIG_MAP, NAME)

        assert {f"Bearer {TOKEN}"} == {one.headers["authorization"] for one in fake_api.asked}

    run(main())


def test_a_first_token_that_is_empty_is_an_error(fake_api: FakeApi) -> None:
    async def main() -> None:
        with pytest.raises(OSError, match="the token is empty"):
            await client_of(fake_api, read_token=lambda: "").get(CONFIG_MAP, NAME)

        assert [] == fake_api.asked

    run(main())


def test_storage_that_hangs_delays_no_request(fake_api: FakeApi) -> None:
    async def main() -> None:
        threads, over = ThreadPoolExecutor(1), threading.Event()
        asyncio.get_running_loop().set_default_executor(threads)
        hanging = asyncio.ensure_future(asyncio.to_thread(over.wait, 20.0))
        await asyncio.sleep(0)
        try:
            assert await client_of(fake_api, QUICK).get(CONFIG_MAP, NAME) is None
        finally:
            over.set()
            await hanging

    run(main())


def test_a_token_file_that_hangs_is_not_waited_for(
    fake_api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        monkeypatch.setattr(clients, "TOKEN_AGE_S", 0.0)
        monkeypatch.setattr(clients, "TOKEN_READ_S", 0.5)
        over, read = threading.Event(), [TOKEN]

        def read_token() -> str:
            if not read:
                over.wait(20.0)
            return read.pop()

        client = client_of(fake_api, read_token=read_token)
        await client.send(creating())
        try:
            assert await client.get(CONFIG_MAP, NAME) is not None
        finally:
            read.append(TOKEN)
            over.set()

    run(main())


def test_a_first_token_that_hangs_is_named(
    fake_api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        monkeypatch.setattr(clients, "TOKEN_READ_S", 0.05)
        over = threading.Event()

        def read_token() -> str:
            over.wait(20.0)
            return TOKEN

        try:
            with pytest.raises(OSError, match="its file hangs"):
                await client_of(fake_api, read_token=read_token).get(CONFIG_MAP, NAME)
        finally:
            over.set()

    run(main())
