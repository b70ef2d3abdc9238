"""One session with a ZooKeeper ensemble: kazoo's connection, with a clock of our own.

kazoo connects, reconnects to another server and keeps the session alive. This module adds:

- how long the session certainly lives, counted from the *sending* of the last write that the quorum
  acknowledged. A ping proves nothing: a server that is cut off from the quorum answers pings.
  kazoo itself never checks for a silent server while requests are being sent;
- a limit for an unanswered request: the connection is shut down, so that another server is tried;
- no queue without a connection: a request is never sent later, when its caller has given up.

kazoo's threads only pass events to the event loops of the waiting callers.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import errno
import logging
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.states import KazooState, KeeperState, WatchedEvent
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from understudy.clock import SystemClock
from understudy.errors import ConfigurationError

CLOSE_S = 1.0
"""The longest wait for a session to close."""


HANDSHAKE_MIN_S = 0.5
"""The least time that a server gets to accept a connection and a session."""

RETRY_FIRST_S = 0.05

NO_SESSION = 0

_log = logging.getLogger(__name__)
_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.ERROR)  # This module logs each loss and return of the connection.


def written(host: str, port: int) -> str:
    """Return a server's address as text, ``host:port``."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True)
class SessionSettings:
    """How to reach the ensemble and authenticate to it."""

    servers: tuple[tuple[str, int], ...]
    session_s: float
    connection_s: float
    retry_wait_s: float = 5.0
    reads: int = 3
    """How often a read is repeated after its connection broke."""
    creator_only: bool = False
    authorization: tuple[tuple[str, str], ...] = ()
    sasl: dict[str, str] | None = None
    tls: dict[str, Any] = field(default_factory=dict)
    """Arguments of `KazooClient`: ``use_ssl``, ``ca``, ``certfile``, ``keyfile``, ..."""

    @property
    def hosts(self) -> str:
        """Return the servers' addresses, separated by commas."""
        return ",".join(written(*server) for server in self.servers)

    @property
    def handshake_s(self) -> float:
        """Return how long one server may take to accept the session."""
        return min(self.connection_s, max(HANDSHAKE_MIN_S, self.session_s / 8))


@dataclass(frozen=True, slots=True)
class SessionIdentity:
    """What another process needs to close a session: as secret as a password."""

    session: int
    password: bytes
    timeout_s: float


