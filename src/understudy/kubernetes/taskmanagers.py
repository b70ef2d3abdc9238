"""The pods of TaskManagers that a leader asks for: who provides workers to its ResourceManager.

Names are made from the cluster and the worker, so that a repeated request finds its pod. One watch
tells of all; nothing is polled. Each pod belongs to the cluster's Deployment, if there is one, and
goes with it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from understudy.config import Configuration, options
from understudy.core.workers import SeenWorker, WorkerId, WorkersListed, WorkersUnseen
from understudy.errors import ConfigurationError
from understudy.kubernetes.client import ApiRequest, Client, Json
from understudy.kubernetes.kinds import DEPLOYMENT, POD
from understudy.kubernetes.manifests import owned_by
from understudy.kubernetes.pod_states import WORKER, seen_of
from understudy.kubernetes.pods import SECRET, TASKMANAGER, PodPlan, Reads, pod, selector
from understudy.kubernetes.refusals import Forbidden, NotThere
from understudy.kubernetes.templates import read_template, template_file
from understudy.kubernetes.watch import Change, ListedObjects, News, Unseen, Watch

NAME_VARIABLE = "POD_NAME"

COMMAND = ("taskmanager", "--host", "$(POD_IP)")

Tell = Callable[[WorkersListed | WorkersUnseen], None]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Origin:
    """What pods of TaskManagers have from the leader's pod: their owner, and what is mounted."""

    owner: Json | None
    config_map: str | None
    secret: str | None


def manifest(configuration: Configuration, cluster: str, worker: WorkerId, origin: Origin) -> Json:
    """Return the pod of a worker; raises `ConfigurationError` for a template that is none."""
    plan = PodPlan(
        TASKMANAGER,
        cluster,
        [*COMMAND, *_secret_arguments(configuration, origin)],
        labels={WORKER: worker},
        config_map=origin.config_map,
        secret=origin.secret,
    )
    has_secret = configuration.find(options.SECRET_FILE) is not None
    if has_secret and options.PROMETHEUS in configuration.get(options.REPORTERS):
        plan = _scraped(configuration, plan)
    path = template_file(configuration, TASKMANAGER.template)
    template = read_template(TASKMANAGER.template.key, path) if path else None
    return pod(configuration, plan, template, name=name_of(cluster, worker), owner=origin.owner)


def _scraped(configuration: Configuration, plan: PodPlan) -> PodPlan:
    """Return the plan of a pod that serves its metrics, and is ready once it is registered."""
    key = options.TASKMANAGER_BIND_HOST.key
    bound = () if key in configuration.settings else ("-D", f"{key}=$(POD_IP)")
    port = configuration.get(options.METRICS_PORT)[0]
    plan = replace(plan, command=[*plan.command, *bound])
    return replace(plan, ports={"metrics": port}, probed=Reads.of(configuration)) if port else plan


def _secret_arguments(configuration: Configuration, origin: Origin) -> list[str]:
    """Return where the secret of the leader's Secret is in a pod that `pods` has built."""
    path = configuration.find(options.SECRET_FILE)
    if not path or not origin.secret:
        return []
    return ["-D", f"{options.SECRET_FILE.key}={SECRET}/{path.rpartition('/')[2]}"]


def name_of(cluster: str, worker: WorkerId) -> str:
    """Return the name of a worker's pod."""
    return f"{cluster}-taskmanager-{worker}"


