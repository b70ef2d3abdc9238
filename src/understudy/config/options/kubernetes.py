"""Options of Kubernetes: its API server, and the pods of a cluster that is deployed there."""

from __future__ import annotations

import re
from collections.abc import Callable

from understudy.config.option import (
    COUNT,
    PERIOD,
    SAME,
    SIZE,
    TEXT,
    Kind,
    Option,
    bounded,
    choice,
    words,
)

CLUSTER_ID_CHARS_MAX = 45
"""Flink's limit: names of objects are made from the id, and Kubernetes allows 63 characters."""

JOBMANAGERS_MAX = 100
"""More standbys than anybody needs: a limit against mistyped numbers."""

CPUS_MAX = 10_000.0
"""More than any node has: a limit against mistyped numbers."""

FACTOR_MAX = 100.0

KUBERNETES_APPLICATION, KUBERNETES_SESSION = "kubernetes-application", "kubernetes-session"
ON_KUBERNETES_TARGETS = (KUBERNETES_APPLICATION, KUBERNETES_SESSION)

CLUSTER_IP, NODE_PORT = "ClusterIP", "NodePort"
LOAD_BALANCER, HEADLESS = "LoadBalancer", "Headless_ClusterIP"

_SECONDS = "tolerationSeconds"

Records = tuple[dict[str, str], ...]

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_OBJECT = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_KEY = re.compile(r"([a-z0-9][-a-z0-9.]*/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?")


def is_legal(name: str) -> bool:
    """Return whether Kubernetes accepts a cluster id in the names of objects and in labels."""
    return bool(_LABEL.fullmatch(name)) and len(name) <= CLUSTER_ID_CHARS_MAX


def _cluster_id(text: str) -> str:
    if not is_legal(text):
        raise ValueError(
            f"up to {CLUSTER_ID_CHARS_MAX} lowercase letters, digits and '-', with a letter or "
            "digit at each end"
        )
    return text


def _namespace(text: str) -> str:
    if not _LABEL.fullmatch(text) or len(text) > 63:
        raise ValueError("up to 63 lowercase letters, digits and '-'")
    return text


def _object_name(text: str) -> str:
    if not _OBJECT.fullmatch(text) or len(text) > 253:
        raise ValueError("the name of an object: lowercase letters, digits, '-' and '.'")
    return text


def _object_names(text: str) -> tuple[str, ...]:
    return tuple(_object_name(word) for word in words(text))


def _fraction(lowest: float, highest: float, what: str) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            number = float(text if text.isascii() and "_" not in text else "")
        except ValueError:
            raise ValueError(what) from None
        if not lowest <= number <= highest:
            raise ValueError(what)
        return number

    return parse