class Session:
    """A session, opened by the first request and again whenever the ensemble ended it.

    Requests may come from any event loop. Each raises ``OSError`` if the outcome is unknown or
    nothing was sent, kazoo's own errors for answers (``NoNodeError`` and the like), and
    `ConfigurationError` if a retry cannot help.
    """

    def __init__(self, settings: SessionSettings) -> None:
        self.settings = settings
        self.number = NO_SESSION
        """Id of the session that the ensemble granted last."""
        self.session_s = settings.session_s
        """The session timeout that the ensemble granted."""
        self.acknowledged: float | None = None
        """When the last acknowledged write of this session was sent."""
        self.opened: float | None = None
        self.losses = 0
        """How often the connection was lost."""
        self.retries = 0
        """How often a read was repeated after its connection broke."""
        self._patience_s = settings.connection_s
        """How long a request waits for a connection."""
        self._clock = SystemClock()
        self._bells: set[Bell] = set()
        self._client: _Client | None = None
        self._starting = threading.Lock()
        self._on_identity: Callable[[SessionIdentity], None] | None = None
        self._farewell: Farewell | None = None

    @property
    def connected(self) -> bool:
        """Return whether a server holds the session, as far as this process knows."""
        return self._client is not None and self._client.client_state == KeeperState.CONNECTED

    @property
    def server(self) -> str:
        """Return the address of the connected server, empty if there is none."""
        return self._client.wire.peer() if self._client and self.connected else ""

    def on_identity(self, notify: Callable[[SessionIdentity], None]) -> None:
        """Call ``notify`` in a kazoo thread: for the present session, and each later one."""
        self._on_identity = notify
        if self.connected:
            self._heard(KazooState.CONNECTED)

    def close(self) -> None:
        """End the session for good, if there is one; its ephemeral nodes disappear at once."""
        if self._farewell:
            self._farewell.send()

    @contextlib.contextmanager
    def bell(self) -> Iterator[Bell]:
        """Yield a bell that rings whenever the connection or the session changes.

        ``bell.ring`` can also be a kazoo watcher: then the bell rings for that watch too.
        """
        bell = Bell(asyncio.get_running_loop())
        self._bells.add(bell)
        try:
            yield bell
        finally:
            self._bells.discard(bell)

    async def read(self, request: Callable[[_Client], Any]) -> Any:
        """Send a request that changes nothing; repeat it if the connection breaks."""
        for _ in range(self.settings.reads):
            with contextlib.suppress(ConnectionResetError):
                return await self._call(request)
            self.retries += 1
        return await self._call(request)

    async def write(self, request: Callable[[_Client], Any]) -> Any:
        """Send a request that changes data, once; note the time of an acknowledged one."""
        number, sent_at = self.number, self._clock.now()
        result = await self._call(request)
        if self.number == number and not _refused(result):
            self.acknowledged = max(sent_at, self.acknowledged or sent_at)
        return result

    async def _call(self, request: Callable[[_Client], Any]) -> Any:
        client = await self._accepted()
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Any] = loop.create_future()

        def notify(answer: Any) -> None:
            with contextlib.suppress(RuntimeError):  # The loop may be closed by now.
                loop.call_soon_threadsafe(_settle, answered, overdue, answer)

        # Not cancelled with the caller: the server is silent even if the caller gives up early.
        overdue = loop.call_later(self.session_s / 4, client.wire.drop)
        request(client).rawlink(notify)
        try:
            return await answered
        except exceptions.KazooException as error:
            raise self.understood(error) from error

    async def _accepted(self) -> _Client:
        """Return the client once a server has accepted the session."""
        client = self._client
        if client is None:
            client = await asyncio.to_thread(self._start)
        if client.client_state == KeeperState.CONNECTED:
            return client
        with self.bell() as bell:
            try:
                async with asyncio.timeout(self._patience_s):
                    while True:
                        bell.wait_for_next()
                        if client.client_state == KeeperState.CONNECTED:
                            return client
                        if client.client_state == KeeperState.AUTH_FAILED:
                            raise self.understood(exceptions.AuthFailedError())
                        await bell.rung()
            except TimeoutError:
                # The next request fails sooner: it need not wait as long for the same result.
                self._patience_s = self.settings.handshake_s
                raise OSError(
                    errno.ETIMEDOUT,
                    f"no server of the ZooKeeper quorum {self.settings.hosts} accepts a session"
                    f"{client.wire.problem}",
                ) from None

    def _start(self) -> _Client:
        with self._starting:
            client = self._client
            if client is None:
                client = _Client(self.settings)
                # Weak references: kazoo must not keep this object alive, or nothing closes it.
                heard, granted = weakref.WeakMethod(self._heard), weakref.WeakMethod(self._granted)
                client.add_listener(lambda state: _pass_on(heard, state))
                client.wire.on_granted = lambda number, timeout_s: _pass_on(
                    granted, number, timeout_s
                )
                self._farewell = Farewell(client)
                weakref.finalize(self, self._farewell.begin)
                self._client = client  # Before the first answer, whose handler needs the client.
                client.start_async()
        return client

    def _granted(self, number: int, timeout_s: float) -> None:
        """Note a granted session before any request uses it (in a kazoo thread)."""
        if number == self.number:
            return
        if self.number != NO_SESSION:
            _log.warning("the ZooKeeper session is a new one: the last was lost")
        if timeout_s != self.settings.session_s:
            _log.info(
                "the session timeout is %g s, not %g s: the servers bound it",
                timeout_s,
                self.settings.session_s,
            )
        self.acknowledged = None
        self.opened = self._clock.now()
        self.number, self.session_s = number, timeout_s

    def _heard(self, state: str) -> None:
        """Handle a change of the connection's state (in a kazoo thread)."""
        client = self._client
        if state == KazooState.CONNECTED and client and self._on_identity:
            number, password = client.client_id
            self._on_identity(SessionIdentity(number, password, self.session_s))
        if state == KazooState.CONNECTED:
            self._patience_s = self.settings.connection_s
        if state == KazooState.SUSPENDED:
            self.losses += 1
            _log.warning("the connection to ZooKeeper (%s) is lost", self.settings.hosts)
        elif state == KazooState.CONNECTED and self.losses:
            _log.info("ZooKeeper is connected again")
        for bell in tuple(self._bells):
            bell.ring()

    def understood(self, error: exceptions.KazooException) -> Exception:
        """Translate kazoo's error into the error for callers; see `Session`."""
        if isinstance(error, exceptions.AuthFailedError):
            return ConfigurationError(
                f"the ZooKeeper quorum {self.settings.hosts} refuses who we say we are: correct "
                "high-availability.zookeeper.client.authorization or the client.sasl options"
            )
        if isinstance(error, (exceptions.NoAuthError, exceptions.InvalidACLError)):
            # A person can correct the ACL while we run: retried, as for a lost quorum.
            return PermissionError(
                errno.EACCES,
                f"the ZooKeeper quorum {self.settings.hosts} does not let us use our nodes: give "
                "high-availability.zookeeper.client.authorization what they were made with, "
                "choose client.acl to match, or correct their ACL",
            )
        if isinstance(
            error,
            (
                exceptions.NoNodeError,
                exceptions.NodeExistsError,
                exceptions.BadVersionError,
                exceptions.NotEmptyError,
            ),
        ):
            answer: Exception = error
            return answer
        if isinstance(error, exceptions.SessionExpiredError):
            return ConnectionResetError(errno.ECONNRESET, "the ZooKeeper session was lost")
        if isinstance(
            error,
            (
                exceptions.ConnectionLoss,
                exceptions.ConnectionClosedError,
                exceptions.SessionMovedError,
            ),
        ):
            return ConnectionResetError(
                errno.ECONNRESET,
                f"the connection to the ZooKeeper quorum {self.settings.hosts} broke",
            )
        return OSError(errno.EIO, f"ZooKeeper answers {type(error).__name__} {error}".strip())


