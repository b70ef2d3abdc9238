"""Executors of a Spark cluster: what a job may take, why it waits, and what a dead driver left.

On a cluster (any ``spark.master`` but ``local…``) each attempt is a Spark application of its own,
unless ``taskmanager.executors.keep-idle`` lets the next job take over the one before. Nothing here
asks a cluster: `spark.managers` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote

from msgspec import Struct

CORES_MAX = "spark.cores.max"
EXECUTOR_CORES = "spark.executor.cores"
EXECUTOR_INSTANCES = "spark.executor.instances"
YARN_MASTER_CORES = "spark.yarn.am.cores"
DYNAMIC = "spark.dynamicAllocation.enabled"
DYNAMIC_MIN = "spark.dynamicAllocation.minExecutors"
DYNAMIC_MAX = "spark.dynamicAllocation.maxExecutors"

TAG_PREFIX = "understudy:"

HOLDERS_SHOWN = 3
"""A sentence names this many applications that hold cores: the largest."""


class Tag(Struct, frozen=True):
    """Marks a Spark application as ours; the cluster manager stores the tag with it."""

    cluster: str
    """The incarnation of the Understudy cluster: two clusters never share one."""
    run_id: str
    job_id: str
    attempt: int

    def encode(self) -> str:
        """Return the tag as one word of ASCII."""
        parts = (self.cluster, self.run_id, self.job_id, str(self.attempt))
        return TAG_PREFIX + "/".join(quote(part, safe="") for part in parts)

    @staticmethod
    def decode(text: str) -> Tag | None:
        """Return what `encode` has made; None for anything else."""
        parts = [unquote(part) for part in text.removeprefix(TAG_PREFIX).split("/")]
        if not text.startswith(TAG_PREFIX) or len(parts) != 4 or not parts[3].isdecimal():
            return None
        return Tag(parts[0], parts[1], parts[2], int(parts[3]))


class Assignment(Struct, frozen=True):
    """The attempt that a session is opened for."""

    tag: Tag
    job_name: str
    application_name: str
    slots: int = 0
    """How many jobs the Understudy cluster runs at once; 0 where that is not known."""

    @property
    def title(self) -> str:
        """Return the name of its Spark application, as Spark's UIs and cluster managers show it."""
        return f"{self.application_name} / {self.label}"

    @property
    def label(self) -> str:
        """Return job and attempt: the description of its Spark jobs."""
        return f"{self.job_name} #{self.tag.attempt}"

    @property
    def group(self) -> str:
        """Return the group of its Spark jobs."""
        return f"{self.tag.job_id}#{self.tag.attempt}"


class Launch(Struct, frozen=True):
    """What a driver's session is started with."""

    conf: Mapping[str, str]
    scratch: str
    """Directory for files that go with the driver."""
    descriptors: tuple[int, ...] = ()
    """Inherited by the JVM: the liveness locks."""
    python_path: tuple[str, ...] = ()
    """The application's own code, which executors need too."""
    keep_idle_s: float = 0.0
    """How long executors stay after a job, for the next one."""
    tag: Tag = Tag("", "", "", 0)
    """Which cluster and run the driver is of; no job yet."""


class Holder(Struct, frozen=True):
    """A Spark application, and how many cores the cluster has given it."""

    application_id: str
    name: str
    cores: int


class Capacity(Struct, frozen=True):
    """What a Spark cluster has."""

    cores: int
    free: int | None
    """None where the cluster does not say what is in use."""
    holders: tuple[Holder, ...] = ()

    def held_by(self, application_id: str) -> int:
        """Return how many cores an application has."""
        return sum(one.cores for one in self.holders if one.application_id == application_id)


class Application(Struct, frozen=True):
    """A Spark application of ours that a cluster manager believes to be alive."""

    application_id: str
    name: str
    tag: Tag


