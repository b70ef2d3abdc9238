"""A register in ZooKeeper, for JobManagers on several hosts.

``/<root>/<cluster-id>/register/<key>/<nonce>`` holds a value. One transaction creates the key's
node and the nonce's node; one ``set`` with the expected node version replaces the value. A node
version alone is no fence, as it starts at 0 again when the node is deleted and recreated. The
nonce is never reused, so nonce and version together are a fence: a writer that was paused for an
hour can only fail. A key's node without children means that a person deleted the value: the key is
absent.

``/<root>/<cluster-id>/latch`` is the line of contenders (`latch`). Readers never create nodes. The
process that deletes the last node of a cluster deletes the parents too.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib.util
import json
import re
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from operator import methodcaller
from typing import Any, Generic, TypeVar

from kazoo import exceptions
from kazoo.protocol.states import WatchedEvent

from understudy.clock import SystemClock
from understudy.config import Configuration
from understudy.errors import ConfigurationError, CorruptDataError
from understudy.ha.backends.zookeeper import options as zk
from understudy.ha.backends.zookeeper import release as zookeeper_release
from understudy.ha.backends.zookeeper.latch import (
    Parents,
    ZooKeeperLatch,
    contender,
    nodes_in_line,
)
from understudy.ha.backends.zookeeper.session import (
    Bell,
    Session,
    SessionIdentity,
    SessionSettings,
    synced,
    written,
)
from understudy.ha.register import Conflict, Entry, Release, quoted, unquoted
from understudy.installing import install_command

Step = tuple[Any, ...]
"""One operation of a transaction: verb and arguments."""

RACES_MAX = 1_000
"""Each lost race means that another writer won; nobody loses so many in a row."""

REGISTER, LATCH = "register", "latch"

SASL_MODULES = {
    "DIGEST-MD5": {"puresasl": "pure-sasl"},
    "GSSAPI": {"puresasl": "pure-sasl", "kerberos": "kerberos"},
}
"""The modules that kazoo imports for each mechanism, and the packages that contain them."""

OURS = b"understudy"
"""The data of parent nodes that we create: only nodes with this data are removed when empty."""

_NONCE = re.compile(r"[0-9a-f]{12}")


def open_register(cluster_id: str, settings: Mapping[str, str]) -> ZooKeeperRegister:
    """Open the register of one cluster in the ensemble that the settings name."""
    configuration = Configuration(settings)
    tls = configuration.get(zk.ZK_SSL)
    mechanism = configuration.get(zk.ZK_SASL_MECHANISM)
    words = configuration.find(zk.ZK_AUTHORIZATION) or ()
    session = SessionSettings(
        servers=configuration.get(zk.ZK_QUORUM),
        session_s=configuration.get(zk.ZK_SESSION_TIMEOUT),
        connection_s=configuration.get(zk.ZK_CONNECTION_TIMEOUT),
        retry_wait_s=configuration.get(zk.ZK_RETRY_WAIT),
        reads=configuration.get(zk.ZK_RETRIES),
        creator_only=configuration.get(zk.ZK_ACL) == "creator",
        authorization=tuple((word.partition(":")[0], word.partition(":")[2]) for word in words),
        sasl=None if mechanism == "none" else _sasl(configuration, mechanism),
        tls=_tls(configuration) if tls else {},
    )
    base = f"{configuration.get(zk.ZK_ROOT).rstrip('/')}/{quoted(cluster_id)}"
    return ZooKeeperRegister(base, session, tolerant=configuration.get(zk.ZK_TOLERATE_SUSPENDED))


def _sasl(configuration: Configuration, mechanism: str) -> dict[str, str]:
    for module, package in SASL_MODULES[mechanism].items():
        if importlib.util.find_spec(module) is None:
            raise ConfigurationError(
                f"{zk.ZK_SASL_MECHANISM.key} is {mechanism}, but Python's package {package} "
                f"is not installed here: {install_command(package)}"
            )
    given = {
        "mechanism": mechanism,
        "service": configuration.get(zk.ZK_SASL_SERVICE),
        "username": configuration.find(zk.ZK_SASL_USERNAME),
        "password": configuration.find(zk.ZK_SASL_PASSWORD),
    }
    if mechanism == "GSSAPI":
        given = {**given, "principal": given.pop("username"), "password": None}
    return {name: text for name, text in given.items() if text is not None}


def _tls(configuration: Configuration) -> dict[str, Any]:
    return {
        "use_ssl": True,
        "ca": configuration.find(zk.ZK_SSL_CA),
        "certfile": configuration.find(zk.ZK_SSL_CERTIFICATE),
        # kazoo shows no certificate without a key; one PEM may hold both.
        "keyfile": configuration.find(zk.ZK_SSL_KEY) or configuration.find(zk.ZK_SSL_CERTIFICATE),
        "keyfile_password": configuration.find(zk.ZK_SSL_KEY_PASSWORD),
        "verify_certs": True,
        "check_hostname": configuration.get(zk.ZK_SSL_CHECK_HOSTNAME),
    }


class ZooKeeperRegister:
    """A register of the nodes below one cluster's node; see the module's docstring."""

    def __init__(self, base: str, settings: SessionSettings, *, tolerant: bool = True) -> None:
        """``tolerant``: a leader without connection leads on while its session certainly lives."""
        self._base = base
        self._root = f"{base}/{REGISTER}"
        self._line_path = f"{base}/{LATCH}"
        self._tolerant = tolerant
        self._session = Session(settings)
        self._nonces: dict[str, str] = {}
        """The nonce that a key had when it was seen last: mostly it still has it."""
        self._loads: Sharing[Entry | None] = Sharing()
        self._watches: Sharing[bool] = Sharing()
        self._followers: dict[str, Followers] = {}

    def latch(self, me: str, note: bytes) -> ZooKeeperLatch:
        """Open the line for one contender; ``note`` is the data of its node, for people."""
        return ZooKeeperLatch(
            self._session,
            self._line_path,
            me,
            note,
            Parents(self._make, self._prune),
            tolerant=self._tolerant,
        )

    async def line(self) -> list[str]:
        """Return the contenders in order, by the names of their nodes."""
        return [contender(node) for node in await nodes_in_line(self._session, self._line_path)]

    def on_release(self, notify: Callable[[Release], None]) -> None:
        """Notify of a program that closes the session, whenever the session changes."""
        settings = self._session.settings
        argv = (sys.executable, "-I", "-S", zookeeper_release.__file__)

        def granted(identity: SessionIdentity) -> None:
            what = {
                "servers": settings.servers,
                "session": identity.session,
                "password": identity.password.hex(),
                "timeout_ms": int(identity.timeout_s * 1000),
                "tls": settings.tls,
            }
            notify(Release(argv, json.dumps(what)))

        self._session.on_identity(granted)

    async def clusters(self) -> list[str]:
        """Return the nodes below the root."""
        return await self._children(self._base.rpartition("/")[0])

    def release(self) -> None:
        """Close the session."""
        self._session.close()

    async def prove(self) -> None:
        """Create and delete a node and its missing parents in one transaction."""
        proof = f"{self._root}/proof-{_new_nonce()}"
        await self._make(proof, lambda nodes: [("delete", node) for node in reversed(nodes)])

    def status(self) -> dict[str, object]:
        """Return the state of the connection and session as known here, without a request."""
        session, now = self._session, SystemClock().now()
        return {
            "quorum": [written(*server) for server in session.settings.servers],
            "path": self._base,
            "connected": session.connected,
            "server": session.server,
            "session": f"0x{session.number:x}" if session.number else None,
            "session_timeout_seconds": session.session_s,
            "session_age_seconds": _ago(now, session.opened),
            "acknowledged_write_age_seconds": _ago(now, session.acknowledged),
            "connections_lost_total": session.losses,
            "retries_total": session.retries,
        }

    async def load(self, key: str) -> Entry | None:
        """Read the value after a ``sync``; concurrent loads of a key share one request."""
        return await self._loads.ask(key, lambda: self._load(key))

    async def _load(self, key: str) -> Entry | None:
        for _ in range(RACES_MAX):
            nonce = self._nonces.get(key) or await self._find_nonce(key)
            if nonce is None:
                return None
            path = f"{self._path(key)}/{nonce}"
            try:
                value, stat = await self._session.read(synced("get_async", path))
            except exceptions.NoNodeError:
                self._nonces.pop(key, None)
                continue
            self._nonces[key] = nonce
            return Entry(value, f"{nonce}.{stat.version}", path)
        raise OSError(errno.EBUSY, f"{key}: no stable version in {RACES_MAX} looks")

    async def swap(self, key: str, value: bytes | None, expected: str | None) -> str:
        """Create, replace or delete the value, each in one request or transaction."""
        if expected is not None:
            nonce, _, number = expected.partition(".")
            if not _NONCE.fullmatch(nonce) or not number.isdecimal():
                raise Conflict(f"{key}: {expected} was never its version")
            if value is None:
                return await self._delete(key, nonce, int(number))
            return await self._replace(key, value, nonce, int(number))
        if value is not None:
            return await self._create(key, value)
        if await self._find_nonce(key) is not None:
            raise Conflict(f"{key}: expected to be absent")
        return f"{_new_nonce()}.0"

    async def keys(self, prefix: str) -> list[str]:
        """List the keys with a value; nodes without a value are removed."""
        found = [key for key in await self._children(self._root) if key.startswith(prefix)]
        return [key for key in found if await self._is_there(key)]

    async def changes(self, key: str) -> AsyncIterator[None]:
        """Wake by a watch that all followers of the key share, and when the connection breaks."""
        with self._session.bell() as bell, self._following(key, bell) as followers:
            while True:
                bell.wait_for_next()
                if await self._watches.ask(key, lambda: self._watch(key, followers)):
                    yield
                    await bell.rung()
                    if not self._session.connected:
                        yield  # The follower must learn that no server can be asked now.

    @contextlib.contextmanager
    def _following(self, key: str, bell: Bell) -> Iterator[Followers]:
        followers = self._followers.setdefault(key, Followers())
        followers.bells.add(bell)
        try:
            yield followers
        finally:
            followers.bells.discard(bell)

    async def _watch(self, key: str, followers: Followers) -> bool:
        """Watch the node that a change of a key touches; False if it changed meanwhile."""
        session, path, ring = self._session, self._path(key), followers.ring
        try:
            nonce = self._nonces.get(key) or await self._find_nonce(key)
        except CorruptDataError:  # `load` reports the damage; a person may repair it.
            return await self._watch_below(path, ring)
        watched = f"{path}/{nonce}" if nonce else path
        there = await session.read(methodcaller("exists_async", watched, ring))
        if (there is None) == (nonce is None):
            return True
        self._nonces.pop(key, None)
        return nonce is None and await self._watch_below(path, ring)

    async def _watch_below(self, path: str, ring: Callable[[WatchedEvent], None]) -> bool:
        """Watch a key's node that a person has damaged; False if it is sound or absent."""
        try:
            names = await self._session.read(methodcaller("get_children_async", path, watch=ring))
        except exceptions.NoNodeError:
            return False
        return sum(1 for name in names if _NONCE.fullmatch(name)) != 1

    async def _children(self, path: str) -> list[str]:
        """Return the unquoted names of a node's children, sorted."""
        try:
            names = await self._session.read(synced("get_children_async", path))
        except exceptions.NoNodeError:
            return []
        return sorted(map(unquoted, names))

    def _path(self, key: str) -> str:
        return f"{self._root}/{quoted(key)}"

    async def _find_nonce(self, key: str) -> str | None:
        """Return the nonce of a key; None if the key is absent or its node has no child."""
        path = self._path(key)
        try:
            names = await self._session.read(synced("get_children_async", path))
        except exceptions.NoNodeError:
            return None
        if not names:
            return None
        nonces: list[str] = [name for name in names if _NONCE.fullmatch(name)]
        if len(nonces) != 1:
            raise CorruptDataError(
                f"register entry {key}: znode {path} must have one value below it, and has "
                f"{len(nonces)}"
            )
        return nonces[0]

    async def _is_there(self, key: str) -> bool:
        """Return whether a key has a value; remove its node if a person deleted the value.

        A key with a nonce is never created again, so no later write would remove the node.
        """
        path = self._path(key)
        stat = await self._session.read(methodcaller("exists_async", path))
        if stat is None or stat.numChildren:
            return stat is not None
        # This never deletes a value: ZooKeeper does not delete a node that has children.
        if await self._transact([("delete", path)]) is None:
            await self._prune(self._root)
        return False

    async def _create(self, key: str, value: bytes) -> str:
        path, nonce = self._path(key), _new_nonce()
        anew: list[Step] = [("create", path, b""), ("create", f"{path}/{nonce}", value)]
        steps = anew
        for _ in range(RACES_MAX):
            problem = await self._transact(steps)
            if problem is None:
                self._nonces[key] = nonce
                return f"{nonce}.0"
            if isinstance(problem, exceptions.NodeExistsError):
                # A node without a child is replaced; one with a value is not deleted.
                steps = [("delete", path), *anew]
                continue
            if isinstance(problem, exceptions.NotEmptyError):
                raise Conflict(f"{key}: expected to be absent")
            if not isinstance(problem, exceptions.NoNodeError):
                raise self._session.understood(problem)
            steps = anew
            await self._make(self._root)
        raise OSError(errno.EBUSY, f"{self._root} was removed {RACES_MAX} times meanwhile")

    async def _replace(self, key: str, value: bytes, nonce: str, number: int) -> str:
        path = f"{self._path(key)}/{nonce}"
        try:
            stat = await self._session.write(methodcaller("set_async", path, value, number))
        except (exceptions.NoNodeError, exceptions.BadVersionError) as error:
            raise Conflict(f"{key}: expected version {nonce}.{number}") from error
        return f"{nonce}.{stat.version}"

    async def _delete(self, key: str, nonce: str, number: int) -> str:
        path = self._path(key)
        problem = await self._transact([("delete", f"{path}/{nonce}", number), ("delete", path)])
        self._nonces.pop(key, None)
        if isinstance(problem, (exceptions.NoNodeError, exceptions.BadVersionError)):
            raise Conflict(f"{key}: expected version {nonce}.{number}")
        if isinstance(problem, exceptions.NotEmptyError):
            raise CorruptDataError(
                f"register entry {key}: znode {path} cannot be deleted, as there are nodes below "
                "it that are not ours"
            )
        if problem is not None:
            raise self._session.understood(problem)
        await self._prune(self._root)
        return f"{nonce}.{number + 1}"

    async def _make(self, path: str, then: Callable[[list[str]], list[Step]] | None = None) -> None:
        """Create a node and its missing parents in one transaction.

        ``then`` takes the new nodes and returns further steps of the same transaction.
        """
        for _ in range(RACES_MAX):
            missing = await self._missing(path)
            if not missing:
                return
            made: list[Step] = [("create", node, OURS) for node in missing]
            problem = await self._transact([*made, *(then(missing) if then else [])])
            if problem is None:
                return
            if not isinstance(problem, (exceptions.NodeExistsError, exceptions.NoNodeError)):
                raise self._session.understood(problem)
        raise OSError(errno.EBUSY, f"{path} came and went {RACES_MAX} times meanwhile")

    async def _missing(self, path: str) -> list[str]:
        """Return which of a node and its parents are missing, the topmost first."""
        ends = [*(match.start() for match in re.finditer("/", path)), len(path)][1:]
        return [
            path[:end]
            for end in ends
            if not await self._session.read(methodcaller("exists_async", path[:end]))
        ]

    async def _prune(self, path: str) -> None:
        """Remove a node and its parents, as far as they are empty and were created by `_make`."""
        empty: list[str] = []
        while path:
            try:
                data, stat = await self._session.read(methodcaller("get_async", path))
            except exceptions.NoNodeError:
                data, stat = OURS, None
            except PermissionError:
                break
            if data != OURS or (stat and stat.numChildren > bool(empty)):
                break
            if stat:
                empty.append(path)
            path = path.rpartition("/")[0]
        while empty:
            problem = await self._transact([("delete", node) for node in empty])
            if not isinstance(problem, exceptions.NoAuthError):
                return  # Another process uses or removes one: the last one removes the rest.
            empty.pop()  # We may have no right to remove the topmost node.

    async def _transact(self, steps: list[Step]) -> exceptions.KazooException | None:
        """Execute all steps or none; return the reason if none, else None."""

        def request(client: Any) -> Any:
            multi = client.transaction()
            for verb, *arguments in steps:
                getattr(multi, verb)(*arguments)
            return multi.commit_async()

        return _problem(await self._session.write(request))


