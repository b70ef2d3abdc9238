"""Spark's standalone cluster: its Masters, asked as Spark's own clients ask them.

The request is the one that the Master's page is made of; so the answer is there whether or not the
page is served, and with ``spark.authenticate`` too.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JError

from understudy.core.executors import Application, Capacity, Holder, Tag

TAG_VARIABLE = "UNDERSTUDY_TAG"

TAG_SETTING = f"spark.executorEnv.{TAG_VARIABLE}"
"""Executors carry the tag in their environment, and the Master in the application's description."""

ASK_S = 5
"""A Master answers in milliseconds; one that is frozen must not hold up a driver for minutes."""

ALIVE = "ALIVE"

_log = logging.getLogger(__name__)


class Standalone:
    """The Masters of one ``spark://`` address, of which one leads."""

    def __init__(self, jvm: Any, conf: Mapping[str, str]) -> None:
        self._jvm = jvm
        hosts = conf["spark.master"].removeprefix("spark://")
        self._masters = [f"spark://{host}" for host in hosts.split(",")]
        self._host = conf.get("spark.driver.bindAddress") or conf.get("spark.driver.host", "")
        self._env: Any = None

    def capacity(self) -> Capacity | None:
        """See `ClusterManager.capacity`."""
        found = self._ask()
        if found is None:
            return None
        _, state = found
        workers = [one for one in state.workers() if one.state().toString() == ALIVE]
        return Capacity(
            cores=sum(one.cores() for one in workers),
            free=sum(one.cores() - one.coresUsed() for one in workers),
            holders=tuple(
                Holder(one.id(), one.desc().name(), one.coresGranted())
                for one in state.activeApps()
            ),
        )

    def conf(self, tag: Tag) -> dict[str, str]:
        """See `ClusterManager.conf`."""
        return {TAG_SETTING: tag.encode()}

    def applications(self) -> list[Application]:
        """See `ClusterManager.applications`."""
        found = self._ask()
        if found is None:
            return []
        return [
            Application(one.id(), one.desc().name(), tag)
            for one in found[1].activeApps()
            if (tag := _tag_of(one.desc().command().environment()))
        ]

    def end(self, application_id: str) -> None:
        """See `ClusterManager.end`: as if its driver had said that it goes."""
        if found := self._ask():
            messages = self._jvm.org.apache.spark.deploy
            unregister = getattr(messages, "DeployMessages$UnregisterApplication")
            found[0].send(unregister(application_id))

    def _ask(self) -> tuple[Any, Any] | None:
        """Return the Master that leads, and its state; None where none answers."""
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
        """Return our own end of Spark's RPC: it needs no SparkContext, and outlives each."""
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


def _module(companion: Any) -> Any:
    return getattr(companion, "MODULE$")


def _tag_of(environment: Any) -> Tag | None:
    found = environment.get(TAG_VARIABLE)
    return Tag.decode(found.get()) if found.isDefined() else None
