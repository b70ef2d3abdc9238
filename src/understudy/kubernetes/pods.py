"""The pods of a cluster, as manifests: one builder for JobManagers and TaskManagers. Pure.

Three layers: what a template may change (security context, probes, resources nobody has set), the
template, and what is the cluster's own (command, configuration, labels, what an option says).

A pod passes restricted Pod Security: no root, no capabilities, a read-only root file system. Only
`WORK` and `TMP` are writable, and go with the pod.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from understudy.config import Configuration, options
from understudy.config.option import Option
from understudy.core.ids import POD_UID_VARIABLE
from understudy.kubernetes.kinds import POD
from understudy.kubernetes.templates import MAIN_CONTAINER, Json, merged

CONFIG = "/opt/understudy/conf"
"""Where the ConfigMap with ``config.yaml`` is mounted."""

SECRET = "/opt/understudy/secret"  # noqa: S105 -- a directory
"""Where the Secret with the cluster's secret is mounted, as `SECRET_KEY`."""

SECRET_KEY = "secret"  # noqa: S105 -- a file's name

WORK, TMP = "/var/lib/understudy", "/tmp"  # noqa: S108 -- of the pod alone
"""Writable directories: home, state and caches; temporary files."""

USER = 10001
"""The user and group of the processes, as in the Dockerfile: any but root."""

TYPE = "understudy"
"""The label ``type``."""

RUN_ID = "understudy/run-id"
"""The label with the run of an application, as HA data has it."""

GRACE_S = 30
"""The time from SIGTERM to SIGKILL, as by default in Kubernetes; a drain comes on top of it."""

_WRITABLE = {"work": WORK, "tmp": TMP}
"""Volumes, and where they are mounted; a template may say what they are."""

_VOLUME_MODE = 0o440

CONF_DIR_VARIABLE = "UNDERSTUDY_CONF_DIR"

IMAGE_VARIABLE = "UNDERSTUDY_IMAGE"
"""The image, which Spark's executors run, too."""

_IN_POD = {
    "POD_IP": "status.podIP",
    "POD_NAME": "metadata.name",
    "POD_NAMESPACE": "metadata.namespace",
    "NODE_NAME": "spec.nodeName",
    "HOST_IP": "status.hostIP",
}
"""Environment variables, and the fields of the pod that they have."""

_HOMES = {
    "HOME": WORK,
    "TMPDIR": TMP,
    "XDG_STATE_HOME": f"{WORK}/state",
    "XDG_CACHE_HOME": f"{WORK}/cache",
}


_Takes = Callable[[Option[Any]], bool]


@dataclass(frozen=True)
class Component:
    """A kind of pod, and the options that are about it."""

    name: str
    """The label ``component``."""
    account: Option[str]
    cpu: Option[float]
    cpu_limit: Option[float]
    memory: Option[int]
    memory_limit: Option[float]
    template: Option[str]
    labels: Option[dict[str, str]]
    annotations: Option[dict[str, str]]
    nodes: Option[dict[str, str]]
    tolerations: Option[options.Records]
    environment: str
    """The prefix of keys that set environment variables."""


JOBMANAGER = Component(
    "jobmanager",
    options.K8S_JOBMANAGER_ACCOUNT,
    options.K8S_JOBMANAGER_CPU,
    options.K8S_JOBMANAGER_CPU_LIMIT,
    options.JOBMANAGER_MEMORY,
    options.K8S_JOBMANAGER_MEMORY_LIMIT,
    options.K8S_JOBMANAGER_TEMPLATE,
    options.K8S_JOBMANAGER_LABELS,
    options.K8S_JOBMANAGER_ANNOTATIONS,
    options.K8S_JOBMANAGER_NODES,
    options.K8S_JOBMANAGER_TOLERATIONS,
    options.ENVIRONMENT_OF_JOBMANAGERS,
)
TASKMANAGER = Component(
    "taskmanager",
    options.K8S_TASKMANAGER_ACCOUNT,
    options.K8S_TASKMANAGER_CPU,
    options.K8S_TASKMANAGER_CPU_LIMIT,
    options.TASKMANAGER_MEMORY,
    options.K8S_TASKMANAGER_MEMORY_LIMIT,
    options.K8S_TASKMANAGER_TEMPLATE,
    options.K8S_TASKMANAGER_LABELS,
    options.K8S_TASKMANAGER_ANNOTATIONS,
    options.K8S_TASKMANAGER_NODES,
    options.K8S_TASKMANAGER_TOLERATIONS,
    options.ENVIRONMENT_OF_TASKMANAGERS,
)


