"""A fast fake of the Kubernetes API server: real HTTP on loopback, and exact faults.

It knows what the backend asks for: objects with ``resourceVersion``, merge patches, preconditions,
lists in pages, watches with bookmarks, and the validation of ConfigMaps and Leases that the backend
relies on. `test_api.py` holds it to the real API server.

It runs in a thread with an event loop of its own, so that a paused test pauses no server.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import threading
import uuid
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

Json = dict[str, Any]

LOOPBACK = "127.0.0.1"
NAMESPACE = "flights"
TOKEN = "fake-token"
PATIENCE_S = 10.0

_PATH = re.compile(
    r"/(?:api/v1|apis/(?P<group>[^/]+)/v1)(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+))?"
)
_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?")

KINDS = {
    "configmaps": "ConfigMap",
    "leases": "Lease",
    "pods": "Pod",
    "secrets": "Secret",
    "services": "Service",
    "deployments": "Deployment",
    "events": "Event",
    "selfsubjectaccessreviews": "SelfSubjectAccessReview",
}


@dataclass
class Fault:
    """What goes wrong with the next requests that match."""

    method: str = ""
    path: str = ""
    """A part of the path and query."""
    times: int = 1
    status: int = 0
    """Answer with this status."""
    reason: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    """Answer with these bytes, HTML for example."""
    lose_request: bool = False
    """Close the connection before anything is done."""
    lose_answer: bool = False
    """Do what was asked, and close the connection."""
    delay_s: float = 0.0
    before: Callable[[FakeApi], None] | None = None
    """Done before the request is: another writer, exactly in between."""


@dataclass
class Asked:
    """One request, as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Json | None


class Refusal(Exception):  # noqa: N818
    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message


