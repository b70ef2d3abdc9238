"""Flink's keys that are not options here: those with a successor, and those without a meaning."""

from __future__ import annotations

SUCCESSORS = {
    "high-availability": "high-availability.type",
    "recovery.mode": "high-availability.type",
    "high-availability.zookeeper.path.namespace": "high-availability.cluster-id",
    "recovery.zookeeper.path.namespace": "high-availability.cluster-id",
    "high-availability.zookeeper.storageDir": "high-availability.storageDir",
    "recovery.zookeeper.storageDir": "high-availability.storageDir",
    "job-result-store.delete-on-commit": "application-result-store.delete-on-commit",
    "cleanup-strategy": "cleanup-strategy.type",
    "restart-strategy": "restart-strategy.type",
    "taskmanager.tmp.dirs": "io.tmp.dirs",
    "jobmanager.web.port": "rest.bind-port",
    "akka.client.timeout": "client.timeout",
}
"""Deprecated spelling → the key that it acts as."""

_SPARK = "Spark's own settings decide this: use spark.* keys"
_JAVA_OPTS = "use spark.driver.extraJavaOptions"
_LATER = "not built yet"
_NO_RPC = "the link between the processes of one host is a Unix socket without settings"
_NO_BLOB_SERVER = "artifacts are files in high-availability.storageDir, there is no blob server"
_NO_HISTORY = "ended applications stay readable through tombstones, there is no history server"

WITHOUT_MEANING = {
    "$internal.application.id": "an application's id is made from the cluster's and the run's",
    "cluster.id": "use high-availability.cluster-id and --run-id",
    "cluster.processes.halt-on-fatal-error": "guardians kill and reap every process",
    "cluster.uncaught-exception-handling": "an uncaught exception always ends the process",
    "cluster.services.shutdown-timeout": "guardians bound every shutdown",
    "execution.attached": "execute waits, execute_async does not",
    "execution.shutdown-on-attached-exit": "run-application always ends its cluster",
    "execution.submit-failed-job-on-application-error": "errors of main are the application's own",
    "execution.target": "the command says where: run-application, jobmanager, taskmanager",
    "heartbeat.timeout": "taskmanager.orphan-timeout and jobmanager.adoption-grace decide it",
    "high-availability.jobmanager.port": _NO_RPC,
    "parallelism.default": _SPARK,
    "rest.retry.delay": "clients follow the leader as it changes",
    "rest.retry.max-attempts": "clients follow the leader as it changes",
    "rest.cache.execution-graph.timeout": "views are always fresh",
    "rest.client.max-content-length": "results are bounded by job.result.max-size",
    "client.retry-period": "clients are woken by the change itself",
    "client.heartbeat.interval": "run-application is the parent of its cluster",
    "client.heartbeat.timeout": "run-application is the parent of its cluster",
    "env.java.home": "set JAVA_HOME",
    "env.java.opts": _JAVA_OPTS,
}
"""Known keys that do nothing here, and why."""

PREFIXES_WITHOUT_MEANING = {
    "blob.": _NO_BLOB_SERVER,
    "cluster.registration.": "a TaskManager registers whenever the leader changes",
    "completed-application-store.": _NO_HISTORY,
    "env.java.opts.": _JAVA_OPTS,
    "execution.batch.": "running attempts are adopted, finished jobs are never run again",
    "execution.checkpointing.": _LATER,
    "execution.program-config.": "main cannot change the cluster's configuration",
    "execution.state-recovery.": _LATER,
    "fs.": "use spark.hadoop.* keys",
    "high-availability.kubernetes.": _LATER,
    "high-availability.zookeeper.": _LATER,
    "historyserver.": _NO_HISTORY,
    "job-event.": "running attempts are adopted, finished jobs are never run again",
    "jobmanager.archive.": _NO_HISTORY,
    "jobmanager.memory.": "a JobManager is a Python process without a fixed size",
    "kubernetes.": _LATER,
    "metrics.": _LATER,
    "pekko.": _NO_RPC,
    "akka.": _NO_RPC,
    "pipeline.": _SPARK,
    "recovery.": _LATER,
    "security.ssl.": _LATER,
    "state.": _LATER,
    "table.": _SPARK,
    "taskmanager.memory.": "use spark.driver.memory",
    "taskmanager.network.": _SPARK,
    "web.": "there is no web dashboard yet",
    "yarn.": "JobManagers on YARN are not built; point spark.master at YARN instead",
    "zookeeper.": _LATER,
}
"""Families of keys that do nothing here, and why."""


def reason_without_meaning(key: str) -> str | None:
    """Say why a key of Flink's does nothing here; None for a key that Flink does not have."""
    if key in WITHOUT_MEANING:
        return WITHOUT_MEANING[key]
    for prefix, reason in PREFIXES_WITHOUT_MEANING.items():
        if key.startswith(prefix):
            return reason
    return None
