"""Uploads over REST, as curl, a browser, Flink's clients and attackers send them."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from msgspec.structs import replace

from tests.api import serving
from tests.api.serving import exchange, request
from tests.api.test_bounds import run
from tests.api.test_metrics import Manager, manager
from tests.support.memory_storage import MemoryStorage
from understudy.api import bounds, rest_artifacts
from understudy.api.authentication import OPEN, RestSecurity
from understudy.api.tokens import Role
from understudy.clock import SystemClock
from understudy.ha.format import digest
from understudy.ha.services import HighAvailabilityServices
from understudy.model import Incarnation, LeaderRecord

STAYS = {"execution.shutdown-on-application-finish": "false"}
SCRIPT = b"print('hello')\n"
HOST = "Host: localhost"
ID = f"{digest(SCRIPT).removeprefix('sha256:')[:32]}_etl.py"

Story = Callable[[httpx.AsyncClient, MemoryStorage], Awaitable[Any]]


@contextlib.asynccontextmanager
async def leading(
    settings: dict[str, str],
    services: HighAvailabilityServices | None = None,
    security: RestSecurity = OPEN,
) -> AsyncIterator[tuple[int, Manager]]:
    """Serve REST of a leader; gives its port."""
    services = services or serving.services()
    one = manager({**STAYS, **settings}, services, SystemClock())
    await services.registry.claim(3, ephemeral=False, anew=True)
    one.lead(3)
    assert one.term is not None
    one.term.leadership.addresses = ("http://me", "")
    async with serving.endpoint(one=one, security=security) as port:
        yield port, one


def told(story: Story, **settings: str) -> Any:
    """Tell a story to a leader and, in another cluster, to a standby that knows one."""
    keys = {name.replace("__", ".").replace("_", "-"): text for name, text in settings.items()}

    async def both() -> Any:
        found = []
        for through_standby in (False, True):
            services = serving.services()
            storage = cast("MemoryStorage", services.storage.blocking)
            async with contextlib.AsyncExitStack() as stack:
                port, _ = await stack.enter_async_context(leading(keys, services))
                if through_standby:
                    port = await stack.enter_async_context(standby(port, keys))
                client = await stack.enter_async_context(client_of(port))
                found.append(await story(client, storage))
        assert found[0] == found[1], "a standby answers otherwise"
        return found[0]

    return run(both())


@contextlib.asynccontextmanager
async def standby(
    leader: int, settings: dict[str, str], security: RestSecurity = OPEN
) -> AsyncIterator[int]:
    """Serve REST of a standby."""
    one = manager({**STAYS, **settings}, serving.services(), SystemClock())
    one.leader = LeaderRecord(
        holder=one.me.holder, term=3, session="", rest=f"http://127.0.0.1:{leader}"
    )
    one.me = replace(one.me, holder=Incarnation("standby"))
    async with serving.endpoint(one=one, security=security) as port:
        yield port


@contextlib.asynccontextmanager
async def client_of(port: int) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=serving.PATIENCE_S
    ) as client:
        yield client


async def upload(
    client: httpx.AsyncClient, body: bytes = SCRIPT, name: str = "etl.py", **more: Any
) -> httpx.Response:
    path = more.pop("path", "/artifacts/upload")
    return await client.post(path, files={"jarfile": (name, body)}, **more)


def test_what_is_uploaded_is_listed_and_removed() -> None:
    async def story(client: httpx.AsyncClient, storage: MemoryStorage) -> Any:
        taken = await upload(client)
        again = await upload(client)
        listed = (await client.get("/artifacts")).json()["artifacts"]
        stored = list(storage.files.values())
        removed = await client.delete(f"/artifacts/{taken.json()['id']}")
        left = (await client.get("/v1/artifacts")).json()["artifacts"]
        twice = await client.delete(f"/artifacts/{taken.json()['id']}")
        return (
            [one.status_code for one in (taken, again, removed, twice)],
            [one["id"] for one in listed],
            {key: taken.json()[key] for key in ("id", "name", "size", "digest", "status")},
            stored,
            [left, [*storage.files.values()]],
        )

    codes, listed, facts, stored, left = told(story)

    assert [200, 200, 200, 404] == codes
    assert [ID] == listed
    assert {
        "id": ID,
        "name": "etl.py",
        "size": len(SCRIPT),
        "digest": digest(SCRIPT),
        "status": "success",
    } == facts
    assert [SCRIPT] == stored
    assert [[], []] == left


def test_flinks_clients_find_the_same_under_flinks_names() -> None:
    async def story(client: httpx.AsyncClient, _: MemoryStorage) -> Any:
        taken = (await upload(client, path="/v1/jars/upload")).json()
        (jar,) = (await client.get("/jars")).json()["files"]
        removed = await client.delete(f"/jars/{jar['id']}")
        return taken["filename"].rpartition("/")[2], jar["id"], jar["entry"], removed.status_code

    assert (ID, ID, [], 200) == told(story)


def test_a_large_upload_arrives_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_artifacts, "WRITTEN_BYTES", 1 << 16)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        packed.writestr("data.bin", bytes(range(256)) * 20_000)
    whole = file.getvalue()

    async def story(client: httpx.AsyncClient, storage: MemoryStorage) -> Any:
        taken = await upload(client, whole, "data.zip")
        return taken.json()["size"], list(storage.files.values()) == [whole]

    assert (len(whole), True) == told(story)


@pytest.mark.parametrize(
    ("name", "body", "why"),
    [
        ("../etl.py", SCRIPT, "is not taken: give it a name"),
        ("etl.exe", SCRIPT, "is not taken: give it a name"),
        ("<script>.py", SCRIPT, "is not taken: give it a name"),
        ("modules.zip", b"no zip", "is no archive that can be read"),
    ],
)
def test_what_applications_cannot_use_is_refused_and_nothing_is_stored(
    name: str, body: bytes, why: str
) -> None:
    async def story(client: httpx.AsyncClient, storage: MemoryStorage) -> Any:
        said = await upload(client, body, name)
        return said.status_code, said.json()["errors"][0], said.json()["code"], {**storage.files}

    status, error, code, stored = told(story)

    assert (400, "usage", {}) == (status, code, stored)
    assert why in error


@pytest.mark.parametrize("chunked", [False, True])
def test_a_file_that_is_too_large_is_refused(*, chunked: bool) -> None:
    async def story(client: httpx.AsyncClient, storage: MemoryStorage) -> Any:
        form = httpx.Request("POST", "http://x", files={"f": ("etl.py", b"x" * 200_000)})
        whole = form.read()

        async def pieces() -> AsyncIterator[bytes]:
            for begin in range(0, len(whole), 10_000):
                yield whole[begin : begin + 10_000]

        kind = {"content-type": form.headers["content-type"]}
        body = pieces() if chunked else whole
        said = await client.post("/artifacts/upload", content=body, headers=kind)
        return said.status_code, said.json()["code"], {**storage.files}

    assert (413, "too-large", {}) == told(story, artifacts__max_size="1000")


def test_a_file_slightly_too_large_is_refused_by_its_option() -> None:
    async def story(client: httpx.AsyncClient, storage: MemoryStorage) -> Any:
        said = await upload(client, b"x" * 1_001)
        return said.status_code, said.json()["errors"], {**storage.files}

    told_ = told(story, artifacts__max_size="1000")

    assert (413, ["etl.py has more than 1,000 bytes (artifacts.max-size)"], {}) == told_


def test_artifacts_have_a_limit_together() -> None:
    async def story(client: httpx.AsyncClient, _: MemoryStorage) -> Any:
        first, second = await upload(client), await upload(client, b"x = 1  # more", "b.py")
        return first.status_code, second.status_code, second.json()["code"]

    assert (200, 413, "too-large") == told(story, artifacts__max_total_size="20")


def test_an_upload_is_a_form_and_no_page_of_another_origin_sends_it() -> None:
    form = httpx.Request("POST", "http://x", files={"f": ("etl.py", SCRIPT)})
    body, kind = form.read(), f"Content-Type: {form.headers['content-type']}"

    async def story() -> list[int]:
        async with leading({}) as (port, _):
            said = [
                await exchange(port, request("POST", path, HOST, *headers, body=sent))
                for path, headers, sent in (
                    ("/artifacts/upload", (kind,), body),
                    ("/artifacts/upload", (kind, "Origin: https://evil.example"), body),
                    ("/artifacts/upload", (kind, "Origin: null"), body),
                    ("/artifacts/upload", (kind, "Sec-Fetch-Site: cross-site"), body),
                    ("/artifacts/upload", ("Content-Type: text/plain",), SCRIPT),
                    ("/artifacts/upload", ("Content-Type: application/json",), b"{}"),
                    ("/artifacts/upload", (), b""),
                    ("/artifacts/upload", ("Content-Type: multipart/form-data",), body),
                    ("/applications/a/cancel", (kind,), body),
                    ("//artifacts/upload", (kind,), body),
                )
            ]
            return [one.status for one in said]

    assert [200, 403, 403, 403, 415, 415, 415, 400, 415, 415] == run(story())


def test_a_body_that_ends_before_its_file_is_refused() -> None:
    async def story(client: httpx.AsyncClient, storage: MemoryStorage) -> Any:
        form = httpx.Request("POST", "http://x", files={"f": ("etl.py", SCRIPT)})
        kind = {"content-type": form.headers["content-type"]}
        said = await client.post("/artifacts/upload", content=form.read()[:-8], headers=kind)
        return said.status_code, said.json()["errors"], {**storage.files}

    assert (400, ["the body ends before the file does"], {}) == told(story)


def test_an_upload_that_stalls_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "PIECE_S", 0.2)

    async def story() -> int:
        async with leading({}) as (port, _):
            begun = request(
                "POST",
                "/artifacts/upload",
                HOST,
                "Content-Type: multipart/form-data; boundary=x",
                "Content-Length: 1000",
            )
            return (await exchange(port, begun + b"--x\r\n")).status

    assert 408 == run(story())


def test_few_uploads_arrive_at_a_time_and_other_requests_do_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "UPLOADS_MAX", 1)
    begun = request(
        "POST",
        "/artifacts/upload",
        HOST,
        "Content-Type: multipart/form-data; boundary=x",
        "Content-Length: 1000",
    )

    async def story() -> tuple[int, int, int]:
        async with leading({}) as (port, _), client_of(port) as client:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(begun)
            while (await upload(client)).status_code != 503:
                await asyncio.sleep(0.01)
            beside = (await client.get("/artifacts")).status_code
            refused = (await upload(client)).status_code
            writer.transport.abort()
            while (after := (await upload(client)).status_code) == 503:
                await asyncio.sleep(0.01)
            return beside, refused, after

    assert (200, 503, 200) == run(story())


def test_a_cluster_that_ends_with_its_application_takes_no_uploads() -> None:
    async def story(client: httpx.AsyncClient, _: MemoryStorage) -> Any:
        said = await upload(client)
        return said.status_code, said.json()["errors"][0]

    status, why = told(story, execution__shutdown_on_application_finish="true")

    assert 403 == status
    assert "execution.shutdown-on-application-finish" in why
    assert 403 == told(story, web__submit__enable="false")[0]


def test_a_leader_that_was_deposed_meanwhile_acknowledges_nothing() -> None:
    async def story() -> tuple[int, list[Any]]:
        services = serving.services()
        async with leading({}, services) as (port, _), client_of(port) as client:
            await upload(client)
            other = HighAvailabilityServices(
                services.backend, services.storage, "flights", services.locations
            )
            await other.registry.claim(4, ephemeral=False, anew=True)
            before = await other.artifacts.listed(4)
            late = await upload(client, b"late", "late.py")
            after = await other.artifacts.listed(4)
            assert before == after
            return late.status_code, after

    status, after = run(story())

    assert 503 == status
    assert [ID] == [one.artifact_id for one in after]


def test_nothing_is_left_where_files_are_received(tmp_path: Path) -> None:
    async def story(client: httpx.AsyncClient, _: MemoryStorage) -> Any:
        await upload(client)
        return sorted(path.name for path in tmp_path.iterdir())

    assert [] == told(story, io__tmp__dirs=str(tmp_path))


def test_a_broken_connection_stores_nothing() -> None:
    async def story() -> Any:
        services = serving.services()
        async with leading({}, services) as (port, _), client_of(port) as client:
            form = httpx.Request("POST", "http://x", files={"f": ("etl.py", SCRIPT * 9_000)})
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            kind = f"Content-Type: {form.headers['content-type']}"
            whole = request("POST", "/artifacts/upload", HOST, kind, body=form.read())
            writer.write(whole[:-100])
            await writer.drain()
            writer.transport.abort()
            return json.loads((await client.get("/artifacts")).text)

    assert {"artifacts": []} == run(story())


def test_the_audit_log_of_the_leader_names_who_asked_a_standby(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "understudy.audit")
    files = []
    for name, role in (("bob", Role.ADMIN), ("alice", Role.VIEWER)):
        path = tmp_path / name
        path.write_text(f"{name} {name * 10}")
        path.chmod(0o600)
        files.append((f"security.rest.{role.value}s-file", str(path), role))
    security = RestSecurity("o" * 64, token_files=tuple(files))

    async def story() -> list[int]:
        async with (
            leading({}, security=security) as (leader, _),
            standby(leader, {}, security) as port,
            client_of(port) as client,
        ):
            alice, bob = ({"authorization": f"Bearer {one * 10}"} for one in ("alice", "bob"))
            answers = [
                await upload(client),
                await upload(client, headers=alice),
                await client.get("/artifacts", headers=alice),
                await upload(client, headers=bob),
                await client.delete(f"/artifacts/{ID}", headers=bob),
                await client.post("/jobs/none/stop", headers=bob),
            ]
            return [one.status_code for one in answers]

    assert [401, 403, 200, 200, 200, 404] == run(story())
    assert [
        'who=nobody role=none from=127.0.0.1 do="POST /artifacts/upload" status=401',
        'who=alice role=viewer from=127.0.0.1 do="POST /artifacts/upload" status=403',
        f'who=bob role=admin from=127.0.0.1 do="POST /artifacts/upload" about={ID} status=200',
        f'who=bob role=admin from=127.0.0.1 do="DELETE /artifacts/{ID}" status=200',
        'who=bob role=admin from=127.0.0.1 do="POST /jobs/none/stop" status=404',
    ] == [one.getMessage() for one in caplog.records if one.name.startswith("understudy.audit")]
