"""What Spark on Kubernetes needs to know of a driver that runs in a pod, as defaults.

Executors reach the driver at the pod's address, belong to the pod, and are in its namespace. They
run the pod's own image: `executor` is their program there. A person's setting always counts.

This module imports nothing of Spark.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

MASTER = "k8s://"
NAMESPACE = "spark.kubernetes.namespace"
IMAGE = "spark.kubernetes.container.image"
EXECUTOR_IMAGE = "spark.kubernetes.executor.container.image"
TEMPLATE = "spark.kubernetes.executor.podTemplateFile"

NAME_VARIABLE, NAMESPACE_VARIABLE, ADDRESS_VARIABLE = "POD_NAME", "POD_NAMESPACE", "POD_IP"
"""What each pod of a cluster has in its environment, as others name it, too."""

IMAGE_VARIABLE = "UNDERSTUDY_IMAGE"
"""The image of the pod."""

_OWN_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")
"""How pods reach the API server of their own cluster."""


def pod_settings(
    conf: Mapping[str, str], environment: Mapping[str, str], scratch: str
) -> dict[str, str]:
    """Return settings for executors in the cluster of this pod; none in any other place.

    ``scratch`` gets the template of executors' pods.
    """
    name, address = environment.get(NAME_VARIABLE), environment.get(ADDRESS_VARIABLE)
    namespace = environment.get(NAMESPACE_VARIABLE)
    if not (name and address and namespace) or not _is_own(conf, environment):
        return {}
    defaults = {NAMESPACE: namespace, "spark.driver.host": address}
    if conf.get(NAMESPACE, namespace) == namespace:
        defaults["spark.kubernetes.driver.pod.name"] = name
    image = environment.get(IMAGE_VARIABLE)
    if image and IMAGE not in conf and EXECUTOR_IMAGE not in conf:
        defaults |= {IMAGE: image, "spark.pyspark.python": sys.executable}
        if TEMPLATE not in conf:
            template = Path(scratch) / "executor.json"
            template.write_text(json.dumps(_template()))
            defaults[TEMPLATE] = str(template)
    return {key: value for key, value in defaults.items() if key not in conf}


def _is_own(conf: Mapping[str, str], environment: Mapping[str, str]) -> bool:
    """Return whether the master is the API server of this pod's cluster."""
    master = conf.get("spark.master", "")
    if not master.startswith(MASTER):
        return False
    url = master.removeprefix(MASTER)
    host = urlsplit(url if "://" in url else f"https://{url}").hostname or ""
    own = (*_OWN_NAMES, environment.get("KUBERNETES_SERVICE_HOST", ""))
    return host.removesuffix(".cluster.local") in own


def _template() -> dict[str, object]:
    """Return a pod that passes restricted Pod Security, and runs the executor of our image."""
    container = {
        "name": "executor",
        "command": [sys.executable, "-P", "-m", "understudy.spark.executor"],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    context = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"containers": [container], "securityContext": context}
    return {"apiVersion": "v1", "kind": "Pod", "spec": spec}
