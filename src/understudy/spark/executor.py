"""The program of an executor's pod with our image: becomes the JVM of the executor.

It does what ``entrypoint.sh`` of Spark's own images does, with the Java and the Spark of this
Python. Spark passes everything in the environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import NoReturn

from understudy.spark.java import VECTOR_MODULE, find_java
from understudy.spark.jvm import spark_home

MAIN_CLASS = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"

_ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}

_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")


def command(environment: Mapping[str, str], home: str) -> list[str]:
    """Return the arguments of the executor's JVM, after ``java``; ``home`` is Spark's."""
    options = {
        int(found[1]): value
        for name, value in environment.items()
        if (found := _OPTION.fullmatch(name))
    }
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    places = [
        environment.get("SPARK_CONF_DIR"),
        f"{home}/jars/*",
        *map(environment.get, ("SPARK_EXTRA_CLASSPATH", "SPARK_CLASSPATH", "HADOOP_CONF_DIR")),
        environment.get("SPARK_DIST_CLASSPATH"),
        ".",
    ]
    arguments = [[flag, environment[name]] for flag, name in _ARGUMENTS.items()]
    return [
        *(options[number] for number in sorted(options)),
        *(f"-Xms{memory}", f"-Xmx{memory}"),
        *("-cp", ":".join(one for one in places if one)),
        MAIN_CLASS,
        *(word for pair in arguments for word in pair),
    ]


def without_vector_module(options: Sequence[str]) -> list[str]:
    """Return options for a Java that lacks the module."""
    return [one for one in options if one != f"--add-modules={VECTOR_MODULE}"]


def main() -> NoReturn:
    """Become the JVM of the executor."""
    java, home = find_java(), spark_home()
    options = command(os.environ, home)
    if not java.has_vector_module:
        options = without_vector_module(options)
    environment = {**os.environ, "SPARK_HOME": home, "JAVA_HOME": str(java.home)}
    os.execve(java.program, [java.program, *options], environment)  # noqa: S606 -- no shell


if __name__ == "__main__":
    main()
