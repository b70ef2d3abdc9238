"""Clients that send too much, too slowly, or never read: what an endpoint holds of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine
from itertools import product
from typing import Any, cast

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tests.api import serving
from tests.api.serving import Said, answer, exchange, request
from tests.support.sampling import quickly
from understudy.api import bounds, endpoint, server
from understudy.api.bounds import Bounds
from understudy.rpc import accepting, complaints

DISPOSE = "/savepoint-disposal"
NAMED = ("Host: localhost", "Content-Type: application/json")
HUGE = 400 << 20
LARGE_ANSWER = 5 << 20

FRAMINGS = ("announced", "chunked", "in small chunks")
METHODS = ("POST", "PATCH", "GET")


def run(story: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(story, 2 * serving.PATIENCE_S))


async def flooded(port: int, head: bytes, piece: bytes) -> tuple[Said, int]:
    """Send pieces until somebody stops it; return the answer, and how much was taken."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    hearing = asyncio.create_task(answer(reader))
    taken = 0
    with contextlib.suppress(ConnectionError):
        writer.write(head)
        while taken < HUGE and not writer.is_closing():
            writer.write(piece)
            await writer.drain()
            taken += len(piece)
    try:
        return await hearing, taken
    finally:
        writer.transport.abort()


@pytest.mark.parametrize(
    ("how", "method"), quickly(product(FRAMINGS, METHODS), [(FRAMINGS[1], METHODS[0])])
)
def test_a_body_that_is_too_large_is_refused_before_it_is_there(method: str, how: str) -> None:
    chunk = b" " * (1 << 20 if how == "chunked" else 7)
    framed = b"%x\r\n%s\r\n" % (len(chunk), chunk)
    framed *= (1 << 20) // len(framed) + 1
    length = f"Content-Length: {HUGE}" if how == "announced" else "Transfer-Encoding: chunked"
    head = request(method, DISPOSE, *NAMED, length)

    async def story() -> tuple[Said, int]:
        async with serving.endpoint() as port:
            return await flooded(port, head, framed)

    said, taken = run(story())

    assert 413 == said.status
    assert f"{bounds.BODY_BYTES_MAX:,}" in said.error
    assert taken < HUGE / 8


def test_the_largest_body_is_taken() -> None:
    async def story() -> list[int]:
        async with serving.endpoint() as port:
            return [
                (await exchange(port, request("POST", DISPOSE, *NAMED, body=b" " * size))).status
                for size in (bounds.BODY_BYTES_MAX, bounds.BODY_BYTES_MAX + 1)
            ]

    assert [503, 413] == run(story())


def test_who_waits_for_a_go_ahead_is_refused_before_it_sends_anything() -> None:
    head = request("POST", DISPOSE, *NAMED, f"Content-Length: {HUGE}", "Expect: 100-continue")

    async def story() -> Said:
        async with serving.endpoint() as port:
            return await exchange(port, head)

    assert 413 == run(story()).status


def test_a_body_that_drips_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "BODY_S", 0.5)

    async def story() -> Said:
        async with serving.endpoint() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request("POST", DISPOSE, *NAMED, "Content-Length: 1000"))
            dripping = asyncio.create_task(_drip(writer))
            said = await answer(reader)
            dripping.cancel()
            writer.transport.abort()
            return said

    assert 408 == run(story()).status


