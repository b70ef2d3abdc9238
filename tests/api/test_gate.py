"""What a web page in the user's browser sends to an endpoint of ours, and what comes of it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator

import httpx
import pytest
from prometheus_client import CollectorRegistry

from tests.api import serving
from tests.api.serving import Said, request
from understudy.api import endpoint, metrics_taskmanager
from understudy.config.configuration import Configuration, load_configuration
from understudy.errors import ConfigurationError

CANCEL = "/applications/a/cancel"
DISPOSE = "/savepoint-disposal"
JSON = "Content-Type: application/json"

REACHED = 503
"""Nobody leads here: what is not refused is told so."""


Ask = Callable[..., Said]


@pytest.fixture(scope="module")
def said_to() -> Iterator[Ask]:
    """Return what sends bytes to a real endpoint; ``{port}`` in them is its port.

    There is one endpoint for all that have the same settings.
    """
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    stack = contextlib.AsyncExitStack()
    ports: dict[tuple[tuple[str, str], ...], int] = {}

    async def story(raw: bytes, settings: dict[str, str]) -> Said:
        key = tuple(settings.items())
        if key not in ports:
            ports[key] = await stack.enter_async_context(serving.endpoint(settings))
        port = ports[key]
        return await serving.exchange(port, raw.replace(b"{port}", str(port).encode()))

    def ask(raw: bytes, settings: dict[str, str] | None = None) -> Said:
        asked = asyncio.run_coroutine_threadsafe(story(raw, settings or {}), loop)
        return asked.result(serving.PATIENCE_S)

    yield ask
    asyncio.run_coroutine_threadsafe(stack.aclose(), loop).result(serving.PATIENCE_S)
    loop.call_soon_threadsafe(loop.stop)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:{port}",
        "127.0.0.1",
        "localhost:{port}",
        "LocalHost:{port}",
        "localhost.:{port}",
        "localhost:9000",  # A tunnel: ssh -L 9000:localhost:8081.
        "[::1]:{port}",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]:{port}",
        "127.0.0.2",
        "ip6-localhost",
    ],
)
@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_names_of_loopback_are_served(said_to: Ask, host: str, version: str) -> None:
    assert REACHED == said_to(request("GET", "/overview", f"Host: {host}", version=version)).status


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "EVIL.EXAMPLE:{port}",
        "localhost.evil.example:{port}",
        "127.0.0.1.nip.io:{port}",
        "evil.localhost",
        "0.0.0.0:{port}",
        "[::]:{port}",
        "2130706433:{port}",
        "127.1:{port}",
        "0x7f000001",
        "10.0.0.7:{port}",
        "[fd00::7]:{port}",
        "user@localhost:{port}",
        "localhost:{port}:1",
        "localhost evil.example",
        "localhost, evil.example",
        "localhost:port",
        "::1",
        "",
    ],
)
@pytest.mark.parametrize("path", ["/overview", "/v1/overview", "/metrics", "/nowhere"])
def test_a_name_that_was_bound_anew_to_loopback_is_not_served(
    said_to: Ask, host: str, path: str
) -> None:
    said = said_to(request("GET", path, f"Host: {host}"))

    assert 403 == said.status
    assert "rest.allowed-hosts" in said.error
    assert said.headers["x-understudy-by"] == "me"


@pytest.mark.parametrize(
    "raw",
    [
        request("GET", "/overview", version="1.0"),
        request("POST", CANCEL, version="1.0"),
        request("GET", "http://localhost/overview", version="1.0"),
    ],
)
def test_a_request_without_host_is_not_served(said_to: Ask, raw: bytes) -> None:
    assert said_to(raw).status in {400, 403}


@pytest.mark.parametrize(
    "raw",
    [
        request("GET", "/overview"),
        request("GET", "/overview", "Host: localhost", "Host: evil.example"),
        request("GET", "http://evil.example/overview", "Host: localhost"),
        request("POST", f"http://localhost{CANCEL}", "Host: localhost"),
        request("OPTIONS", "*", "Host: localhost"),
    ],
)
def test_what_names_its_host_otherwise_is_refused(said_to: Ask, raw: bytes) -> None:
    assert 400 == said_to(raw).status


@pytest.mark.parametrize(
    ("allowed", "host", "status"),
    [
        ("flights.example", "flights.example", REACHED),
        ("flights.example", "Flights.Example:8443", REACHED),
        ("flights.example:8443", "flights.example:8443", REACHED),
        ("flights.example:8443", "flights.example:8081", 403),
        ("other.example;10.0.0.7", "10.0.0.7:1", REACHED),
        ("flights.example", "a.flights.example", 403),
    ],
)
def test_further_names_are_served_where_they_are_allowed(
    said_to: Ask, allowed: str, host: str, status: int
) -> None:
    raw = request("GET", "/overview", f"Host: {host}")

    assert status == said_to(raw, {"rest.allowed-hosts": allowed}).status


def test_the_name_that_is_published_is_served(said_to: Ask) -> None:
    raw = request("GET", "/overview", "Host: jm-1.flights:{port}")

    assert REACHED == said_to(raw, {"rest.address": "jm-1.flights"}).status
    assert 403 == said_to(raw).status


@pytest.mark.parametrize("name", ["http://flights.example", "flights.example/", "a b", "a:b", "*"])
def test_a_name_that_is_none_is_refused_when_a_process_starts(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"rest.allowed-hosts holds"):
        load_configuration(None, [f"rest.allowed-hosts={name}"])


# --- changes --------------------------------------------------------------------------------------

FORMS = {
    "application/x-www-form-urlencoded": b"mode=cancel",
    "multipart/form-data; boundary=x": b'--x\r\ncontent-disposition: form-data; name="a"\r\n\r\n1',
    "text/plain": b'{"savepoint-path": "/data"}',
    "TEXT/PLAIN; charset=utf-8": b"{}",
    "application/jsonp": b"{}",
    "application/octet-stream": b"{}",
}
CHANGES = [("POST", CANCEL), ("POST", DISPOSE), ("PATCH", "/jobs/a"), ("DELETE", "/jobs/a")]


@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_a_form_changes_nothing(
    said_to: Ask, kind: str, method: str, path: str, *, empty: bool
) -> None:
    """Also an empty one: a browser still says which kind of form it is."""
    body = b"" if empty else FORMS[kind]
    said = said_to(request(method, path, "Host: localhost", f"Content-Type: {kind}", body=body))

    assert 415 == said.status
    assert "application/json" in said.error


@pytest.mark.parametrize(
    "headers",
    [
        ("Content-Length: 2",),
        ("Transfer-Encoding: chunked",),
        ("Content-Type: application/json", "Content-Type: text/plain"),
        ("X-HTTP-Method-Override: GET", "Content-Type: text/plain"),
    ],
)
def test_a_body_says_that_it_is_json(said_to: Ask, headers: tuple[str, ...]) -> None:
    raw = request("POST", CANCEL, "Host: localhost", *headers)

    assert 415 == said_to(raw + b"{}").status


@pytest.mark.parametrize("override", ["POST", "PATCH", "DELETE"])
def test_a_get_changes_nothing_whatever_method_it_claims(said_to: Ask, override: str) -> None:
    raw = request("GET", CANCEL, "Host: localhost", f"X-HTTP-Method-Override: {override}")

    assert 405 == said_to(raw).status


@pytest.mark.parametrize(
    "headers",
    [
        ("Origin: https://evil.example",),
        ("Origin: null",),
        ("Origin: ",),
        ("Origin: http://localhost:3000",),
        ("Origin: http://localhost",),
        ("Origin: http://127.0.0.1:{port}",),
        ("Origin: http://localhost:{port}.evil.example",),
        ("Origin: http://localhost:{port}@evil.example",),
        ("Origin: http://localhost:{port}/x",),
        ("Origin: file://",),
        ("Origin: chrome-extension://localhost:{port}",),
        ("Origin: http://localhost:{port}", "Origin: https://evil.example"),
        ("Sec-Fetch-Site: cross-site",),
        ("Sec-Fetch-Site: same-site",),
        ("Sec-Fetch-Site: Cross-Site", "Origin: http://localhost:{port}"),
        ("Sec-Fetch-Site: ",),
    ],
)
@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_a_page_of_another_origin_changes_nothing(
    said_to: Ask, headers: tuple[str, ...], method: str, path: str
) -> None:
    """Whether it is JSON or has no body: as a page sends it that was allowed to, somewhere."""
    for further in ((), (JSON,)):
        raw = request(method, path, "Host: localhost:{port}", *headers, *further)
        said = said_to(raw)

        assert 403 == said.status
        assert "changes are not taken from pages of other" in said.error


@pytest.mark.parametrize("path", [CANCEL, "/nowhere"])
def test_nobody_is_allowed_in_by_cors(said_to: Ask, path: str) -> None:
    asks = ("Origin: https://evil.example", "Access-Control-Request-Method: POST")
    said = said_to(request("OPTIONS", path, "Host: localhost", *asks))

    assert said.status in {404, 405}
    assert not [name for name in said.headers if name.startswith("access-control")]
    assert "nosniff" == said.headers["x-content-type-options"]


@pytest.mark.parametrize(
    ("method", "path", "headers", "body"),
    [
        ("POST", CANCEL, (), b""),
        ("POST", CANCEL, ("Content-Length: 0",), b""),
        ("POST", CANCEL, (JSON,), b""),
        ("POST", CANCEL, (JSON,), b"{}"),
        ("POST", DISPOSE, ("Content-Type: Application/JSON; charset=utf-8",), b"{}"),
        ("PATCH", "/jobs/a", (), b""),
        ("PATCH", "/jobs/a", ("Sec-Fetch-Site: same-origin",), b""),
        ("PATCH", "/jobs/a", ("Origin: http://LOCALHOST:{port}",), b""),
        ("GET", "/overview", ("Origin: https://evil.example", "Sec-Fetch-Site: cross-site"), b""),
        ("GET", "/overview", ("Content-Type: text/plain",), b""),
    ],
)
def test_programs_and_our_own_pages_are_served(
    said_to: Ask, method: str, path: str, headers: tuple[str, ...], body: bytes
) -> None:
    """What a page of another origin reads, its browser does not show it."""
    raw = request(method, path, "Host: localhost:{port}", *headers, body=body)

    assert REACHED == said_to(raw).status


def test_a_page_behind_a_proxy_that_ends_tls_is_our_own(said_to: Ask) -> None:
    own = ("Host: flights.example", "Origin: https://flights.example")
    raw = request("POST", CANCEL, *own)

    assert REACHED == said_to(raw, {"rest.allowed-hosts": "flights.example"}).status
    assert 403 == said_to(raw).status


def test_plain_httpx_is_served() -> None:
    async def story() -> list[int]:
        async with (
            serving.endpoint() as port,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client,
        ):
            answers = [
                await client.post(CANCEL),
                await client.post(DISPOSE, json={"savepoint-path": "/x"}),
                await client.patch("/jobs/a"),
                await client.get("/overview"),
            ]
        return [answer.status_code for answer in answers]

    assert [REACHED] * 4 == asyncio.run(story())


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:1", 200), ("tm-1.flights", 200), ("bound.anew.example", 403), ("tm-2", 403)],
)
def test_metrics_of_a_taskmanager_are_served_under_its_own_names(host: str, status: int) -> None:
    async def story() -> Said:
        settings = {"metrics.reporter.prom.port": "0"}
        bound = endpoint.bind_metrics(Configuration(settings), "tm-1.flights")
        assert bound is not None
        async with metrics_taskmanager.serving(CollectorRegistry(), bound):
            port = int(bound.listening.getsockname()[1])
            return await serving.exchange(port, request("GET", "/metrics", f"Host: {host}"))

    assert status == asyncio.run(story()).status