class FakeApi:
    """The server; its methods are called from the test's thread."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Json] = {}
        """By plural, namespace and name."""
        self.asked: list[Asked] = []
        self.tokens = {TOKEN}
        self.denied: set[tuple[str, str]] = set()
        """Verb and plural that nobody may use."""
        self.faults: list[Fault] = []
        self.silent = False
        """Whether watches send nothing, not even bookmarks."""
        self.watches_end_after: int | None = None
        """Events after which each watch is closed; 0: at once."""
        self.bookmark_s = 60.0
        self.port = 0
        self._version = 100
        self._oldest = 0
        """Versions before are compacted."""
        self._history: list[tuple[int, str, str, Json]] = []
        self._lock = threading.RLock()
        self._changed: asyncio.Condition | None = None
        self._thawed = threading.Event()
        self._thawed.set()
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    # --- life ------------------------------------------------------------------------------------

    def __enter__(self) -> FakeApi:
        self._thread.start()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.thaw()
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Listen, at the same port as before."""
        self._here(self._start())

    def stop(self) -> None:
        """Close all connections and listen no longer; the objects stay."""
        self._here(self._stop())

    def freeze(self) -> None:
        """Accept connections and answer nothing, as a stopped process."""
        self._thawed.clear()

    def thaw(self) -> None:
        self._thawed.set()

    def _here(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    async def _start(self) -> None:
        self._changed = asyncio.Condition()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Line(self._serve), LOOPBACK, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        if self._server:
            self._server.close()
        for writer in tuple(self._open):
            writer.transport.abort()
        self._server = None
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    # --- what tests do to it ---------------------------------------------------------------------

    def fail(self, **how: Any) -> Fault:
        """Have a fault meet the next requests that match."""
        fault = Fault(**how)
        with self._lock:
            self.faults.append(fault)
        return fault

    def compact(self) -> None:
        """Forget all older versions: whoever watches from one gets 410."""
        with self._lock:
            self._oldest = self._version
            self._history.clear()

    def end_watches(self) -> None:
        """Close the connections of all watches, as a server that restarts."""

        async def end() -> None:
            for writer in tuple(self._open):
                if getattr(writer, "watches", False):
                    writer.transport.abort()

        self._here(end())

    def change(self, plural: str, name: str, change: Callable[[Json], None]) -> None:
        """Edit an object as `kubectl edit` does."""
        with self._lock:
            found = json.loads(json.dumps(self.objects[plural, NAMESPACE, name]))
            change(found)
            self._store(plural, NAMESPACE, found, "MODIFIED")

    def remove(self, plural: str, name: str) -> None:
        """Delete an object as `kubectl delete` does."""
        with self._lock:
            self._delete(plural, NAMESPACE, name)

    def names(self, plural: str) -> list[str]:
        with self._lock:
            return sorted(name for one, _, name in self.objects if one == plural)

    def object(self, plural: str, name: str) -> Json:
        with self._lock:
            found: Json = json.loads(json.dumps(self.objects[plural, NAMESPACE, name]))
            return found

    def count(self, method: str, part: str = "") -> int:
        """Return how many requests of a method came, with a path and query that has a part."""
        with self._lock:
            return sum(
                1
                for one in self.asked
                if one.method == method and part in f"{one.path}?{one.query}"
            )

    # --- the wire --------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().split("\r\n")
                method, target, _ = lines[0].split(" ")
                headers = {
                    name.lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in lines[1:] if line)
                }
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                while not self._thawed.is_set():
                    await asyncio.sleep(0.01)
                if not await _unless_left(
                    writer, self._answer(method, target, headers, body, writer)
                ):
                    break
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # The task of a connection ends here, however it ends.
        finally:
            self._open.discard(writer)
            writer.close()

    async def _answer(
        self,
        method: str,
        target: str,
        headers: dict[str, str],
        body: bytes,
        writer: asyncio.StreamWriter,
    ) -> bool:
        split = urlsplit(target)
        query = dict(parse_qsl(split.query))
        asked = Asked(method, split.path, query, headers, json.loads(body) if body else None)
        fault = self._met(asked, target)
        if fault and fault.before:
            fault.before(self)
        if fault and fault.delay_s:
            await asyncio.sleep(fault.delay_s)
        if fault and fault.lose_request:
            return False
        if fault and (fault.status or fault.body is not None):
            data = fault.body or json.dumps(_status(fault.status, fault.reason, "")).encode()
            kind = "text/html" if fault.body else "application/json"
            await _send(writer, fault.status or 200, data, kind, fault.headers)
            return True
        try:
            if query.get("watch") == "true":
                await self._watch(asked, writer)
                return False
            answer = self._handled(asked)
            status = 201 if method == "POST" else 200
        except Refusal as refusal:
            answer = _status(refusal.status, refusal.reason, refusal.message)
            answer["details"] = {"name": split.path.rpartition("/")[2]}
            status = refusal.status
        if fault and fault.lose_answer:
            return False
        await _send(writer, status, json.dumps(answer).encode(), "application/json", {})
        return True

    def _met(self, asked: Asked, target: str) -> Fault | None:
        with self._lock:
            self.asked.append(asked)
            for fault in self.faults:
                if fault.method in {"", asked.method} and fault.path in unquote(target):
                    fault.times -= 1
                    if not fault.times:
                        self.faults.remove(fault)
                    return fault
        return None

    # --- requests --------------------------------------------------------------------------------

    def _handled(self, asked: Asked) -> Json:
        plural, namespace, name = self._allowed(asked)
        metadata_only = "PartialObjectMetadata" in asked.headers.get("accept", "")
        with self._lock:
            if asked.method == "POST":
                answer = self._create(plural, namespace, asked)
            elif asked.method == "PATCH":
                answer = self._patch(plural, namespace, name, asked)
            elif asked.method == "PUT":
                answer = self._put(plural, namespace, name, asked)
            elif asked.method == "DELETE":
                answer = self._checked_delete(plural, namespace, name, asked.body or {})
            elif name:
                answer = self._found(plural, namespace, name)
            else:
                answer = self._list(plural, namespace, asked.query)
            answer = json.loads(json.dumps(answer))
        if metadata_only and answer["kind"] in KINDS.values():
            answer = _metadata(answer)
        if metadata_only and answer["kind"].endswith("List"):
            answer = {
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": answer["metadata"],
                "items": [{"metadata": item["metadata"]} for item in answer["items"]],
            }
        return answer

    def _allowed(self, asked: Asked) -> tuple[str, str, str]:
        scheme, _, token = asked.headers.get("authorization", "").partition(" ")
        with self._lock:
            if scheme != "Bearer" or token not in self.tokens:
                raise Refusal(401, "Unauthorized", "Unauthorized")
        match = _PATH.fullmatch(unquote(asked.path))
        if not match or match["plural"] not in KINDS:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        plural, name = match["plural"], match["name"] or ""
        verb = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}.get(
            asked.method,
            "get" if name else "watch" if asked.query.get("watch") == "true" else "list",
        )
        with self._lock:
            if (verb, plural) in self.denied:
                raise Refusal(
                    403,
                    "Forbidden",
                    f'{plural} is forbidden: User "fake" cannot {verb} resource "{plural}" in API '
                    f'group "{match["group"] or ""}" in the namespace "{match["namespace"]}"',
                )
        return plural, match["namespace"] or "", name

    def _create(self, plural: str, namespace: str, asked: Asked) -> Json:
        found = asked.body or {}
        if plural == "selfsubjectaccessreviews":
            of = found["spec"]["resourceAttributes"]
            allowed = (of["verb"], of["resource"]) not in self.denied
            return {**found, "status": {"allowed": allowed}}
        name = found["metadata"].get("name", "")
        if (plural, namespace, name) in self.objects:
            raise Refusal(409, "AlreadyExists", f'{plural} "{name}" already exists')
        _validate(plural, found)
        found["metadata"] = {**found["metadata"], "namespace": namespace, "uid": str(uuid.uuid4())}
        if asked.query.get("dryRun") == "All":
            return {**found, "kind": KINDS[plural]}
        return self._store(plural, namespace, found, "ADDED")

    def _patch(self, plural: str, namespace: str, name: str, asked: Asked) -> Json:
        if asked.headers.get("content-type") != "application/merge-patch+json":
            raise Refusal(415, "UnsupportedMediaType", "the body of the request was unknown")
        current, change = self._found(plural, namespace, name), asked.body or {}
        return self._replace(plural, namespace, name, _patched(current, change))

    def _put(self, plural: str, namespace: str, name: str, asked: Asked) -> Json:
        return self._replace(plural, namespace, name, dict(asked.body or {}))

    def _replace(self, plural: str, namespace: str, name: str, found: Json) -> Json:
        current = self._found(plural, namespace, name)
        mine, theirs = found["metadata"], current["metadata"]
        for key, what in (("uid", "Precondition failed: UID"), ("resourceVersion", "the object")):
            if mine.get(key) and mine[key] != theirs[key]:
                raise Refusal(
                    409,
                    "Conflict",
                    f'Operation cannot be fulfilled on {plural} "{name}": {what} has been modified',
                )
        if current.get("immutable") and found.get("data") != current.get("data"):
            raise Refusal(422, "Invalid", f'{plural} "{name}" is invalid: field is immutable')
        _validate(plural, found)
        found["metadata"] = {**mine, "uid": theirs["uid"], "namespace": namespace}
        if _without_version(found) == _without_version(current):
            return current  # The real server does not write what changes nothing.
        return self._store(plural, namespace, found, "MODIFIED")

    def _checked_delete(self, plural: str, namespace: str, name: str, options: Json) -> Json:
        found = self._found(plural, namespace, name)
        for key, value in (options.get("preconditions") or {}).items():
            if found["metadata"][key] != value:
                raise Refusal(
                    409, "Conflict", f"Precondition failed: {key} in precondition: {value}"
                )
        self._delete(plural, namespace, name)
        return {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def _found(self, plural: str, namespace: str, name: str) -> Json:
        try:
            return self.objects[plural, namespace, name]
        except KeyError:
            raise Refusal(404, "NotFound", f'{plural} "{name}" not found') from None

    def _list(self, plural: str, namespace: str, query: dict[str, str]) -> Json:
        found = [
            item
            for (one, where, _), item in sorted(self.objects.items())
            if one == plural and where == namespace and _matches(item, query)
        ]
        begin = int(query.get("continue", "0"))
        limit = int(query.get("limit", "0")) or len(found)
        metadata: Json = {"resourceVersion": str(self._version)}
        if begin + limit < len(found):
            metadata["continue"] = str(begin + limit)
        items = found[begin : begin + limit]
        return {"kind": f"{KINDS[plural]}List", "metadata": metadata, "items": items}

    def _store(self, plural: str, namespace: str, found: Json, kind: str) -> Json:
        self._version += 1
        found["metadata"]["resourceVersion"] = str(self._version)
        found.setdefault("kind", KINDS[plural])
        self.objects[plural, namespace, found["metadata"]["name"]] = found
        self._tell(kind, plural, found)
        return found

    def _delete(self, plural: str, namespace: str, name: str) -> None:
        found = self.objects.pop((plural, namespace, name))
        self._version += 1
        gone = json.loads(json.dumps(found))
        gone["metadata"]["resourceVersion"] = str(self._version)
        self._tell("DELETED", plural, gone)

    def _tell(self, kind: str, plural: str, found: Json) -> None:
        self._history.append((self._version, kind, plural, json.loads(json.dumps(found))))

        async def wake() -> None:
            assert self._changed
            async with self._changed:
                self._changed.notify_all()

        asyncio.run_coroutine_threadsafe(wake(), self._loop)

    # --- watches ---------------------------------------------------------------------------------

    async def _watch(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        plural, _, _ = self._allowed(asked)
        metadata_only = "PartialObjectMetadata" in asked.headers.get("accept", "")
        at = int(asked.query.get("resourceVersion", "0"))
        writer.watches = True  # type: ignore[attr-defined]
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n"
            b"\r\n"
        )
        if at < self._oldest:
            await _chunk(writer, {"type": "ERROR", "object": _status(410, "Expired", "too old")})
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            return
        sent, assert_changed = 0, self._changed
        assert assert_changed
        while self.watches_end_after is None or sent < self.watches_end_after:
            events = self._since(plural, at)
            for version, kind, found in events:
                at = version
                if _matches(found, asked.query) and not self.silent:
                    shown = _metadata(found) if metadata_only else found
                    await _chunk(writer, {"type": kind, "object": shown})
                    sent += 1
            if events:
                continue
            async with assert_changed:
                if self._since(plural, at):
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.bookmark_s):
                        await assert_changed.wait()
                    continue
            if not self.silent:
                with self._lock:
                    version = self._version
                mark = {"kind": KINDS[plural], "metadata": {"resourceVersion": str(version)}}
                await _chunk(writer, {"type": "BOOKMARK", "object": mark})
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    def _since(self, plural: str, at: int) -> list[tuple[int, str, Json]]:
        with self._lock:
            return [
                (version, kind, found)
                for version, kind, one, found in self._history
                if version > at and one == plural
            ]


