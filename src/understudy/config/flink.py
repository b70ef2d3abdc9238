"""Flink's keys that are not options here: deprecated keys, and keys without a meaning.

Those of a backend are declared with it (`backends`).
"""

from __future__ import annotations

SUCCESSORS = {
    "high-availability": "high-availability.type",
    "recovery.mode": "high-availability.type",
    "job-result-store.delete-on-commit": "application-result-store.delete-on-commit",
    "cleanup-strategy": "cleanup-strategy.type",
    "restart-strategy": "restart-strategy.type",
    "taskmanager.tmp.dirs": "io.tmp.dirs",
    "kubernetes.container.image": "kubernetes.container.image.ref",
    "kubernetes.pod-template-file": "kubernetes.pod-template-file.default",
    "jobmanager.web.port": "rest.bind-port",
    "akka.client.timeout": "client.timeout",
    "state.checkpoints.dir": "execution.checkpointing.dir",
    "state.savepoints.dir": "execution.checkpointing.savepoint-dir",
    "state.checkpoints.num-retained": "execution.checkpointing.num-retained",
    "execution.savepoint.path": "execution.state-recovery.path",
    "execution.savepoint.ignore-unclaimed-state": (
        "execution.state-recovery.ignore-unclaimed-state"
    ),
    "execution.savepoint-restore-mode": "execution.state-recovery.claim-mode",
}
"""Deprecated key → its successor."""

_SPARK = "Spark's own settings decide this: use spark.* keys"
_JAVA_OPTS = "use spark.driver.extraJavaOptions"
_IN_TEMPLATE = "use the file in kubernetes.pod-template-file.default"
_IN_IMAGE = "the command in the image is understudy"
_NO_CLIENT_POOL = "the client of the API server has a few connections, and no pool of threads"
_BATCHES = "each micro-batch is a checkpoint, taken by Spark as its trigger and spark.* keys say"
_OWN_STATE = "state is Spark's own: use spark.sql.streaming.* keys"
_NO_RPC = "links have no settings beside jobmanager.bind-host and security.*"
_PEM_ONLY = "certificates are PEM files, without a type and a password as a whole"
_ONE_FAMILY = "use security.ssl.internal.* and security.ssl.rest.* keys"
_OPENSSL = "OpenSSL and Python choose what is safe, TLS 1.2 or newer"
_NO_BLOB_SERVER = "artifacts are files in high-availability.storageDir, there is no blob server"
_NO_HISTORY = "ended applications stay readable through tombstones, there is no history server"
_FIXED_METRICS = "which metrics there are, and their names, is not set"
_NO_REPORTER = "Prometheus scrapes /metrics, there is no other reporter"

WITHOUT_MEANING = {
    "$internal.application.id": "an application's id is made from the cluster's and the run's",
    "kubernetes.client.io-pool.size": _NO_CLIENT_POOL,
    "kubernetes.client.user-agent": _NO_CLIENT_POOL,
    "kubernetes.decorator.hadoop-conf-mount.enabled": _IN_TEMPLATE,
    "kubernetes.decorator.kerberos-mount.enabled": _IN_TEMPLATE,
    "kubernetes.entry.path": _IN_IMAGE,
    "kubernetes.flink.conf.dir": "the configuration is mounted at /opt/understudy/conf",
    "kubernetes.flink.log.dir": "pods print their logs: use `kubectl logs`",
    "kubernetes.hadoop.conf.config-map.name": _IN_TEMPLATE,
    "kubernetes.hostnetwork.enabled": _IN_TEMPLATE,
    "kubernetes.jobmanager.entrypoint.args": _IN_IMAGE,
    "kubernetes.jobmanager.owner.reference": "patch the Deployment once it exists",
    "kubernetes.node-name-label": "evictions are announced by signals, not by labels of nodes",
    "kubernetes.rest-service.exposed.node-port-address-type": (
        "of a NodePort, any address of a node that answers is used"
    ),
    "kubernetes.taskmanager.entrypoint.args": _IN_IMAGE,
    "cluster.id": "use high-availability.cluster-id and --run-id",
    "cluster.processes.halt-on-fatal-error": "guardians kill and reap every process",
    "cluster.uncaught-exception-handling": "an uncaught exception always ends the process",
    "cluster.services.shutdown-timeout": "guardians bound every shutdown",
    "execution.attached": "execute waits, execute_async does not",
    "execution.shutdown-on-attached-exit": "run-application always ends its cluster",
    "execution.submit-failed-job-on-application-error": (
        "a main that fails before any job leaves no job: the application is FAILED, and "
        "/applications/:id/exceptions says why"
    ),
    "execution.state-recovery.checkpoint-id-of-ignored-in-flight-data": _OWN_STATE,
    "execution.state-recovery.from-local": _OWN_STATE,
    "execution.state-recovery.without-channel-state.checkpoint-id": _OWN_STATE,
    "heartbeat.timeout": "taskmanager.orphan-timeout and jobmanager.adoption-grace decide it",
    "metrics.reporter.prom.factory.class": "prom is built in: metrics.reporters names it",
    "metrics.reporter.prom.filterLabelValueCharacters": _FIXED_METRICS,
    "metrics.system-resource": _FIXED_METRICS,
    "metrics.system-resource-probing-interval": _FIXED_METRICS,
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
    **dict.fromkeys(
        (
            f"security.ssl.{family}.{store}-{what}"
            for family in ("internal", "rest")
            for store in ("keystore", "truststore")
            for what in ("password", "type")
        ),
        _PEM_ONLY,
    ),
    **dict.fromkeys(
        (
            f"execution.checkpointing.{what}"
            for what in (
                *("aligned-checkpoint-timeout", "checkpoints-after-tasks-finish"),
                *("cleaner.parallel-mode", "create-subdir", "data-inline-threshold"),
                *("incremental", "interval", "interval-during-backlog"),
                *("max-concurrent-checkpoints", "min-pause", "mode", "snapshot-compression"),
                *("storage", "timeout", "tolerable-failed-checkpoints", "unaligned"),
                "write-buffer-size",
            )
        ),
        _BATCHES,
    ),
    "security.ssl.enabled": _ONE_FAMILY,
    "security.ssl.keystore": _ONE_FAMILY,
    "security.ssl.keystore-password": _ONE_FAMILY,
    "security.ssl.key-password": _ONE_FAMILY,
    "security.ssl.truststore": _ONE_FAMILY,
    "security.ssl.truststore-password": _ONE_FAMILY,
    "security.ssl.algorithms": _OPENSSL,
    "security.ssl.protocol": _OPENSSL,
    "security.ssl.provider": _OPENSSL,
    "security.ssl.internal.session-cache-size": _OPENSSL,
    "security.ssl.internal.session-timeout": _OPENSSL,
    "security.ssl.internal.handshake-timeout": _OPENSSL,
    "security.ssl.internal.close-notify-flush-timeout": _OPENSSL,
    "security.ssl.rest.cert.fingerprint": (
        "make the one certificate the only one of security.ssl.rest.truststore"
    ),
}
"""Known keys that do nothing here, and why."""

