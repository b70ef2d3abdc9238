"""Spark's standalone cluster: queries its Masters as Spark's own clients and browsers do.

A Master's answer to a client lists workers and applications, but not what is in use: Spark does not
send those fields. It lists dead workers too, for a time, and does not say which. The Master's web
page has all that, and each worker's page names its address. Without web pages, only the
workers' cores and memory are known: of those that still accept connections.
"""

from __future__ import annotations

import json
import logging
import socket
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from http.client import HTTPException
from typing import Any, TypeVar

from py4j.protocol import Py4JError

from understudy.core.executors import (
    ActiveApplication,
    Capacity,
    CoreHolder,
    Tag,
    WorkerSize,
)

TAG_VARIABLE = "UNDERSTUDY_TAG"

TAG_SETTING = f"spark.executorEnv.{TAG_VARIABLE}"
"""Puts the tag into the executors' environment, and so into the application's description."""

ASK_S = 5
"""Timeout of a query: a Master answers in milliseconds; a frozen one must not block a driver."""

WORKERS_AT_ONCE, WORKER_S, WORKERS_S = 32, 1.0, 5.0
"""How many workers are asked at the same time; how long one may take, and how long all together.
Dead ones are listed like others, and those of a lost host do not even refuse."""

ALIVE = "ALIVE"

K = TypeVar("K")
V = TypeVar("V")

_log = logging.getLogger(__name__)


class Standalone:
    """The Masters of one ``spark://`` URL, one of which leads."""

    def __init__(self, jvm: Any, conf: Mapping[str, str]) -> None:
        self._jvm = jvm
        hosts = conf["spark.master"].removeprefix("spark://")
        self._masters = [f"spark://{host}" for host in hosts.split(",")]
        self._host = conf.get("spark.driver.bindAddress") or conf.get("spark.driver.host", "")
        self._env: Any = None
        self._page: str | None = None
        """Address of the leading Master's page, once found."""

    def answers(self) -> bool:
        """Return whether a leading Master answers."""
        return self._ask() is not None

    def capacity(self, waiting: str = "") -> Capacity | None:
        """Return the capacity from the Master's page, else what the Master says of its workers."""
        page = self._read_page()
        if page is not None:
            return Capacity(
                page["cores"],
                page["cores"] - page["coresused"],
                tuple(
                    CoreHolder(one["id"], one["name"], one["cores"]) for one in page["activeapps"]
                ),
                tuple(
                    WorkerSize(one["cores"], one["memory"])
                    for one in page["workers"]
                    if one["state"] == ALIVE
                ),
            )
        if found := self._ask():
            sizes = _sizes_of(found[1].workers())
            return Capacity(sum(one.cores for one in sizes), None, workers=sizes)
        return None

    def conf(self, tag: Tag) -> dict[str, str]:
        """Put the tag into the executors' environment."""
        return {TAG_SETTING: tag.encode()}

    def applications(self) -> list[ActiveApplication]:
        """Return the Master's active applications that carry our tag."""
        found = self._ask()
        if found is None:
            return []
        return [
            ActiveApplication(one.id(), one.desc().name(), tag)
            for one in found[1].activeApps()
            if (tag := _tag_of(one.desc().command().environment()))
        ]

    def end(self, application_id: str) -> None:
        """Unregister an application in place of its dead driver."""
        if found := self._ask():
            messages = self._jvm.org.apache.spark.deploy
            unregister = getattr(messages, "DeployMessages$UnregisterApplication")
            found[0].send(unregister(application_id))

    def may_start_again(self, error: Py4JError) -> bool:
        """See `ClusterManager.may_start_again`."""
        return False

    def _read_page(self) -> dict[str, Any] | None:
        """Return the content of the leading Master's page; None if it is not served."""
        if self._page is None:
            self._page = self._find_page()
        if self._page is None:
            return None
        try:
            page = _read_json(self._page)
        except (OSError, ValueError) as error:
            _log.debug("%s does not answer: %s", self._page, error)
            self._page = None
            return None
        if page.get("status") == ALIVE:
            return page
        self._page = None  # Another Master leads.
        return None

    def _find_page(self) -> str | None:
        found = self._ask()
        pages = [one.webUiAddress() for one in found[1].workers()] if found else []
        return next((page for _, page in _ask_workers(_masters_page, pages) if page), None)

    def _ask(self) -> tuple[Any, Any] | None:
        """Return the leading Master and its state; None if none answers."""
        for master in self._masters:
            try:
                answer = self._ask_one(master)
            except Py4JError as error:
                _log.debug("%s does not answer: %s", master, error)
                continue
            if answer[1].status().toString() == ALIVE:
                return answer
        return None

    def _ask_one(self, master: str) -> tuple[Any, Any]:
        spark = self._jvm.org.apache.spark
        address = spark.rpc.RpcAddress.fromSparkURL(master)
        leader = self._rpc().setupEndpointRef(address, "Master")
        request = getattr(spark.deploy, "DeployMessages$RequestMasterState$")
        anything = _module(getattr(self._jvm.scala.reflect, "ClassTag$")).Any()
        return leader, leader.askSync(_module(request), anything)

    def _rpc(self) -> Any:
        """Return our own endpoint of Spark's RPC, which needs no SparkContext and outlives each."""
        if self._env is None:
            spark = self._jvm.org.apache.spark
            conf = spark.SparkConf()
            for key in ("askTimeout", "lookupTimeout"):
                conf.set(f"spark.rpc.{key}", f"{ASK_S}s")
            make = spark.SecurityManager
            defaults = [getattr(make, f"$lessinit$greater$default${n}")() for n in (2, 3)]
            security = make(conf, *defaults)
            host = self._host or "127.0.0.1"
            self._env = spark.rpc.RpcEnv.create("understudy", host, 0, conf, security, True)
        return self._env