class TaskManagerPods:
    """The pods that leaders of one cluster have asked for; see `jobmanager.workers`."""

    def __init__(self, client: Client, configuration: Configuration, cluster: str, me: str) -> None:
        """``cluster`` begins the names of its objects; ``me``: the name of this process's pod."""
        self._client = client
        self._configuration = configuration
        self._cluster = cluster
        self._me = me
        labels = ",".join(f"{key}={value}" for key, value in selector(cluster, TASKMANAGER).items())
        self._query = {"labelSelector": f"{labels},{WORKER}"}
        self._deployment = ""
        """The uid of the cluster's Deployment, once seen."""
        self._pods: dict[str, Json] = {}
        self._created: dict[str, float] = {}
        """When pods were created that no list has shown yet, by name."""
        self._tell: Tell = lambda _: None

    async def follow(self, tell: Tell) -> None:
        """See `WorkerProvider.follow`."""
        self._tell = tell
        await Watch(self._client, POD, self._query, metadata_only=False).run(self._note)

    async def create(self, worker: WorkerId) -> None:
        """See `WorkerProvider.create`."""
        name = name_of(self._cluster, worker)
        origin = await self._look_at_own_pod()
        try:
            body = manifest(self._configuration, self._cluster, worker, origin)
        except ConfigurationError as error:
            raise OSError(errno.EINVAL, str(error)) from error
        try:
            found = await self._client.send(ApiRequest("create", POD, body=body))
        except Forbidden:
            raise
        except OSError as error:
            # It exists already, or nobody knows: the answer may be lost.
            found = await self._client.get(POD, name)
            if found is None:
                raise
            if found["metadata"].get("labels", {}).get(WORKER) != worker:
                message = f"pod {name} is of another program: remove it, or choose another "
                raise OSError(errno.EEXIST, f"{message}kubernetes.cluster-id") from error
        if found is not None and name not in self._pods:
            self._pods[name] = found
            self._created[name] = asyncio.get_running_loop().time()
            self._tell_all()

    async def remove(self, worker: WorkerId) -> None:
        """See `WorkerProvider.remove`."""
        name = name_of(self._cluster, worker)
        try:
            await self._client.send(ApiRequest("delete", POD, name))
        except NotThere:
            self._created.pop(name, None)
            if self._pods.pop(name, None):
                self._tell_all()

    async def _look_at_own_pod(self) -> Origin:
        """Return what pods of TaskManagers have from this process's pod, as it is now.

        Raises ``OSError`` where the cluster is being deleted: its pods would go at once.
        """
        me = await self._client.get(POD, self._me)
        if me is None:
            raise OSError(errno.ENOENT, f"there is no pod {self._me}: ${NAME_VARIABLE} is another")
        if me["metadata"].get("deletionTimestamp"):
            raise OSError(errno.ECANCELED, f"pod {self._me} is deleted: it asks for no more pods")
        volumes = {one["name"]: one for one in me["spec"].get("volumes") or ()}
        config: Json = volumes.get("config", {}).get("configMap") or {}
        secret: Json = volumes.get("secret", {}).get("secret") or {}
        return Origin(await self._owner(me), config.get("name"), secret.get("secretName"))

    async def _owner(self, me: Json) -> Json | None:
        """Return the reference to the cluster's Deployment, else to what this pod belongs to."""
        try:
            found = await self._client.get(DEPLOYMENT, self._cluster)
        except Forbidden as error:
            _log.warning("pods of TaskManagers do not go with the Deployment: %s", error)
        else:
            self._refuse_deleted(found)
            if found:
                return owned_by(found)
        owners: list[Json] = me["metadata"].get("ownerReferences") or []
        return owners[0] if owners else None

    def _refuse_deleted(self, found: Json | None) -> None:
        """Raise ``OSError`` if the Deployment of this pod has gone, or is on its way."""
        metadata = found["metadata"] if found else {}
        target = self._configuration.find(options.EXECUTION_TARGET)
        is_there = bool(found) or not (self._deployment or target in options.ON_KUBERNETES_TARGETS)
        self._deployment = self._deployment or metadata.get("uid", "")
        is_same = metadata.get("uid", "") == self._deployment
        if not is_there or not is_same or metadata.get("deletionTimestamp"):
            raise OSError(
                errno.ECANCELED,
                f"Deployment {self._cluster} is deleted: its leader asks for no more pods",
            )

    def _note(self, news: News) -> None:
        match news:
            case ListedObjects(found, asked_s):
                listed = {one["metadata"]["name"]: one for one in found}
                # A list may be older than an answer that came while it was read.
                self._created = {key: at for key, at in self._created.items() if at >= asked_s}
                self._pods = {**{name: self._pods[name] for name in self._created}, **listed}
            case Change(found, is_gone):
                name = found["metadata"]["name"]
                if is_gone:
                    self._pods.pop(name, None)
                    self._created.pop(name, None)
                    # Its last state may prove the death of its processes.
                    self._tell_all(seen_of(found, is_deleted=True))
                else:
                    self._pods[name] = found
            case Unseen(error):
                self._tell(WorkersUnseen(f"the pods of TaskManagers are not seen: {error}"))
                return
        self._tell_all()

    def _tell_all(self, *more: SeenWorker) -> None:
        self._tell(WorkersListed((*map(seen_of, self._pods.values()), *more)))
