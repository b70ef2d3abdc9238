"""Cluster managers: a Spark cluster's capacity, our applications on it, and how to end one.

One file for each kind of ``spark.master``; a new kind is a new file and a line in ``_KINDS``. All
of them query from within the driver's JVM, with or without a SparkContext in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from py4j.protocol import Py4JError

from understudy.core.executors import ActiveApplication, Capacity, Tag
from understudy.spark.managers import kubernetes, standalone, yarn


class ClusterManager(Protocol):
    """The interface to a cluster that runs executors."""

    def answers(self) -> bool:
        """Return whether the cluster is reachable; True if that cannot be checked."""
        ...

    def capacity(self, waiting: str = "") -> Capacity | None:
        """Return the cluster's capacity; None if the cluster does not report it or answer.

        With the id of an application that waits for executors, it names who holds the cores; else
        it may not, for that can cost a query for each application.
        """
        ...

    def conf(self, tag: Tag) -> dict[str, str]:
        """Return the settings that mark a Spark application as ours."""
        ...

    def applications(self) -> list[ActiveApplication]:
        """Return the applications with our tag that the manager considers alive."""
        ...

    def end(self, application_id: str) -> None:
        """End an application whose driver is dead, including its executors."""
        ...

    def may_start_again(self, error: Py4JError) -> bool:
        """Say whether a context did not start by chance alone, and the next one may."""
        ...


class Unknown:
    """A cluster that is never queried: only the executors' environment carries the tag."""

    def answers(self) -> bool:
        """Assume that the cluster is reachable."""
        return True

    def capacity(self, waiting: str = "") -> Capacity | None:
        """Return None: the capacity is unknown."""
        return None

    def conf(self, tag: Tag) -> dict[str, str]:
        """Put the tag into the executors' environment."""
        return {standalone.TAG_SETTING: tag.encode()}

    def applications(self) -> list[ActiveApplication]:
        """Return no applications: they cannot be listed."""
        return []

    def end(self, application_id: str) -> None:
        """Do nothing: the cluster takes no requests."""

    def may_start_again(self, error: Py4JError) -> bool:
        """See `ClusterManager.may_start_again`."""
        return False


_KINDS: dict[str, Callable[[Any, Mapping[str, str]], ClusterManager]] = {
    "spark://": standalone.Standalone,
    "yarn": yarn.Yarn,
    "k8s://": kubernetes.Kubernetes,
}


def manager_of(jvm: Any, conf: Mapping[str, str]) -> ClusterManager:
    """Return the manager of ``spark.master``; ``jvm`` is Py4J's view of the driver's JVM."""
    master = conf.get("spark.master", "")
    for prefix, kind in _KINDS.items():
        if master.startswith(prefix):
            return kind(jvm, conf)
    return Unknown()