def _ask_workers(ask: Callable[[K], V], keys: Sequence[K]) -> Iterator[tuple[K, V]]:
    """Yield each worker's answer as it comes, as long as there is time."""
    pool = ThreadPoolExecutor(WORKERS_AT_ONCE, "understudy-workers")
    try:
        asked = {pool.submit(ask, key): key for key in keys}
        for answer in as_completed(asked, WORKERS_S):
            yield asked[answer], answer.result()
    except TimeoutError:
        _log.debug("not all of %d workers answered within %g s", len(keys), WORKERS_S)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _masters_page(worker: str) -> str:
    """Return the address of the Master's page by a worker's page; empty if that does not answer."""
    try:
        return str(_read_json(worker, WORKER_S)["masterwebuiurl"])
    except (OSError, ValueError, KeyError, HTTPException) as error:
        _log.debug("%s does not answer: %s", worker, error)
        return ""


def _sizes_of(workers: Iterable[Any]) -> tuple[WorkerSize, ...]:
    """Return what the workers have that accept connections; if none does, what all have.

    A firewall may be between them and us: Spark's drivers do not connect to workers.
    """
    sizes = {(one.host(), one.port()): WorkerSize(one.cores(), one.memory()) for one in workers}
    alive = [sizes[place] for place, accepts in _ask_workers(_accepts, list(sizes)) if accepts]
    return tuple(alive or sizes.values())


def _accepts(place: tuple[str, int]) -> bool:
    try:
        socket.create_connection(place, WORKER_S).close()
    except OSError:
        return False
    return True


def _read_json(page: str, wait_s: float = ASK_S) -> dict[str, Any]:
    """Read a web page of Spark's as JSON; raises ``OSError`` or ``ValueError``."""
    with _OPENER.open(f"{page.rstrip('/')}/json/", timeout=wait_s) as answer:
        found = json.load(answer)
    if not isinstance(found, dict):
        raise ValueError(f"{page} is no page of Spark")
    return found


_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Opens URLs without a proxy: the pages are inside the cluster's network."""


def _module(companion: Any) -> Any:
    return getattr(companion, "MODULE$")


def _tag_of(environment: Any) -> Tag | None:
    found = environment.get(TAG_VARIABLE)
    return Tag.decode(found.get()) if found.isDefined() else None
