"""Executors of a Spark cluster: a job's share, why it waits, and what a dead driver left.

On a cluster (any ``spark.master`` but ``local…``) each attempt is a Spark application of its own,
unless ``taskmanager.executors.keep-idle`` lets the next job reuse the previous one. This module
queries no cluster: `spark.managers` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote

from msgspec import Struct

CORES_MAX = "spark.cores.max"
EXECUTOR_CORES = "spark.executor.cores"
EXECUTOR_INSTANCES = "spark.executor.instances"
EXECUTOR_MEMORY = "spark.executor.memory"
EXECUTOR_MIB = 1024
"""Spark's default of ``spark.executor.memory``."""

YARN_MASTER_CORES = "spark.yarn.am.cores"
DYNAMIC = "spark.dynamicAllocation.enabled"
DYNAMIC_MIN = "spark.dynamicAllocation.minExecutors"
DYNAMIC_MAX = "spark.dynamicAllocation.maxExecutors"

OWN_PYTHON = "UNDERSTUDY_OWN_PYTHON"
"""A variable that is set in a process whose Python is an environment of its application."""

TAG_PREFIX = "understudy:"

MIB = {"b": 1 / 1024**2, "k": 1 / 1024, "": 1, "m": 1, "g": 1024, "t": 1024**2, "p": 1024**3}
"""Spark's units of memory."""

SIZES = "see spark.executor.memory and .cores"

HOLDERS_SHOWN = 3
"""A message names this many applications that hold cores: the largest."""


class Tag(Struct, frozen=True):
    """A label that marks a Spark application as ours; the cluster manager stores it."""

    cluster: str
    """Incarnation of the Understudy cluster, unique to it."""
    run_id: str
    job_id: str
    attempt: int
    driver: str = ""
    """The driver that has started it: executors that are kept idle serve later jobs there, too."""

    def encode(self) -> str:
        """Return the tag as one word of ASCII."""
        parts = (self.cluster, self.run_id, self.job_id, str(self.attempt), self.driver)
        return TAG_PREFIX + "/".join(quote(part, safe="") for part in parts)

    @staticmethod
    def decode(text: str) -> Tag | None:
        """Parse the output of `encode`; return None for anything else."""
        parts = [unquote(part) for part in text.removeprefix(TAG_PREFIX).split("/")]
        if not text.startswith(TAG_PREFIX) or len(parts) != 5 or not parts[3].isdecimal():
            return None
        return Tag(parts[0], parts[1], parts[2], int(parts[3]), parts[4])


class AssignedAttempt(Struct, frozen=True):
    """The attempt for which a session opens."""

    tag: Tag
    job_name: str
    application_name: str
    slots: int = 0
    """How many jobs the Understudy cluster runs at once; 0 if unknown."""
    lost_driver: str = ""
    """Driver of the previous attempt, if it is known dead; else empty."""
    ended_runs: tuple[str, ...] = ()
    """Runs of the cluster that have ended; others may run beside this one."""

    @property
    def title(self) -> str:
        """Return the Spark application's name, shown in Spark's UIs and by cluster managers."""
        return f"{self.application_name} / {self.label}"

    @property
    def label(self) -> str:
        """Return job and attempt, the description of the attempt's Spark jobs."""
        return f"{self.job_name} #{self.tag.attempt}"

    @property
    def group(self) -> str:
        """Return the job group of the attempt's Spark jobs."""
        return f"{self.tag.job_id}#{self.tag.attempt}"


class Launch(Struct, frozen=True):
    """The parameters that a driver's session starts with."""

    conf: Mapping[str, str]
    scratch: str
    """Directory for files that are deleted with the driver."""
    descriptors: tuple[int, ...] = ()
    """Inherited by the JVM: the liveness locks."""
    python_path: tuple[str, ...] = ()
    """The application's own code, which executors need too."""
    keep_idle_s: float = 0.0
    """How long executors stay after a job, for the next one."""
    tag: Tag = Tag("", "", "", 0)
    """The driver's cluster and run, still without a job."""
    class_data: str = ""
    """Directory of the archives of classes that JVMs start from; empty: they start without."""
    ended_runs: tuple[str, ...] = ()
    """Runs of the cluster that have ended."""


class CoreHolder(Struct, frozen=True):
    """A Spark application and the number of cores that it holds."""

    application_id: str
    name: str
    cores: int


class WorkerSize(Struct, frozen=True):
    """What a worker has for executors, free or not."""

    cores: int
    memory_mib: int


