"""The ZooKeeper backend: a register of znodes, sessions, and the latch for elections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy.config.backends import Backend, Patience, Place
from understudy.config.option import Option
from understudy.ha.backends.zookeeper import options

if TYPE_CHECKING:
    from understudy.config import Configuration

__all__ = ["BACKEND"]

_OWN_LAYOUT = f"the register has its own layout below {options.ZK_ROOT.key}"
_NO_JAAS = "use high-availability.zookeeper.client.sasl.*"


def _session_s(configuration: Configuration) -> float:
    return configuration.get(options.ZK_SESSION_TIMEOUT)


def _patience(configuration: Configuration) -> Patience:
    return Patience(
        bound_s=configuration.get(options.ZK_CONNECTION_TIMEOUT),
        key=options.ZK_CONNECTION_TIMEOUT.key,
        pause_max_s=configuration.get(options.ZK_RETRY_WAIT),
    )


def _place(configuration: Configuration) -> Place:
    servers = (
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        for host, port in configuration.get(options.ZK_QUORUM)
    )
    return Place(servers=tuple(sorted(servers)), path=configuration.get(options.ZK_ROOT))


BACKEND = Backend(
    register="understudy.ha.backends.zookeeper.register:open_register",
    options=tuple(value for value in vars(options).values() if isinstance(value, Option)),
    renamed={
        "high-availability.zookeeper.path.namespace": "high-availability.cluster-id",
        "recovery.zookeeper.path.namespace": "high-availability.cluster-id",
        "high-availability.zookeeper.storageDir": "high-availability.storageDir",
        "recovery.zookeeper.storageDir": "high-availability.storageDir",
        "recovery.zookeeper.quorum": options.ZK_QUORUM.key,
        "recovery.zookeeper.path.root": options.ZK_ROOT.key,
        "recovery.zookeeper.client.session-timeout": options.ZK_SESSION_TIMEOUT.key,
        "recovery.zookeeper.client.connection-timeout": options.ZK_CONNECTION_TIMEOUT.key,
        "recovery.zookeeper.client.retry-wait": options.ZK_RETRY_WAIT.key,
        "recovery.zookeeper.client.max-retry-attempts": options.ZK_RETRIES.key,
    },
    without_meaning={
        "high-availability.zookeeper.client.max-close-wait": "a session is closed within a second",
        "high-availability.zookeeper.client.max-retry-wait": f"use {options.ZK_RETRY_WAIT.key}",
        "high-availability.zookeeper.client.simulated-session-expiration-percent": (
            "a session's end is judged by the clock of its owner"
        ),
        "high-availability.zookeeper.path.applications": _OWN_LAYOUT,
        "high-availability.zookeeper.path.execution-plans": _OWN_LAYOUT,
        "high-availability.zookeeper.path.jobgraphs": _OWN_LAYOUT,
        "zookeeper.sasl.disable": _NO_JAAS,
        "zookeeper.sasl.login-context-name": _NO_JAAS,
    },
    check=options.check,
    session_s=_session_s,
    patience=_patience,
    place=_place,
    example={options.ZK_QUORUM.key: f"HOST:{options.PORT}"},
)
