"""What Spark on Kubernetes is told in a pod, and the program of an executor there."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from understudy.spark.executor import command, without_vector_module
from understudy.spark.pods import pod_settings

POD = {
    "POD_NAME": "flights-taskmanager-7-1",
    "POD_NAMESPACE": "flights",
    "POD_IP": "10.1.2.3",
    "KUBERNETES_SERVICE_HOST": "10.0.0.1",
}
MASTER = {"spark.master": "k8s://https://kubernetes.default.svc:443"}
EXPECTED = {
    "spark.driver.host": "10.1.2.3",
    "spark.kubernetes.namespace": "flights",
    "spark.kubernetes.driver.pod.name": "flights-taskmanager-7-1",
}


@pytest.mark.parametrize(
    ("conf", "environment", "expected"),
    [
        (MASTER, POD, EXPECTED),
        ({"spark.master": "k8s://https://10.0.0.1"}, POD, EXPECTED),
        ({"spark.master": "k8s://10.0.0.1:6443"}, POD, EXPECTED),
        ({"spark.master": "k8s://https://kubernetes.default.svc.cluster.local"}, POD, EXPECTED),
        # Another cluster, or no pod.
        ({"spark.master": "k8s://https://elsewhere.example.org"}, POD, {}),
        ({"spark.master": "spark://10.0.0.1:7077"}, POD, {}),
        (MASTER, {}, {}),
        # A person's setting counts; a pod of another namespace cannot be the owner.
        (
            {**MASTER, "spark.driver.host": "me"},
            POD,
            {key: EXPECTED[key] for key in [*EXPECTED][1:]},
        ),
        (
            {**MASTER, "spark.kubernetes.namespace": "spark"},
            POD,
            {"spark.driver.host": "10.1.2.3"},
        ),
    ],
)
def test_a_driver_in_a_pod_is_known_to_its_executors(
    conf: dict[str, str], environment: dict[str, str], expected: dict[str, str], tmp_path: Path
) -> None:
    assert expected == pod_settings(conf, environment, str(tmp_path))


def test_executors_run_the_image_of_the_pod(tmp_path: Path) -> None:
    environment = {**POD, "UNDERSTUDY_IMAGE": "example/flights:1"}

    found = pod_settings(MASTER, environment, str(tmp_path))

    template = json.loads(Path(found["spark.kubernetes.executor.podTemplateFile"]).read_text())
    (container,) = template["spec"]["containers"]
    assert "example/flights:1" == found["spark.kubernetes.container.image"]
    assert sys.executable == found["spark.pyspark.python"]
    assert "understudy.spark.executor" == container["command"][-1]
    assert template["spec"]["securityContext"]["runAsNonRoot"]


@pytest.mark.parametrize("key", ["container.image", "executor.container.image"])
def test_another_image_has_its_own_program(key: str, tmp_path: Path) -> None:
    conf = {**MASTER, f"spark.kubernetes.{key}": "example/spark"}
    environment = {**POD, "UNDERSTUDY_IMAGE": "example/flights:1"}

    assert EXPECTED == pod_settings(conf, environment, str(tmp_path))


def test_an_executor_starts_as_spark_says_in_its_environment() -> None:
    environment = {
        "SPARK_JAVA_OPT_10": "-Dten",
        "SPARK_JAVA_OPT_2": "-Dtwo",
        "SPARK_JAVA_OPT_0": "--add-modules=jdk.incubator.vector",
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_CONF_DIR": "/opt/spark/conf",
        "SPARK_DRIVER_URL": "spark://driver",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_EXECUTOR_POD_IP": "10.1.2.4",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "exec-1",
    }

    found = command(environment, "/spark")

    memory = ["-Xms512m", "-Xmx512m"]
    assert ["--add-modules=jdk.incubator.vector", "-Dtwo", "-Dten", *memory] == found[:5]
    assert ["-cp", "/opt/spark/conf:/spark/jars/*:."] == found[5:7]
    assert ["--driver-url", "spark://driver", "--executor-id", "1"] == found[8:12]
    assert ["--podName", "exec-1"] == found[-2:]
    assert found[1:] == without_vector_module(found)