class Bell:
    """Wakes one waiter of one event loop, from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._event = asyncio.Event()

    def ring(self, _: WatchedEvent | None = None) -> None:
        """Wake the waiter."""
        with contextlib.suppress(RuntimeError):  # The loop may be closed by now.
            self._loop.call_soon_threadsafe(self._event.set)

    def wait_for_next(self) -> None:
        """Clear the bell; call this before reading the state."""
        self._event.clear()

    async def rung(self) -> None:
        """Return once the bell has rung since `wait_for_next`."""
        await self._event.wait()


class _Wire(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads and sockets; keeps the socket, so that `drop` can shut it down."""

    def __init__(self, handshake_s: float) -> None:
        super().__init__()
        self.on_granted: Callable[[int, float], None] = lambda number, timeout_s: None
        self.handshake_s = handshake_s
        self.problem = ""
        """Why the last connection attempt failed."""
        self._socket: socket.socket | None = None

    def create_connection(self, *args: Any, **kwargs: Any) -> socket.socket:
        """Connect, and wait for `handshake_s` at most."""
        kwargs["timeout"] = min(kwargs["timeout"], self.handshake_s)
        try:
            self._socket = super().create_connection(*args, **kwargs)
        except OSError as error:
            self.problem = f": {error}"
            raise
        self.problem = ""
        return self._socket

    def drop(self) -> None:
        """Break the connection: kazoo then tries the next server."""
        if self._socket:
            with contextlib.suppress(OSError):
                # Not TLS's own shutdown: that detaches the socket while kazoo's thread reads it.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def peer(self) -> str:
        """Return the address of the connected server, empty if unknown."""
        if self._socket:
            with contextlib.suppress(OSError, ValueError):
                host, port, *_ = self._socket.getpeername()
                return written(host, port)
        return ""


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection loop; reports granted sessions and limits the wait for one server."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._answered_at = time.monotonic()

    def _connect(self, *server: Any) -> Any:
        # A server refuses a client that has seen newer data than the server has. An ensemble that
        # lost its data would refuse for ever. Reads use `sync`, so they return no older data.
        if time.monotonic() - self._answered_at > self.client._session_timeout / 1000:
            self.client.last_zxid = 0
        return super()._connect(*server)

    def _read_socket(self, read_timeout: float) -> Any:
        response = super()._read_socket(read_timeout)
        self._answered_at = time.monotonic()
        return response

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        wire: _Wire = self.handler
        answer = super()._invoke(min(timeout, wire.handshake_s), request, xid)
        if xid is None and answer[0].time_out > 0:
            wire.on_granted(answer[0].session_id, answer[0].time_out / 1000)
        return answer

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        """Authenticate; after a refusal raise, after a broken connection try another server."""
        try:
            super()._authenticate_with_sasl(host, timeout)
        except exceptions.AuthFailedError as error:
            if isinstance(error.__cause__, exceptions.ConnectionDropped):
                raise error.__cause__ from None
            raise
        except exceptions.SASLException as error:
            # For example, no KDC answers. Unhandled, the error would end kazoo's thread for good.
            _log.warning("SASL: %s", error.__cause__ or error)
            raise exceptions.ConnectionDropped(str(error)) from error


