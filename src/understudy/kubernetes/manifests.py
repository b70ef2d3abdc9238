"""The objects of a cluster that is deployed on Kubernetes, as manifests. Pure.

Names follow from ``kubernetes.cluster-id``, so that a start that is repeated finds what it has
made. All belong to the Deployment and go with it; what high availability has stored never does.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from understudy.config import Configuration, options
from understudy.kubernetes.kinds import CONFIG_MAP, DEPLOYMENT, SECRET, SERVICE, Resource
from understudy.kubernetes.pods import (
    CONFIG,
    JOBMANAGER,
    RUN_ID,
    SECRET_KEY,
    PodPlan,
    Reads,
    pod_template,
    selector,
)
from understudy.kubernetes.pods import SECRET as SECRET_PLACE
from understudy.kubernetes.templates import Json

REST_PORT, RPC_PORT = 8081, 6123

SECRET_FILE = f"{SECRET_PLACE}/{SECRET_KEY}"

CONFIG_FILE = "config.yaml"
TEMPLATE_FILE = "taskmanager-pod-template.yaml"
"""Keys of the ConfigMap."""

CONTENT = "understudy/content"
"""The annotation of the Deployment with a digest of what was deployed, apart from the run."""

CONFIG_BYTES_MAX = 900 << 10
"""A ConfigMap may have 1 MiB, with its names."""

_OF_THE_COMMAND = (
    options.K8S_CONFIG_FILE,
    options.K8S_CONTEXT,
    options.K8S_NAMESPACE,
    options.K8S_TEMPLATE,
    options.K8S_JOBMANAGER_TEMPLATE,
    options.K8S_TASKMANAGER_TEMPLATE,
    options.BEARER_FILE,
    options.TARGET,
    options.BIND_HOST,
    options.REST_BIND_ADDRESS,
    options.REST_BIND_PORT,
    options.JOBMANAGER_PORT,
)
"""What is about the host of the command, or what each pod has of its own."""


def rest_service(cluster: str) -> str:
    """Return the name of the Service in front of the REST endpoints."""
    return f"{cluster}-rest"


def config_map(cluster: str) -> str:
    """Return the name of the ConfigMap with the configuration."""
    return f"{cluster}-config"


def secret(cluster: str) -> str:
    """Return the name of the Secret that is made for a cluster without one of its own."""
    return f"{cluster}-secret"


@dataclass(frozen=True)
class Blueprint:
    """What is deployed: one application, or a session."""

    cluster: str
    namespace: str
    configuration: Configuration
    arguments: Sequence[str] = ()
    """Of ``understudy jobmanager``: the application with its flags; none for a session."""
    run_id: str | None = None
    secret: bytes | None = field(default=None, repr=False)
    """What the Secret of the cluster has; None: ``security.secret-file`` is mounted otherwise."""
    jobmanager_template: Json | None = None
    taskmanager_template: Json | None = None

    def objects(self) -> list[tuple[Resource, Json]]:
        """Return all objects; the Deployment, which owns the others, is the first."""
        found = [(DEPLOYMENT, self._deployment()), (CONFIG_MAP, self._config_map())]
        if self.secret is not None:
            data = {SECRET_KEY: base64.b64encode(self.secret).decode()}
            body = {"type": "Opaque", "data": data}
            found.append((SECRET, self._object(SECRET, secret(self.cluster), body)))
        found += [(SERVICE, one) for one in self._services()]
        return found

    def content(self) -> str:
        """Return a digest of what is deployed, without the run and the secret."""
        parts = [list(self.arguments), self._settings(), self._template(None)]
        text = json.dumps([*parts, self.taskmanager_template], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def _object(self, kind: Resource, name: str, body: Json) -> Json:
        return {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": selector(self.cluster, JOBMANAGER),
            },
            **body,
        }

    def _deployment(self) -> Json:
        spec = {
            "replicas": self.configuration.get(options.K8S_REPLICAS),
            "revisionHistoryLimit": 1,
            # All JobManagers of a cluster have one configuration, and one version of Understudy.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": selector(self.cluster, JOBMANAGER)},
            "template": self._template(self.run_id),
        }
        found = self._object(DEPLOYMENT, self.cluster, {"spec": spec})
        found["metadata"]["annotations"] = {CONTENT: self.content()}
        if self.run_id:
            found["metadata"]["labels"][RUN_ID] = self.run_id
        return found

    def _template(self, run_id: str | None) -> Json:
        named = ["--run-id", run_id] if run_id else []
        command = [
            "jobmanager",
            *process_arguments(self.configuration, self.secret is not None),
            *("--host", "$(POD_IP)", "--port", str(REST_PORT)),
            *("-D", f"{options.JOBMANAGER_PORT.key}={RPC_PORT}"),
            *("-D", f"{options.ALLOWED_HOSTS.key}={','.join(self._names())}"),
            *named,
            *self.arguments,
        ]
        plan = PodPlan(
            JOBMANAGER,
            self.cluster,
            command,
            ports={"rest": REST_PORT, "rpc": RPC_PORT},
            labels={RUN_ID: run_id} if run_id else {},
            config_map=config_map(self.cluster),
            secret=secret(self.cluster) if self.secret is not None else None,
            probed=Reads.of(self.configuration),
        )
        return pod_template(self.configuration, plan, self.jobmanager_template)

    def _names(self) -> Iterator[str]:
        """Yield the names by which clients may call the REST endpoint."""
        yield from self.configuration.get(options.ALLOWED_HOSTS)
        name = rest_service(self.cluster)
        yield from (name, f"{name}.{self.namespace}", f"{name}.{self.namespace}.svc")
        if self.configuration.get(options.K8S_EXPOSED) == options.NODE_PORT:
            yield "$(HOST_IP)"

    def _settings(self) -> dict[str, str]:
        """Return what ``config.yaml`` has in the pods."""
        ours = {option.key for option in _OF_THE_COMMAND}
        kept = {key: text for key, text in self.configuration.settings.items() if key not in ours}
        made = {options.SECRET_FILE.key: SECRET_FILE} if self.secret is not None else {}
        return {**kept, **made, options.K8S_CLUSTER_ID.key: self.cluster}

    def _config_map(self) -> Json:
        data = {CONFIG_FILE: yaml.safe_dump(self._settings(), sort_keys=True, allow_unicode=True)}
        if self.taskmanager_template:
            data[TEMPLATE_FILE] = yaml.safe_dump({"kind": "Pod", **self.taskmanager_template})
        return self._object(CONFIG_MAP, config_map(self.cluster), {"data": data})

    def _services(self) -> Iterator[Json]:
        """Yield the Service of the REST endpoint, and the one that names each JobManager."""
        to = {"selector": selector(self.cluster, JOBMANAGER)}
        exposed = self.configuration.get(options.K8S_EXPOSED)
        headless = {"clusterIP": "None"}
        spec: Json = {
            "type": options.CLUSTER_IP if exposed == options.HEADLESS else exposed,
            **(headless if exposed == options.HEADLESS else {}),
            # A node answers for its own pods only: these know the node's address as a name.
            **({"externalTrafficPolicy": "Local"} if exposed == options.NODE_PORT else {}),
            **to,
            "ports": [_port("rest", REST_PORT)],
        }
        found = self._object(SERVICE, rest_service(self.cluster), {"spec": spec})
        annotations: dict[str, str] = self.configuration.get(options.K8S_REST_ANNOTATIONS)
        if annotations:
            found["metadata"]["annotations"] = annotations
        yield found
        ports = [_port("rpc", RPC_PORT), _port("rest", REST_PORT)]
        spec = {**headless, "publishNotReadyAddresses": True, **to, "ports": ports}
        yield self._object(SERVICE, self.cluster, {"spec": spec})


def process_arguments(configuration: Configuration, has_secret: bool) -> list[str]:
    """Return the arguments that all processes of a cluster in pods have.

    Paths of mounts stand here and not in the file: a template may say other paths.
    """
    found = ["--config-dir", CONFIG]
    if has_secret:
        found += ["-D", f"{options.SECRET_FILE.key}={SECRET_FILE}"]
    if configuration.find(options.K8S_TASKMANAGER_TEMPLATE) or configuration.find(
        options.K8S_TEMPLATE
    ):
        found += ["-D", f"{options.K8S_TASKMANAGER_TEMPLATE.key}={CONFIG}/{TEMPLATE_FILE}"]
    return found


def owned_by(deployment: Mapping[str, Any]) -> Json:
    """Return the reference to a Deployment that exists, for what goes with it."""
    return {
        "apiVersion": DEPLOYMENT.api_version,
        "kind": DEPLOYMENT.name,
        "name": deployment["metadata"]["name"],
        "uid": deployment["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": False,
    }


def as_yaml(objects: Sequence[tuple[Resource, Json]]) -> str:
    """Return manifests as YAML, one document each."""
    return "".join(
        f"---\n{yaml.safe_dump(one, sort_keys=False, allow_unicode=True)}" for _, one in objects
    )


def _port(name: str, number: int) -> Json:
    return {"name": name, "port": number, "targetPort": name}
