"""Options of coordination, storage and the retention of results."""

from __future__ import annotations

from understudy.config.backends import OURS
from understudy.config.option import BOOLEAN, DURATION, PLACE, SAME, TEXT, Option

HA_TYPE = Option(
    "high-availability.type",
    TEXT,
    "filesystem",
    f"The coordination backend: {', '.join(OURS)}, the name of an entry point in "
    "'understudy.backends', or module:name. filesystem serves the processes of one host. NONE: one "
    "JobManager that keeps its stores in memory; if it is lost, so is its application.",
    "default NONE there; here high availability is the purpose",
)
CLUSTER_ID = Option(
    "high-availability.cluster-id",
    TEXT,
    None,
    "The name of the cluster. Processes that share it (and the backend) form one cluster. Unset: "
    "run-application generates one for the run and leaves nothing behind; single processes use "
    "'default'.",
    "default /default there",
)
STORAGE_DIR = Option(
    "high-availability.storageDir",
    PLACE,
    None,
    "Where the cluster stores what must survive its processes: a local path, or any fsspec URL if "
    "the backend is not 'filesystem'. Unset: $XDG_STATE_HOME/understudy/ha, where $XDG_STATE_HOME "
    "defaults to ~/.local/state.",
    "no default there",
)
LEASE_DURATION = Option(
    "high-availability.leader-election.lease-duration",
    DURATION,
    "15 s",
    "How long a standby that sees no renewal waits before it takes over without proof of death.",
)
RENEW_DEADLINE = Option(
    "high-availability.leader-election.renew-deadline",
    DURATION,
    "10 s",
    "How long a leader may act after sending its last acknowledged renewal. Must be shorter than "
    "the lease: Flink's Kubernetes defaults make them equal, which lets two leaders overlap.",
)
RETRY_PERIOD = Option(
    "high-availability.leader-election.retry-period",
    DURATION,
    "2 s",
    "How often a leader renews its lease, and a standby checks it unless something notifies the "
    "standby earlier.",
)
JOB_RESULT_PATH = Option(
    "job-result-store.storage-path",
    TEXT,
    None,
    "Directory of the job result files, below or beside the storage directory. Unset: "
    "<storageDir>/job-result-store/<cluster-id>.",
    SAME,
)
APPLICATION_RESULT_PATH = Option(
    "application-result-store.storage-path",
    TEXT,
    None,
    "Directory of the application result files. Unset: "
    "<storageDir>/application-result-store/<cluster-id>.",
    SAME,
)
DELETE_ON_COMMIT = Option(
    "application-result-store.delete-on-commit",
    BOOLEAN,
    "true",
    "Remove the result files of an application and its jobs once everything is cleaned up. false: "
    "they stay as <id>.json, and you remove them. In either case a tombstone (a summary of the "
    "run) remains for its time, so that an ended run is never executed again.",
    "there, true also forgets that the application ran",
)
TOMBSTONE_TTL = Option(
    "application-result-store.tombstone-ttl",
    DURATION,
    "7 d",
    "How long a tombstone (run id, status, and a file with each job's result) remains in a "
    "cluster with a configured id, and the summary of a run without one on the host that ran it "
    "(the last 50). Above 700 kB of tombstones, some 2,000 (fewer beside more than 500 unfinished "
    "applications), the oldest are removed earlier. The final status of some 5,000 earlier runs is "
    "kept: none of them is executed again, whatever a clock says.",
)
