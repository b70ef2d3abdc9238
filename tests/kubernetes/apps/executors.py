"""A pod in which an attempt's driver dies, and the next attempt's driver begins.

``executors.py NUMBER`` is the driver of one attempt, which prints a sum that its executor has made.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

from understudy.core.executors import AssignedAttempt, Launch, Tag
from understudy.spark.defaults import session_conf
from understudy.spark.session import SparkSessions

FILES = f"{os.environ['POD_ROOT']}/var/run/secrets/kubernetes.io/serviceaccount"
"""Where a real kubelet mounts them, Spark finds them by itself."""

SETTINGS = {
    "spark.master": "k8s://https://{KUBERNETES_SERVICE_HOST}:{KUBERNETES_SERVICE_PORT}".format(
        **os.environ
    ),
    "spark.kubernetes.authenticate.caCertFile": f"{FILES}/ca.crt",
    "spark.kubernetes.authenticate.oauthTokenFile": f"{FILES}/token",
    "spark.kubernetes.executor.request.cores": "100m",
    "spark.executor.instances": "1",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
}


def drive(attempt: int) -> None:
    """Run a job on executors, and stay."""
    scratch = tempfile.mkdtemp()
    conf = session_conf(SETTINGS, scratch, "flights")
    sessions = SparkSessions()
    sessions.start(Launch(conf, scratch, tag=Tag("cluster", "run", "", 0)))
    tag = Tag("cluster", "run", "job", attempt, f"driver-{attempt}")
    sessions.open(AssignedAttempt(tag, "delays", "flights"))
    assert sessions._root is not None
    numbers = sessions._root.sparkContext.parallelize(range(10), 2)
    print(f"attempt {attempt}: {numbers.map(lambda one: 2 * one).sum()}", flush=True)
    time.sleep(600)


if len(sys.argv) > 1:
    drive(int(sys.argv[1]))
else:
    for number in (1, 2):
        child = subprocess.Popen(
            [sys.executable, __file__, str(number)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        print(child.stdout.readline(), end="", flush=True)
        if number == 1:
            child.kill()
    child.wait()