def _problem(results: list[Any]) -> exceptions.KazooException | None:
    """Return the error that caused a transaction's refusal; all other errors follow from it."""
    problems = [one for one in results if isinstance(one, exceptions.KazooException)]
    for problem in problems:
        if not isinstance(problem, (exceptions.RolledBackError, exceptions.RuntimeInconsistency)):
            return problem
    return problems[0] if problems else None


def _new_nonce() -> str:
    return uuid.uuid4().hex[:12]


def _ago(now: float, at: float | None) -> float | None:
    return None if at is None else round(now - at, 3)


# --- one request for all concurrent callers of this process that ask for a key --------------------
#
# A change may wake a thousand retrievals of one leader. A caller that comes while a request is
# under way waits for the next request, which is sent after the call: each caller sees all that was
# true when it called.


T = TypeVar("T")

_Which = tuple[asyncio.AbstractEventLoop, str]


class Sharing(Generic[T]):
    """Requests by key; for each key at most one is under way and one more waits."""

    def __init__(self) -> None:
        self._running: dict[_Which, asyncio.Task[T]] = {}
        self._waiting: dict[_Which, asyncio.Task[T]] = {}

    async def ask(self, key: str, request: Callable[[], Awaitable[T]]) -> T:
        """Return the answer of a request that is sent after this call; raises its errors."""
        which = (asyncio.get_running_loop(), key)
        found = self._waiting.get(which)
        if found is None:
            found = asyncio.ensure_future(self._send(which, self._running.get(which), request))
            found.add_done_callback(_looked_at)
            places = self._waiting if which in self._running else self._running
            places[which] = found
        # A cancelled caller does not cancel the shared request.
        return await asyncio.shield(found)

    async def _send(
        self,
        which: _Which,
        before: asyncio.Task[T] | None,
        request: Callable[[], Awaitable[T]],
    ) -> T:
        if before:
            await asyncio.wait({before})
            self._running[which] = self._waiting.pop(which)
        try:
            return await request()
        finally:
            if which not in self._waiting:
                self._running.pop(which, None)


class Followers:
    """The bells of all followers of a key: kazoo holds one watcher, and no register."""

    def __init__(self) -> None:
        self.bells: set[Bell] = set()

    def ring(self, _: WatchedEvent | None = None) -> None:
        """Wake all followers."""
        for bell in tuple(self.bells):
            bell.ring()


def _looked_at(task: asyncio.Task[T]) -> None:
    """Retrieve an error that no caller awaited, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