def _pair(text: str, what: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not TEXT.parse(text):
        raise ValueError(what)
    return name.strip(), value.strip()


def _map(check: Callable[[str, str], bool], what: str) -> Kind[dict[str, str]]:
    def parse(text: str) -> dict[str, str]:
        pairs = [_pair(TEXT.parse(word), what) for word in text.split(",") if word.strip()]
        if not all(check(name, value) for name, value in pairs):
            raise ValueError(what)
        return dict(pairs)

    return Kind("Map", parse, takes_lists=True, takes_maps=True)


def _records(needed: tuple[str, ...], known: tuple[str, ...], what: str) -> Kind[Records]:
    """Return the kind of a list of maps, as Flink writes it: ``a:1,b:2;a:3``."""

    def parse(text: str) -> Records:
        found = []
        for part in text.split(";"):
            pairs = dict(_pair(TEXT.parse(word), what) for word in part.split(",") if word.strip())
            is_whole = set(needed) <= set(pairs) <= set(known)
            if pairs and not (is_whole and pairs.get(_SECONDS, "0").isdecimal()):
                raise ValueError(what)
            found += [pairs] if pairs else []
        return tuple(found)

    return Kind("List<Map>", parse)


OBJECT_NAME = Kind("String (name of an object)", _object_name)
OBJECT_NAMES = Kind("List of names of objects", _object_names, takes_lists=True)
CPUS = Kind("Double (more than 0)", _fraction(0.001, CPUS_MAX, "a number of CPUs, such as 0.5"))
LIMIT_FACTOR = Kind("Double (1 or more)", _fraction(1.0, FACTOR_MAX, "a number of at least 1"))
LABELS = _map(
    lambda name, value: bool(_KEY.fullmatch(name) and _VALUE.fullmatch(value) and len(value) <= 63),
    "labels such as 'team:flights,stage:test'",
)
ANNOTATIONS = _map(
    lambda name, _: bool(_KEY.fullmatch(name)), "annotations such as 'example.org/owner:flights'"
)
MOUNTS = _map(
    lambda name, path: bool(_OBJECT.fullmatch(name)) and path.startswith("/"),
    "names of Secrets, each with a directory, such as 'tls:/opt/tls'",
)
TOLERATIONS = _records(
    (),
    ("key", "operator", "value", "effect", _SECONDS),
    "tolerations such as 'key:spot,operator:Exists,effect:NoSchedule', with ';' between them",
)
SECRET_KEYS = _records(
    ("env", "secret", "key"),
    ("env", "secret", "key"),
    "'env:NAME,secret:SECRET,key:KEY', with ';' between several",
)

ENVIRONMENT_OF_JOBMANAGERS = "containerized.master.env."
ENVIRONMENT_OF_TASKMANAGERS = "containerized.taskmanager.env."
"""Prefixes of keys that set environment variables in pods, as in Flink."""

EXECUTION_TARGET = Option(
    "execution.target",
    choice("local", "remote", KUBERNETES_APPLICATION, KUBERNETES_SESSION),
    None,
    "Where a command starts or finds a cluster; `-t` sets this. kubernetes-application: "
    "run-application deploys a cluster for one application. kubernetes-session: `session start` "
    "deploys a session. Queries find either by kubernetes.cluster-id. Unset, local, remote: as the "
    "command and its other options say.",
    "further values there, for YARN",
)
K8S_CLUSTER_ID = Option(
    "kubernetes.cluster-id",
    Kind("String", _cluster_id),
    None,
    "What the names of the cluster's objects begin with, and their label app. Unset: "
    "high-availability.cluster-id.",
    "generated there if unset",
)
K8S_NAMESPACE = Option(
    "kubernetes.namespace",
    Kind("String", _namespace),
    None,
    "The namespace of the cluster's objects. Unset: the pod's own in a pod, else that of the "
    "kubeconfig's context, else default.",
    "always default if unset there",
)
K8S_CONFIG_FILE = Option(
    "kubernetes.config.file",
    TEXT,
    None,
    "The kubeconfig file that says where the API server is and who we are. Unset: the file that "
    "$KUBECONFIG names, else a pod's service account, else ~/.kube/config.",
    "there a pod's service account is the last choice",
)
K8S_CONTEXT = Option(
    "kubernetes.context",
    TEXT,
    None,
    "The context of the kubeconfig file. Unset: its current-context.",
    SAME,
)
K8S_IMAGE = Option(
    "kubernetes.container.image.ref",
    TEXT,
    None,
    "The image of JobManagers and TaskManagers: Python, a JRE, PySpark and Understudy. A "
    "deployment needs it.",
    "the image of Flink's version there if unset",
)
K8S_PULL_POLICY = Option(
    "kubernetes.container.image.pull-policy",
    choice("IfNotPresent", "Always", "Never"),
    "IfNotPresent",
    "When a node pulls the image.",
    SAME,
)
K8S_PULL_SECRETS = Option(
    "kubernetes.container.image.pull-secrets",
    OBJECT_NAMES,
    "",
    "The names of the Secrets for a private registry of images.",
    SAME,
)
K8S_SERVICE_ACCOUNT = Option(
    "kubernetes.service-account",
    OBJECT_NAME,
    "default",
    "The service account of all pods; its Role needs the rights in docs/kubernetes.md.",
    SAME,
)
K8S_JOBMANAGER_ACCOUNT = Option(
    "kubernetes.jobmanager.service-account",
    OBJECT_NAME,
    None,
    "The service account of JobManagers. Unset: kubernetes.service-account.",
    SAME,
)
K8S_TASKMANAGER_ACCOUNT = Option(
    "kubernetes.taskmanager.service-account",
    OBJECT_NAME,
    None,
    "The service account of TaskManagers. Unset: kubernetes.service-account.",
    SAME,
)
K8S_REPLICAS = Option(
    "kubernetes.jobmanager.replicas",
    bounded(1, JOBMANAGERS_MAX),
    "1",
    "How many JobManagers run: one leads, the others stand by.",
    SAME,
)
K8S_JOBMANAGER_CPU = Option(
    "kubernetes.jobmanager.cpu.amount",
    CPUS,
    "1.0",
    "The CPUs that a JobManager requests.",
    SAME,
)
K8S_JOBMANAGER_CPU_LIMIT = Option(
    "kubernetes.jobmanager.cpu.limit-factor",
    LIMIT_FACTOR,
    "1.0",
    "The CPU limit of a JobManager, as a multiple of its request.",
    SAME,
)
K8S_JOBMANAGER_MEMORY_LIMIT = Option(
    "kubernetes.jobmanager.memory.limit-factor",
    LIMIT_FACTOR,
    "1.0",
    "The memory limit of a JobManager, as a multiple of its request.",
    SAME,
)
K8S_TASKMANAGER_CPU = Option(
    "kubernetes.taskmanager.cpu.amount",
    CPUS,
    None,
    "The CPUs that a TaskManager requests. Unset: one for each slot.",
    SAME,
)
K8S_TASKMANAGER_CPU_LIMIT = Option(
    "kubernetes.taskmanager.cpu.limit-factor",
    LIMIT_FACTOR,
    "1.0",
    "The CPU limit of a TaskManager, as a multiple of its request.",
    SAME,
)
K8S_TASKMANAGER_MEMORY_LIMIT = Option(
    "kubernetes.taskmanager.memory.limit-factor",
    LIMIT_FACTOR,
    "1.0",
    "The memory limit of a TaskManager, as a multiple of its request.",
    SAME,
)
JOBMANAGER_MEMORY = Option(
    "jobmanager.memory.process.size",
    SIZE,
    "2 gb",
    "The memory that the pod of a JobManager requests, with the processes of main in it. Only pods "
    "have a size.",
    "no default there",
)
TASKMANAGER_MEMORY = Option(
    "taskmanager.memory.process.size",
    SIZE,
    "4 gb",
    "The memory that the pod of a TaskManager requests, with all its drivers. Only pods have a "
    "size; drivers take spark.driver.memory each.",
    "no default there",
)
K8S_TEMPLATE = Option(
    "kubernetes.pod-template-file.default",
    TEXT,
    None,
    "A file with a pod (YAML) that the pods of JobManagers and TaskManagers begin from; its "
    "container understudy-main-container is ours, others run beside it.",
    "the container is flink-main-container there",
)
K8S_JOBMANAGER_TEMPLATE = Option(
    "kubernetes.pod-template-file.jobmanager",
    TEXT,
    None,
    "The same, for JobManagers. Unset: kubernetes.pod-template-file.default.",
    SAME,
)
K8S_TASKMANAGER_TEMPLATE = Option(
    "kubernetes.pod-template-file.taskmanager",
    TEXT,
    None,
    "The same, for TaskManagers. Unset: kubernetes.pod-template-file.default.",
    SAME,
)
K8S_EXPOSED = Option(
    "kubernetes.rest-service.exposed.type",
    choice(CLUSTER_IP, NODE_PORT, LOAD_BALANCER, HEADLESS),
    CLUSTER_IP,
    "How the Service of the REST endpoint is reached. ClusterIP, Headless_ClusterIP: from inside "
    "the Kubernetes cluster only, or by `kubectl port-forward`.",
    SAME,
)
K8S_REST_ANNOTATIONS = Option(
    "kubernetes.rest-service.annotations",
    ANNOTATIONS,
    "",
    "Annotations of the Service of the REST endpoint, NAME:VALUE with commas between.",
    SAME,
)
K8S_JOBMANAGER_LABELS = Option(
    "kubernetes.jobmanager.labels",
    LABELS,
    "",
    "Labels of the pods of JobManagers, NAME:VALUE with commas between.",
    SAME,
)
K8S_TASKMANAGER_LABELS = Option(
    "kubernetes.taskmanager.labels",
    LABELS,
    "",
    "Labels of the pods of TaskManagers, NAME:VALUE with commas between.",
    SAME,
)
K8S_JOBMANAGER_ANNOTATIONS = Option(
    "kubernetes.jobmanager.annotations",
    ANNOTATIONS,
    "",
    "Annotations of the pods of JobManagers, NAME:VALUE with commas between.",
    SAME,
)
K8S_TASKMANAGER_ANNOTATIONS = Option(
    "kubernetes.taskmanager.annotations",
    ANNOTATIONS,
    "",
    "Annotations of the pods of TaskManagers, NAME:VALUE with commas between.",
    SAME,
)
K8S_JOBMANAGER_NODES = Option(
    "kubernetes.jobmanager.node-selector",
    LABELS,
    "",
    "The labels of the nodes on which JobManagers run, NAME:VALUE with commas between.",
    SAME,
)
K8S_TASKMANAGER_NODES = Option(
    "kubernetes.taskmanager.node-selector",
    LABELS,
    "",
    "The labels of the nodes on which TaskManagers run, NAME:VALUE with commas between.",
    SAME,
)
K8S_JOBMANAGER_TOLERATIONS = Option(
    "kubernetes.jobmanager.tolerations",
    TOLERATIONS,
    "",
    "What taints JobManagers tolerate: key:KEY,operator:Exists,effect:NoSchedule, with semicolons "
    "between.",
    SAME,
)
K8S_TASKMANAGER_TOLERATIONS = Option(
    "kubernetes.taskmanager.tolerations",
    TOLERATIONS,
    "",
    "What taints TaskManagers tolerate, in the same way.",
    SAME,
)
K8S_SECRETS = Option(
    "kubernetes.secrets",
    MOUNTS,
    "",
    "Secrets that are mounted into all pods, SECRET:DIRECTORY with commas between.",
    SAME,
)
K8S_SECRET_VARIABLES = Option(
    "kubernetes.env.secretKeyRef",
    SECRET_KEYS,
    "",
    "Environment variables of all pods from Secrets: env:NAME,secret:SECRET,key:KEY, with "
    "semicolons between.",
    SAME,
)
WORKER_PROVIDER = Option(
    "resourcemanager.provider",
    choice("none", "kubernetes"),
    "none",
    "Who provides TaskManagers as jobs need them. none: people start them. kubernetes: the leader, "
    "in a pod, asks for pods, and lets idle ones go.",
    "not there: the entry point of the cluster decides",
)
WORKER_IDLE = Option(
    "resourcemanager.taskmanager-timeout",
    PERIOD,
    "30 s",
    "How long a TaskManager that was asked for as needed may be without work before it ends.",
    SAME,
)
WORKER_REGISTRATION = Option(
    "resourcemanager.taskmanager-registration.timeout",
    PERIOD,
    "5 min",
    "How long a TaskManager that was asked for may take until it reports to the leader; then its "
    "pod is replaced.",
    SAME,
)
WORKER_RETRY = Option(
    "resourcemanager.start-worker.retry-interval",
    PERIOD,
    "3 s",
    "The pause before a TaskManager is asked for again after a failure.",
    SAME,
)
SLOTS_MIN = Option(
    "slotmanager.number-of-slots.min",
    COUNT,
    "0",
    "How many slots a cluster that asks for TaskManagers keeps, used or not.",
    SAME,
)
SLOTS_MAX = Option(
    "slotmanager.number-of-slots.max",
    COUNT,
    "infinite",
    "How many slots a cluster that asks for TaskManagers may have at most.",
    SAME,
)
REDUNDANT_WORKERS = Option(
    "slotmanager.redundant-taskmanager-num",
    COUNT,
    "0",
    "How many TaskManagers are kept beyond what is needed, so that a lost one is replaced at once.",
    SAME,
)

NAMES_OF_SECRETS = frozenset(
    option.key for option in (K8S_PULL_SECRETS, K8S_SECRETS, K8S_SECRET_VARIABLES)
)
"""Keys whose values name Secrets, and have none."""