class Reads(enum.Enum):
    """A port that tells the health of a container: which scheme its probes use."""

    HTTP = "HTTP"
    HTTPS = "HTTPS"

    @staticmethod
    def of(configuration: Configuration) -> Reads:
        """Return how the REST endpoint, and that of metrics, is asked."""
        return Reads.HTTPS if configuration.get(options.REST_SSL) else Reads.HTTP


@dataclass(frozen=True)
class PodPlan:
    """What one kind of pod of a cluster is, beside its options."""

    component: Component
    cluster: str
    """What the names of the cluster's objects begin with (``kubernetes.cluster-id``)."""
    command: Sequence[str]
    """Arguments of ``understudy``, the entry point of the image; ``$(POD_IP)``: its address."""
    ports: Mapping[str, int] = field(default_factory=dict)
    """By name."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Beside those that select the cluster's pods."""
    config_map: str | None = None
    """What is mounted at `CONFIG`."""
    secret: str | None = None
    """The Secret that is mounted at `SECRET`."""
    probed: Reads | None = None
    """How the first port is asked for ``/healthz`` and ``/readyz``; None: not at all."""


def selector(cluster: str, component: Component) -> dict[str, str]:
    """Return the labels that all pods of one kind have, and no other."""
    return {"app": cluster, "type": TYPE, "component": component.name}


def pod(
    configuration: Configuration,
    plan: PodPlan,
    template: Json | None = None,
    *,
    name: str,
    owner: Json | None = None,
) -> Json:
    """Return the manifest of a pod with a name, ``owner``: an owner reference."""
    found = pod_template(configuration, plan, template)
    owners = {"ownerReferences": [owner]} if owner else {}
    (main,) = (one for one in found["spec"]["containers"] if one["name"] == MAIN_CONTAINER)
    uid = {"name": POD_UID_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
    main["env"] = [*main["env"], uid]
    return {
        "apiVersion": POD.api_version,
        "kind": POD.name,
        "metadata": {"name": name, **found["metadata"], **owners},
        "spec": {**found["spec"], "restartPolicy": "Never"},
    }


def pod_template(configuration: Configuration, plan: PodPlan, template: Json | None = None) -> Json:
    """Return metadata and spec, as a Deployment has them in its template."""
    defaults = _defaults(configuration, plan)
    owned = _owned(configuration, plan)
    return merged(merged(defaults, template or {}), owned)


def _defaults(configuration: Configuration, plan: PodPlan) -> Json:
    """Return what a template may change."""
    container: Json = {
        "name": MAIN_CONTAINER,
        "imagePullPolicy": configuration.get(options.K8S_PULL_POLICY),
        "resources": _resources(configuration, plan.component, lambda _: True),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        **(_probes(plan, plan.probed) if plan.probed else {}),
    }
    return {
        "spec": {
            "serviceAccountName": configuration.get(options.K8S_SERVICE_ACCOUNT),
            "terminationGracePeriodSeconds": GRACE_S
            + math.ceil(configuration.get(options.DRAIN_TIMEOUT)),
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "fsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            # Where there are several nodes, the loss of one is not the loss of all.
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": selector(plan.cluster, plan.component)},
                }
            ],
            "containers": [container],
            "volumes": [{"name": name, "emptyDir": {}} for name in _WRITABLE],
        }
    }


def _owned(configuration: Configuration, plan: PodPlan) -> Json:
    """Return what the cluster needs, and what the options say."""
    component, get = plan.component, configuration.get
    labels: dict[str, str] = get(component.labels)
    volumes, mounts = _volumes(configuration, plan)
    container: Json = {
        "name": MAIN_CONTAINER,
        "image": get(options.K8S_IMAGE),
        "args": [*plan.command],
        "env": _environment(configuration, plan),
        "volumeMounts": mounts,
        "resources": _resources(
            configuration, component, lambda option: option.key in configuration.settings
        ),
        "ports": [{"name": name, "containerPort": port} for name, port in plan.ports.items()],
    }
    if options.K8S_PULL_POLICY.key in configuration.settings:
        container["imagePullPolicy"] = get(options.K8S_PULL_POLICY)
    spec: Json = {
        "containers": [_filled(container)],
        "volumes": volumes,
        "serviceAccountName": _account(configuration, component),
        "imagePullSecrets": [{"name": one} for one in get(options.K8S_PULL_SECRETS)],
        "nodeSelector": get(component.nodes),
        "tolerations": [_toleration(one) for one in get(component.tolerations)],
    }
    return {
        "metadata": _filled(
            {
                "labels": {
                    **labels,
                    **plan.labels,
                    **selector(plan.cluster, component),
                },
                "annotations": get(component.annotations),
            }
        ),
        "spec": _filled(spec),
    }


