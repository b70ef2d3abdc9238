"""Cluster managers: what a Spark cluster has, which applications of ours it runs, how one is ended.

One file for each kind of ``spark.master``; a new kind is a new file and a line in `manager_of`.
All of them ask from within the driver's JVM, with or without a SparkContext in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from py4j.protocol import Py4JError

from understudy.core.executors import Application, Capacity, Tag
from understudy.spark.managers import standalone, yarn


class ClusterManager(Protocol):
    """What carries executors."""

    def answers(self) -> bool:
        """Say whether the cluster can be reached, as far as that can be asked."""
        ...

    def capacity(self) -> Capacity | None:
        """Return what the cluster has; None where it does not say, or does not answer."""
        ...

    def conf(self, tag: Tag) -> dict[str, str]:
        """Return the settings that mark a Spark application as ours."""
        ...

    def applications(self) -> list[Application]:
        """Return the applications with a tag of ours that the manager believes to be alive."""
        ...

    def end(self, application_id: str) -> None:
        """End an application whose driver is dead, with its executors."""
        ...

    def may_start_again(self, error: Py4JError) -> bool:
        """Say whether a context did not start by chance alone, and the next one may."""
        ...


class Unknown:
    """A cluster that is not asked: executors are marked by their environment, and that is all."""

    def answers(self) -> bool:
        """See `ClusterManager.answers`."""
        return True

    def capacity(self) -> Capacity | None:
        """See `ClusterManager.capacity`."""
        return None

    def conf(self, tag: Tag) -> dict[str, str]:
        """See `ClusterManager.conf`."""
        return {standalone.TAG_SETTING: tag.encode()}

    def applications(self) -> list[Application]:
        """See `ClusterManager.applications`."""
        return []

    def end(self, application_id: str) -> None:
        """See `ClusterManager.end`."""

    def may_start_again(self, error: Py4JError) -> bool:
        """See `ClusterManager.may_start_again`."""
        return False


_KINDS: dict[str, Callable[[Any, Mapping[str, str]], ClusterManager]] = {
    "spark://": standalone.Standalone,
    "yarn": yarn.Yarn,
}


def manager_of(jvm: Any, conf: Mapping[str, str]) -> ClusterManager:
    """Return the manager of ``spark.master``; ``jvm`` is Py4J's view of the driver's JVM."""
    master = conf.get("spark.master", "")
    for prefix, kind in _KINDS.items():
        if master.startswith(prefix):
            return kind(jvm, conf)
    return Unknown()