PREFIXES_WITHOUT_MEANING = {
    "blob.": _NO_BLOB_SERVER,
    "cluster.registration.": "a TaskManager registers whenever the leader changes",
    "completed-application-store.": _NO_HISTORY,
    "env.java.opts.": _JAVA_OPTS,
    "execution.batch.": "running attempts are adopted, finished jobs are never run again",
    "execution.checkpointing.file-merging.": _BATCHES,
    "execution.checkpointing.local-backup.": _BATCHES,
    "execution.checkpointing.unaligned.": _BATCHES,
    "execution.program-config.": "main cannot change the cluster's configuration",
    "fs.": "use spark.hadoop.* keys",
    "historyserver.": _NO_HISTORY,
    "job-event.": "running attempts are adopted, finished jobs are never run again",
    "jobmanager.archive.": _NO_HISTORY,
    "kubernetes.artifacts.": "nothing is fetched before a pod starts: name URLs in --files",
    "jobmanager.memory.": "a JobManager is a Python process without a fixed size",
    "metrics.fetcher.": _FIXED_METRICS,
    "metrics.internal.": _FIXED_METRICS,
    "metrics.job.": _FIXED_METRICS,
    "metrics.latency.": _FIXED_METRICS,
    "metrics.reporter.datadog.": _NO_REPORTER,
    "metrics.reporter.graphite.": _NO_REPORTER,
    "metrics.reporter.influxdb.": _NO_REPORTER,
    "metrics.reporter.jmx.": _NO_REPORTER,
    "metrics.reporter.otel.": _NO_REPORTER,
    "metrics.reporter.promgateway.": _NO_REPORTER,
    "metrics.reporter.slf4j.": _NO_REPORTER,
    "metrics.reporter.statsd.": _NO_REPORTER,
    "metrics.reporter.prom.filter.": _FIXED_METRICS,
    "metrics.reporter.prom.scope.": _FIXED_METRICS,
    "metrics.scope.": _FIXED_METRICS,
    "pekko.": _NO_RPC,
    "akka.": _NO_RPC,
    "pipeline.": _SPARK,
    "recovery.": "use high-availability.* keys",
    "state.": _OWN_STATE,
    "table.": _SPARK,
    "taskmanager.memory.": "use spark.driver.memory",
    "taskmanager.network.": _SPARK,
    "web.": "there is no web dashboard yet",
    "yarn.": "JobManagers on YARN are not built; point spark.master at YARN instead",
}
"""Prefixes of keys that do nothing here, and why."""


_WITH_MEANING = (
    "jobmanager.memory.process.size",
    "taskmanager.memory.process.size",
    "web.exception-history-size",
    "web.submit.enable",
)
"""Of these families, what has a meaning here; what only begins like it is misspelt."""


def reason_without_meaning(key: str) -> str | None:
    """Return why a key of Flink's does nothing here; None for any other key."""
    if key.startswith(_WITH_MEANING):
        return None
    if key in WITHOUT_MEANING:
        return WITHOUT_MEANING[key]
    for prefix, reason in PREFIXES_WITHOUT_MEANING.items():
        if key.startswith(prefix):
            return reason
    return None