class _Client(KazooClient):  # type: ignore[misc]
    """kazoo's client, without its queue of requests while not connected."""

    def __init__(self, settings: SessionSettings) -> None:
        self.wire = _Wire(settings.handshake_s)
        retry = KazooRetry(
            max_tries=-1,
            delay=RETRY_FIRST_S,
            backoff=2,
            max_jitter=0.4,
            max_delay=min(settings.retry_wait_s, settings.session_s / 20),
            sleep_func=self.wire.sleep_func,
        )
        super().__init__(
            hosts=settings.hosts,
            timeout=settings.session_s,
            handler=self.wire,
            default_acl=CREATOR_ALL_ACL if settings.creator_only else OPEN_ACL_UNSAFE,
            auth_data=set(settings.authorization),
            sasl_options=settings.sasl,
            connection_retry=retry,
            command_retry=retry,
            logger=_kazoo_log,
            **settings.tls,
        )
        self._connection = _Connection(
            self, self._conn_retry.copy(), logger=_kazoo_log, sasl_options=settings.sasl
        )

    def _session_callback(self, state: str) -> None:
        # After a refusal kazoo's thread ends, and reports CLOSED at once: who waits sees why.
        if not (state == KeeperState.CLOSED and self._state == KeeperState.AUTH_FAILED):
            super()._session_callback(state)

    def _call(self, request: Any, async_object: Any) -> Any:
        if self._state == KeeperState.CONNECTING:
            async_object.set_exception(exceptions.ConnectionLoss())
            return False
        return super()._call(request, async_object)


def synced(verb: str, path: str) -> Callable[[Any], Any]:
    """Return a read of the quorum's latest data: one connection's requests run in order."""

    def request(client: Any) -> Any:
        client.sync_async(path)
        return getattr(client, verb)(path)

    return request


def _settle(answered: asyncio.Future[Any], overdue: asyncio.TimerHandle, answer: Any) -> None:
    overdue.cancel()
    if answered.done():
        return
    if answer.exception is None:
        answered.set_result(answer.value)
    else:
        answered.set_exception(answer.exception)


def _refused(result: Any) -> bool:
    """Return whether a transaction was refused: its results are then errors."""
    return isinstance(result, list) and any(isinstance(one, Exception) for one in result)


def _pass_on(method: weakref.WeakMethod[Any], *arguments: Any) -> None:
    bound = method()
    if bound:
        bound(*arguments)


class _Stoppable(Protocol):
    def stop(self) -> None: ...


class Farewell:
    """Closes a session once nobody uses it, or when the process ends.

    Then the ensemble removes the session's ephemeral nodes at once. The garbage collector may free
    a session at any moment and in any thread, even in an event loop's thread while no server
    answers. So a separate thread closes the session. Only an explicit close and the end of the
    process wait for that thread.
    """

    def __init__(self, client: _Stoppable) -> None:
        self._client = client
        self._closing = threading.Thread(
            target=self._close, name="understudy-zookeeper-close", daemon=True
        )
        _owed.add(self)

    def begin(self) -> None:
        """Begin to close the session, unless that has begun; does not wait."""
        try:
            self._closing.start()
        except RuntimeError:  # Already begun; or Python 3.12 starts no thread while it exits.
            if self._closing.ident is None:
                self._close()

    def finish(self, until: float) -> None:
        """Return once the session is closed, at monotonic time ``until`` at the latest."""
        if self._closing.ident is not None:
            self._closing.join(max(0.0, until - time.monotonic()))

    def send(self) -> None:
        """Close the session; wait for `CLOSE_S` at most."""
        self.begin()
        self.finish(time.monotonic() + CLOSE_S)

    def _close(self) -> None:
        with contextlib.suppress(Exception):  # Otherwise the session timeout ends the session.
            self._client.stop()
        _owed.discard(self)


_owed: set[Farewell] = set()


@atexit.register
def _send_all() -> None:
    owed = tuple(_owed)
    for farewell in owed:
        farewell.begin()
    until = time.monotonic() + CLOSE_S
    for farewell in owed:
        farewell.finish(until)