async def _drip(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while True:
            writer.write(b" ")
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "begun", quickly([b"", b"GET /overview HTTP/1.1\r\nHost: localhost\r\nX-A: "], [b""])
)
def test_who_does_not_come_to_the_point_is_sent_away(
    begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also who sends a letter of a head now and then, and who was answered before."""
    monkeypatch.setattr(server, "HEAD_S", 1.0)

    async def story() -> list[bytes]:
        async with serving.endpoint() as port:
            ended = []
            for before in (b"", request("GET", "/overview", "Host: localhost")):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                if before:
                    writer.write(before)
                    assert 503 == (await answer(reader)).status
                writer.write(begun)
                dripping = asyncio.create_task(_drip(writer) if begun else asyncio.sleep(0))
                with contextlib.suppress(ConnectionError):
                    ended.append(await reader.read())
                dripping.cancel()
                writer.transport.abort()
            return ended

    assert not any(run(story()))


@pytest.mark.parametrize(
    "head",
    [
        request("GET", "/overview", "Host: localhost", f"X-Long: {'x' * 100_000}"),
        request("GET", f"/{'x' * 100_000}", "Host: localhost"),
        request("GET", "/", "Host: localhost", *(f"X-{number}: x" for number in range(20_000))),
    ],
)
def test_a_head_that_is_too_large_is_refused(head: bytes) -> None:
    async def story() -> int:
        async with serving.endpoint() as port:
            return (await exchange(port, head)).status

    assert 400 == run(story())


def test_a_crowd_that_says_nothing_keeps_nobody_out_of_rest() -> None:
    async def story() -> int:
        async with serving.endpoint() as port:
            crowd = [
                await asyncio.open_connection("127.0.0.1", port)
                for _ in range(accepting.shares().rest * 2)
            ]
            for _, writer in crowd[::3]:
                writer.write(b"POST /jobs/a/stop HTTP/1.1\r\nHost: localhost\r\nX: ")
            for _, writer in crowd[1::3]:
                writer.write(request("POST", DISPOSE, *NAMED, "Content-Length: 10"))
            status = (await exchange(port, request("GET", "/overview", "Host: localhost"))).status
            for _, writer in crowd:
                writer.transport.abort()
            return status

    assert 503 == run(story())


def test_nonsense_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Nor does nonsense behind a whole request, or a wish for a WebSocket."""
    whole = request("GET", "/overview", "Host: localhost")
    socket = request(
        "GET", "/overview", "Host: localhost", "Connection: upgrade", "Upgrade: websocket"
    )
    caplog.set_level(logging.WARNING)

    async def story() -> None:
        async with serving.endpoint() as port:
            for _ in range(40):
                for said in (b"nonsense\r\n\r\n", socket, whole + b"nonsense\r\n\r\n"):
                    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                        await exchange(port, said)

    run(story())

    assert len(caplog.records) <= 5 * complaints.REPEATS_MAX, caplog.text


# --- answers --------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def answering(*routes: Route) -> AsyncIterator[int]:
    """Serve an application behind the bounds."""
    listening = endpoint.bind("127.0.0.1", (0,))
    one = server.server(Bounds(Starlette(routes=list(routes))), None)
    task = asyncio.create_task(one.serve(sockets=[listening]))
    try:
        yield int(listening.getsockname()[1])
    finally:
        one.should_exit = one.force_exit = True
        await task


async def _large(_: Request) -> Response:
    return PlainTextResponse(b"x" * LARGE_ANSWER)


def test_answers_that_nobody_reads_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "UNREAD_BYTES_MAX", 2 * LARGE_ANSWER + 1)
    monkeypatch.setattr(server, "UNREAD_S", 1.0)
    ask = request("GET", "/large", "Host: localhost")

    async def status(port: int) -> tuple[int, int]:
        said = await exchange(port, ask)
        return said.status, len(said.body)

    async def story() -> list[tuple[int, int]]:
        async with answering(Route("/large", _large)) as port:
            alone = await status(port)
            crowd = [await asyncio.open_connection("127.0.0.1", port, limit=1) for _ in range(4)]
            for _, writer in crowd:
                cast("asyncio.ReadTransport", writer.transport).pause_reading()
                writer.write(ask)
            while (beside := await status(port))[0] == 200:
                await asyncio.sleep(0.01)
            while (after := await status(port))[0] != 200:
                await asyncio.sleep(0.05)
            for _, writer in crowd:
                writer.transport.abort()
            return [alone, beside, after]

    alone, beside, after = run(story())

    assert (200, LARGE_ANSWER) == alone
    assert 503 == beside[0]
    assert (200, LARGE_ANSWER) == after, "those who do not read are never sent away"


def test_few_requests_are_answered_at_a_time_and_status_does_not_wait_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "WAITING_MAX", 4)
    answered = bounds.REQUESTS_MAX + bounds.WAITING_MAX

    async def story() -> list[int]:
        storage = asyncio.Event()
        begun = 0

        async def waits(_: Request) -> Response:
            nonlocal begun
            begun += 1
            await storage.wait()
            return Response()

        async def status(_: Request) -> Response:
            return Response()

        async with answering(Route("/waits", waits), Route("/ha/status", status)) as port:
            ask = request("GET", "/waits", "Host: localhost")
            asking = [
                asyncio.create_task(exchange(port, ask)) for _ in range(bounds.REQUESTS_MAX * 2)
            ]
            done, _ = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
            refused = {task.result().status for task in done}
            told = await exchange(port, request("GET", "/ha/status", "Host: localhost"))
            while begun < bounds.REQUESTS_MAX:
                await asyncio.sleep(0.01)
            at_once = begun
            storage.set()
            found = [one.status for one in await asyncio.gather(*asking)]
            return [*refused, told.status, found.count(200), at_once, begun]

    assert [503, 200, answered, bounds.REQUESTS_MAX, answered] == run(story())


def test_who_waits_too_long_for_a_turn_is_asked_to_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "WAIT_S", 0.1)

    async def story() -> list[int]:
        storage, begun = asyncio.Event(), asyncio.Semaphore(0)

        async def waits(_: Request) -> Response:
            begun.release()
            await storage.wait()
            return Response()

        async with answering(Route("/waits", waits)) as port:
            ask = request("GET", "/waits", "Host: localhost")
            asking = [asyncio.create_task(exchange(port, ask)) for _ in range(bounds.REQUESTS_MAX)]
            for _ in asking:
                await begun.acquire()
            late = await exchange(port, ask)
            storage.set()
            return [late.status, *{one.status for one in await asyncio.gather(*asking)}]

    assert [503, 200] == run(story())


def test_requests_begin_one_in_a_turn_of_the_loop() -> None:
    """However many come at once: what renews a lease runs in between."""

    async def story() -> int:
        turn = most = begun = 0
        ended = asyncio.Event()

        async def beat() -> None:
            nonlocal turn, begun
            while not ended.is_set():
                begun = 0
                turn += 1
                await asyncio.sleep(0)

        async def counts(_: Request) -> Response:
            nonlocal begun, most
            begun += 1
            most = max(most, begun)
            return Response()

        async with answering(Route("/counts", counts)) as port:
            beating = asyncio.create_task(beat())
            ask = request("GET", "/counts", "Host: localhost")
            await asyncio.gather(*(exchange(port, ask) for _ in range(bounds.REQUESTS_MAX)))
            ended.set()
            await beating
        return most

    assert 1 == run(story())