def _filled(fields: Json) -> Json:
    """Return the fields that say something."""
    return {name: value for name, value in fields.items() if value}


def _account(configuration: Configuration, component: Component) -> str | None:
    """Return the service account that the options name; None: a template may."""
    common = options.K8S_SERVICE_ACCOUNT
    return configuration.find(component.account) or (
        configuration.get(common) if common.key in configuration.settings else None
    )


def _resources(configuration: Configuration, component: Component, takes: _Takes) -> Json:
    """Return requests and limits of those of CPU and memory whose option ``takes`` wants."""
    found: dict[str, dict[str, str]] = {"requests": {}, "limits": {}}
    if takes(component.cpu) or takes(component.cpu_limit):
        cpus = configuration.find(component.cpu) or float(configuration.get(options.SLOTS))
        found["requests"]["cpu"] = _milli(cpus)
        found["limits"]["cpu"] = _milli(cpus * configuration.get(component.cpu_limit))
    if takes(component.memory) or takes(component.memory_limit):
        size = configuration.get(component.memory)
        found["requests"]["memory"] = _mebi(size)
        found["limits"]["memory"] = _mebi(size * configuration.get(component.memory_limit))
    return _filled(found)


def _milli(cpus: float) -> str:
    return str(int(cpus)) if cpus == int(cpus) else f"{round(cpus * 1000)}m"


def _mebi(size: float) -> str:
    return f"{max(1, round(size / (1 << 20)))}Mi"


def _environment(configuration: Configuration, plan: PodPlan) -> list[Json]:
    component = plan.component
    found: list[Json] = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in _IN_POD.items()
    ]
    fixed = {**_HOMES, IMAGE_VARIABLE: configuration.find(options.K8S_IMAGE)}
    if plan.config_map:
        fixed[CONF_DIR_VARIABLE] = CONFIG
    found += [{"name": name, "value": value} for name, value in fixed.items() if value]
    given = configuration.passed_on(component.environment)
    found += [
        {"name": key.removeprefix(component.environment), "value": value}
        for key, value in sorted(given.items())
    ]
    found += [
        {
            "name": one["env"],
            "valueFrom": {"secretKeyRef": {"name": one["secret"], "key": one["key"]}},
        }
        for one in configuration.get(options.K8S_SECRET_VARIABLES)
    ]
    return [*{one["name"]: one for one in found}.values()]


def _volumes(configuration: Configuration, plan: PodPlan) -> tuple[list[Json], list[Json]]:
    """Return volumes and mounts."""
    mounts: list[Json] = [{"name": name, "mountPath": path} for name, path in _WRITABLE.items()]
    volumes: list[Json] = []
    for volume, path in _mounted(configuration, plan):
        volumes.append(volume)
        mounts.append({"name": volume["name"], "mountPath": path, "readOnly": True})
    return volumes, mounts


def _mounted(configuration: Configuration, plan: PodPlan) -> Iterator[tuple[Json, str]]:
    """Yield each volume of ours that is only read, and where it is mounted."""
    if plan.config_map:
        yield {"name": "config", "configMap": {"name": plan.config_map}}, CONFIG
    if plan.secret:
        source = {"secretName": plan.secret, "defaultMode": _VOLUME_MODE}
        yield {"name": "secret", "secret": source}, SECRET
    for number, (name, path) in enumerate(configuration.get(options.K8S_SECRETS).items(), 1):
        source = {"secretName": name, "defaultMode": _VOLUME_MODE}
        yield {"name": f"secret-{number}", "secret": source}, path


def _toleration(record: Mapping[str, str]) -> Json:
    seconds = record.get("tolerationSeconds")
    return {**record, **({"tolerationSeconds": int(seconds)} if seconds else {})}


def _probes(plan: PodPlan, scheme: Reads) -> Json:
    """Return the probes: a standby is ready; a process that does not answer is ended late.

    The guardian ends a process that hangs; the kubelet is the last to do so. A TaskManager has a
    port for its metrics only, which may be taken: without an answer it is not ready, and lives.
    """
    port = next(iter(plan.ports))

    def asked(path: str, **rest: int) -> Json:
        return {"httpGet": {"path": path, "port": port, "scheme": scheme.value}, **rest}

    ready = asked("/readyz", periodSeconds=5, timeoutSeconds=5, failureThreshold=2)
    if plan.component is TASKMANAGER:
        return {"readinessProbe": ready}
    return {
        "startupProbe": asked("/healthz", periodSeconds=2, timeoutSeconds=2, failureThreshold=90),
        "livenessProbe": asked("/healthz", periodSeconds=10, timeoutSeconds=5, failureThreshold=6),
        "readinessProbe": ready,
    }