class Capacity(Struct, frozen=True):
    """The cores of a Spark cluster and who holds them."""

    cores: int
    free: int | None
    """None if the cluster does not report its use."""
    holders: tuple[CoreHolder, ...] = ()
    workers: tuple[WorkerSize, ...] = ()
    """Empty if the cluster does not report them: then memory is no limit."""

    def places(self, cores: int, memory_mib: int) -> int:
        """Return how many executors of a size the workers have room for at once."""
        return sum(min(one.cores // cores, one.memory_mib // memory_mib) for one in self.workers)

    def held_by(self, application_id: str) -> int:
        """Return how many cores an application holds."""
        return sum(one.cores for one in self.holders if one.application_id == application_id)


class ActiveApplication(Struct, frozen=True):
    """A Spark application of ours that a cluster manager believes to be alive."""

    application_id: str
    name: str
    tag: Tag


def cores_wanted(conf: Mapping[str, str]) -> int | None:
    """Return the configured minimum of cores for one job; None if nothing is set."""
    each = _number(conf, EXECUTOR_CORES) or 1
    if limit := _number(conf, CORES_MAX):
        return limit
    if is_dynamic(conf):
        return max(1, _number(conf, DYNAMIC_MIN) or 1) * each
    if instances := _number(conf, EXECUTOR_INSTANCES):
        return instances * each
    return None


def jobs_at_once(capacity: Capacity, conf: Mapping[str, str]) -> int:
    """Return how many jobs the cluster can run at once, each with its minimum of executors."""
    each = _number(conf, EXECUTOR_CORES) or 1
    least = cores_wanted(conf) or each
    at_once = capacity.cores // (least + master_cores(conf))
    if capacity.workers:
        spread = CORES_MAX in conf and EXECUTOR_CORES not in conf
        executors = min(least, len(capacity.workers)) if spread else least // each
        at_once = min(at_once, capacity.places(each, _memory_mib(conf)) // max(1, executors))
    return max(1, at_once)


def master_cores(conf: Mapping[str, str]) -> int:
    """Return how many cores a Spark application holds besides its executors, as on YARN."""
    on_yarn = conf.get("spark.master", "").startswith("yarn")
    return (_number(conf, YARN_MASTER_CORES) or 1) if on_yarn else 0


def limits(capacity: Capacity, conf: Mapping[str, str], slots: int) -> dict[str, str]:
    """Return settings that limit a job's Spark application, in addition to the user's settings.

    Without a limit, a job on a standalone cluster takes all cores, and the next job waits until it
    ends; so each job gets a share of the cores. ``spark.executor.instances``, which a standalone
    cluster ignores, is converted to cores.
    """
    if _number(conf, CORES_MAX):
        return {}
    each = _number(conf, EXECUTOR_CORES) or 1
    if is_dynamic(conf):
        if _number(conf, DYNAMIC_MAX):
            return {}
    elif instances := _number(conf, EXECUTOR_INSTANCES):
        return {EXECUTOR_CORES: str(each), CORES_MAX: str(instances * each)}
    return _share(capacity, conf, min(max(1, slots), jobs_at_once(capacity, conf)))


def _share(capacity: Capacity, conf: Mapping[str, str], at_once: int) -> dict[str, str]:
    """Return the limits with which so many jobs find both cores and memory."""
    each, memory_mib = _number(conf, EXECUTOR_CORES), _memory_mib(conf)
    cores = max(each or 1, capacity.cores // at_once)
    if at_once == 1 or not capacity.workers:
        return {CORES_MAX: str(cores)}
    if each:
        room = capacity.places(each, memory_mib) // at_once * each
        return {CORES_MAX: str(min(cores, room))}
    # Spark spreads a job over as many workers as it can, with an executor on each.
    if min(cores, len(capacity.workers)) * at_once <= capacity.places(1, memory_mib):
        return {CORES_MAX: str(cores)}
    # That would take the memory of other jobs, so it gets fewer executors, with more cores each.
    room, narrow = max(
        (min(cores, capacity.places(width, memory_mib) // at_once * width), -width)
        for width in range(1, cores + 1)
    )
    return {CORES_MAX: str(room), EXECUTOR_CORES: str(-narrow)}


def why_without(capacity: Capacity | None, application_id: str, conf: Mapping[str, str]) -> str:
    """Explain why an application has no executors; empty if it holds cores."""
    if capacity is None:
        cluster = conf["spark.master"]
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
    each, memory_mib = _number(conf, EXECUTOR_CORES) or 1, _memory_mib(conf)
    if capacity.workers and not capacity.places(each, memory_mib):
        size = f"{each} {'core' if each == 1 else 'cores'} and {memory_mib} MiB"
        held = [f"no worker is large enough for an executor of {size}: {SIZES}"]
    # What others hold is no reason while enough cores are free for an executor.
    elif capacity.free and (not held or capacity.free >= each):
        held.append(f"no worker has room for an executor: {SIZES}")
    return "waits for executors: " + "; ".join([free, *held])


def orphans(
    applications: Iterable[ActiveApplication],
    tag: Tag,
    lost_driver: str = "",
    ended_runs: Iterable[str] = (),
) -> list[ActiveApplication]:
    """Return the applications whose drivers are known dead when the tag's attempt begins.

    These are earlier attempts of the same job (an attempt begins only after the last one is known
    dead), the one that the driver of the last attempt had kept for it from an earlier job, and all
    applications of ended runs of the same cluster. Runs that are not known to have ended may be
    executed beside this one.
    """
    ended = frozenset(ended_runs)
    return [
        one
        for one in applications
        if one.tag.cluster == tag.cluster
        and not one.tag.driver == tag.driver != ""  # Its own, kept for it.
        and (
            one.tag.run_id in ended
            or (one.tag.job_id == tag.job_id and one.tag.attempt < tag.attempt)
            or one.tag.driver == lost_driver != ""
        )
    ]


def is_dynamic(conf: Mapping[str, str]) -> bool:
    """Return whether Spark itself decides how many executors a job has."""
    return conf.get(DYNAMIC, "false").strip().lower() == "true"


def _number(conf: Mapping[str, str], key: str) -> int | None:
    text = conf.get(key, "").strip()
    return int(text) if text.isdecimal() and int(text) > 0 else None


def _memory_mib(conf: Mapping[str, str]) -> int:
    """Return ``spark.executor.memory``; its default if that is nothing which Spark understands."""
    text = conf.get(EXECUTOR_MEMORY, "").strip().lower()
    match = re.fullmatch(r"(\d+)(b|[kmgtp]?)(?:(?<=[kmgtp])b)?", text)
    return max(1, int(int(match[1]) * MIB[match[2]])) if match else EXECUTOR_MIB