class _Line(asyncio.StreamReaderProtocol):
    """One connection; knows when the client has closed it, also while nothing is read."""

    def __init__(
        self,
        serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]],
    ) -> None:
        super().__init__(asyncio.StreamReader(), serve)
        self.left = asyncio.Event()

    def eof_received(self) -> bool | None:
        self.left.set()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.left.set()
        super().connection_lost(exc)


async def _unless_left(writer: asyncio.StreamWriter, work: Coroutine[Any, Any, bool]) -> bool:
    """Do the work, or return False as soon as the client closes its connection."""
    line = writer.transport.get_protocol()
    assert isinstance(line, _Line)
    answer, left = asyncio.ensure_future(work), asyncio.ensure_future(line.left.wait())
    try:
        await asyncio.wait({answer, left}, return_when=asyncio.FIRST_COMPLETED)
        return answer.result() if answer.done() else False
    finally:
        answer.cancel()
        left.cancel()


async def _send(
    writer: asyncio.StreamWriter, status: int, data: bytes, kind: str, headers: dict[str, str]
) -> None:
    head = {"content-type": kind, "content-length": str(len(data)), **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    phrase = HTTPStatus(status).phrase
    writer.write(f"HTTP/1.1 {status} {phrase}\r\n{lines}\r\n".encode() + data)
    await writer.drain()


async def _chunk(writer: asyncio.StreamWriter, event: Json) -> None:
    data = json.dumps(event).encode() + b"\n"
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))
    await writer.drain()