def cores_wanted(conf: Mapping[str, str]) -> int | None:
    """Return how many cores a person wants for one job at least; None where nothing is set."""
    each = _number(conf, EXECUTOR_CORES) or 1
    if limit := _number(conf, CORES_MAX):
        return limit
    if is_dynamic(conf):
        return max(1, _number(conf, DYNAMIC_MIN) or 1) * each
    if instances := _number(conf, EXECUTOR_INSTANCES):
        return instances * each
    return None


def jobs_at_once(capacity: Capacity, conf: Mapping[str, str]) -> int:
    """Return how many jobs the cluster can carry at once, each with the cores that it must have."""
    least = cores_wanted(conf) or _number(conf, EXECUTOR_CORES) or 1
    return max(1, capacity.cores // (least + master_cores(conf)))


def master_cores(conf: Mapping[str, str]) -> int:
    """Return how many cores a Spark application holds beside its executors: YARN's do."""
    on_yarn = conf.get("spark.master", "").startswith("yarn")
    return (_number(conf, YARN_MASTER_CORES) or 1) if on_yarn else 0


def limits(capacity: Capacity, conf: Mapping[str, str], slots: int) -> dict[str, str]:
    """Return what a job's Spark application gets beside a person's settings.

    Without a limit, a job on a standalone cluster takes all cores, and the next job waits for the
    end of the first: each job gets its share of the cores. ``spark.executor.instances``, which a
    standalone cluster ignores, is said in cores.
    """
    if _number(conf, CORES_MAX):
        return {}
    each = _number(conf, EXECUTOR_CORES) or 1
    if is_dynamic(conf):
        if _number(conf, DYNAMIC_MAX):
            return {}
    elif instances := _number(conf, EXECUTOR_INSTANCES):
        return {EXECUTOR_CORES: str(each), CORES_MAX: str(instances * each)}
    at_once = min(max(1, slots), jobs_at_once(capacity, conf))
    return {CORES_MAX: str(max(each, capacity.cores // at_once))}


def why_without(capacity: Capacity | None, application_id: str, cluster: str) -> str:
    """Say why an application has no executors; empty where it has cores, and executors start."""
    if capacity is None:
        return f"waits for executors: {cluster} has given none, and does not say why"
    if capacity.held_by(application_id):
        return ""
    if not capacity.cores:
        return "waits for executors: the cluster has no cores: no worker is registered"
    if capacity.free is None:
        return (
            f"waits for executors: the cluster has {capacity.cores} cores; its pages, which say "
            "who holds them, do not answer"
        )
    free = f"the cluster has {capacity.free} of {capacity.cores} cores free"
    others = sorted(
        (one for one in capacity.holders if one.cores and one.application_id != application_id),
        key=lambda one: -one.cores,
    )
    held = [f"'{one.name}' holds {one.cores}" for one in others[:HOLDERS_SHOWN]]
    if len(others) > HOLDERS_SHOWN:
        rest = others[HOLDERS_SHOWN:]
        held.append(f"{len(rest)} others hold {sum(one.cores for one in rest)}")
    if capacity.free and not held:
        held = ["no worker has room for an executor: see spark.executor.memory and .cores"]
    return "waits for executors: " + "; ".join([free, *held])


def orphans(applications: Iterable[Application], tag: Tag) -> list[Application]:
    """Return the applications whose drivers are known dead when the tag's attempt begins.

    These are earlier attempts of the same job (an attempt begins only after the last one is known
    dead), and whatever an earlier run of the same cluster has left.
    """
    return [
        one
        for one in applications
        if one.tag.cluster == tag.cluster
        and (
            one.tag.run_id != tag.run_id
            or (one.tag.job_id == tag.job_id and one.tag.attempt < tag.attempt)
        )
    ]


def is_dynamic(conf: Mapping[str, str]) -> bool:
    """Say whether Spark itself decides how many executors a job has."""
    return conf.get(DYNAMIC, "false").strip().lower() == "true"


def _number(conf: Mapping[str, str], key: str) -> int | None:
    text = conf.get(key, "").strip()
    return int(text) if text.isdecimal() and int(text) > 0 else None
