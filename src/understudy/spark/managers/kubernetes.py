"""Kubernetes: finds and deletes our executors through Spark's own client in the driver's JVM.

An application's executors are pods with its id as a label; the tag is an annotation of each. They
belong to the driver's pod, if Spark has been told which that is, and go with that. But a driver is
one process of many in a TaskManager's pod: those of a dead driver are deleted like orphans of other
clusters.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from py4j.protocol import Py4JError

from understudy.core.executors import ActiveApplication, Capacity, Tag
from understudy.spark.pods import MASTER, NAMESPACE

ANNOTATION = "understudy/tag"
LABELS = "understudy/cluster", "understudy/job", "understudy/attempt"
"""For people, and to find our executors among others: ``kubectl get pods -l understudy/job=…``."""

APPLICATION, EXECUTORS = "spark-app-selector", "spark-role=executor"
"""Spark's label with the application's id, and what its executors are selected by."""

DEFAULT_NAMESPACE = "default"
AUTHENTICATION = "spark.kubernetes.authenticate"
"""Prefix of the settings that say who a driver is, in client mode."""

_log = logging.getLogger(__name__)


class Kubernetes:
    """The cluster that ``spark.master`` names, in one namespace."""

    def __init__(self, jvm: Any, conf: Mapping[str, str]) -> None:
        self._jvm = jvm
        self._settings = conf
        self._namespace = conf.get(NAMESPACE, DEFAULT_NAMESPACE)
        self._client: Any = None

    def answers(self) -> bool:
        """Return whether the API server lists our executors."""
        try:
            self._ours(self._asked().pods())
        except Py4JError as error:
            _log.warning("%s does not answer: %s", self._settings["spark.master"], _message(error))
            return False
        return True

    def capacity(self, waiting: str = "") -> Capacity | None:
        """Return None: nodes may be added, and who holds the others is not ours to see."""
        return None

    def conf(self, tag: Tag) -> dict[str, str]:
        """Mark the executors' pods."""
        values = tag.cluster, tag.job_id, str(tag.attempt)
        labels = zip(LABELS, values, strict=True)
        return {
            f"spark.kubernetes.executor.annotation.{ANNOTATION}": tag.encode(),
            **{f"spark.kubernetes.executor.label.{name}": value for name, value in labels},
        }

    def applications(self) -> list[ActiveApplication]:
        """Return the applications of which there are executors, ended ones too."""
        try:
            found = self._ours(self._asked().pods())
        except Py4JError as error:
            _log.warning("the API server does not say which executors run: %s", _message(error))
            return []
        return [*{one.application_id: one for one in _applications(found)}.values()]

    def end(self, application_id: str) -> None:
        """Delete an application's executors, and their settings."""
        client = self._asked()
        for what in (client.pods(), client.configMaps()):
            try:
                mine = f"{EXECUTORS},{APPLICATION}={application_id}"
                what.inNamespace(self._namespace).withLabelSelector(mine).delete()
            except Py4JError as error:
                _log.warning("what %s left is not deleted: %s", application_id, _message(error))

    def may_start_again(self, error: Py4JError) -> bool:
        """See `ClusterManager.may_start_again`."""
        return False

    def _ours(self, pods: Any) -> Any:
        ours = f"{EXECUTORS},{LABELS[0]}"
        return pods.inNamespace(self._namespace).withLabelSelector(ours).list().getItems()

    def _asked(self) -> Any:
        """Return Spark's client, which needs no SparkContext and outlives each."""
        if self._client is None:
            spark, option = self._jvm.org.apache.spark, self._jvm.scala.Option
            conf = spark.SparkConf()
            for key, value in self._settings.items():
                conf.set(key, value)
            factory = spark.deploy.k8s.SparkKubernetesClientFactory
            kinds = getattr(spark.deploy.k8s, "SparkKubernetesClientFactory$ClientType$")
            self._client = factory.createKubernetesClient(
                self._settings["spark.master"].removeprefix(MASTER),
                option.apply(self._namespace),
                AUTHENTICATION,
                getattr(kinds, "MODULE$").Driver(),
                conf,
                option.empty(),
            )
        return self._client


def _applications(pods: Any) -> Iterator[ActiveApplication]:
    for pod in pods:
        metadata = pod.getMetadata()
        annotations = metadata.getAnnotations()
        if tag := Tag.decode(annotations.get(ANNOTATION) or ""):
            labels = metadata.getLabels()
            name = labels.get("spark-app-name") or metadata.getName()
            yield ActiveApplication(labels.get(APPLICATION), name, tag)


def _message(error: Py4JError) -> str:
    """Return the Java error's first line with its cause, without the stack trace."""
    java = getattr(error, "java_exception", None)
    if java is None:
        return str(error).partition("\n")[0]
    cause = java.getCause()
    parts = [java.getMessage(), *([cause.toString()] if cause is not None else [])]
    return ": ".join(str(one).partition("\n")[0] for one in parts)