def _status(code: int, reason: str, message: str) -> Json:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message or reason,
        "reason": reason,
        "code": code,
    }


def _metadata(item: Json) -> Json:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": item["metadata"],
    }


def _without_version(item: Json) -> Json:
    metadata = {k: v for k, v in item["metadata"].items() if k != "resourceVersion"}
    return {**item, "metadata": metadata}


def _patched(current: Any, change: Any) -> Any:
    if not isinstance(change, dict):
        return change
    result = dict(current) if isinstance(current, dict) else {}
    for name, part in change.items():
        if part is None:
            result.pop(name, None)
        else:
            result[name] = _patched(result.get(name), part)
    return result


def _matches(item: Json, query: dict[str, str]) -> bool:
    labels = item["metadata"].get("labels") or {}
    for term in filter(None, query.get("labelSelector", "").split(",")):
        name, has_value, value = term.partition("=")
        if name not in labels or (has_value and labels[name] != value):
            return False
    field_name, _, value = query.get("fieldSelector", "").partition("=")
    return not field_name or item["metadata"]["name"] == value


def _validate(plural: str, found: Json) -> None:
    metadata = found["metadata"]
    name = metadata.get("name", "")
    if not _NAME.fullmatch(name) or len(name) > 253:
        _invalid(plural, name, "metadata.name: a lowercase RFC 1123 subdomain")
    for value in (metadata.get("labels") or {}).values():
        if not _LABEL.fullmatch(value) or len(value) > 63:
            _invalid(plural, name, f"metadata.labels: Invalid value: {value!r}")
    annotations = metadata.get("annotations") or {}
    if sum(len(k.encode()) + len(v.encode()) for k, v in annotations.items()) > 256 * 1024:
        _invalid(plural, name, "metadata.annotations: Too long: may not be more than 262144 bytes")
    if plural == "configmaps":
        data, binary = found.get("data") or {}, found.get("binaryData") or {}
        for key in (*data, *binary):
            if not _DATA_KEY.fullmatch(key) or key in {".", ".."} or key.startswith(".."):
                _invalid(plural, name, f"data[{key}]: a valid config key")
        size = sum(len(value.encode()) for value in data.values())
        size += sum(len(base64.b64decode(value)) for value in binary.values())
        if size > 1 << 20:
            _invalid(plural, name, "[]: Too long: may not be more than 1048576 bytes")
    if plural == "leases":
        duration = (found.get("spec") or {}).get("leaseDurationSeconds")
        if duration is not None and duration <= 0:
            _invalid(plural, name, "spec.leaseDurationSeconds: must be greater than 0")


def _invalid(plural: str, name: str, why: str) -> None:
    raise Refusal(422, "Invalid", f'{plural} "{name}" is invalid: {why}')


def kubeconfig(url: str, token: str = TOKEN, namespace: str = NAMESPACE) -> Json:
    """Return a kubeconfig for a server without TLS."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [
            {"name": "test", "context": {"cluster": "c", "user": "u", "namespace": namespace}}
        ],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": token}}],
    }


@contextlib.contextmanager
def started() -> Iterator[FakeApi]:
    """Start a fake for a block."""
    with FakeApi() as api:
        yield api
