"""Options of checkpoints and savepoints: their location, retention and use."""

from __future__ import annotations

from understudy.config.option import (
    BOOLEAN,
    POSITIVE,
    SHARED_PLACE,
    SHARED_PLACES,
    TEXT,
    Option,
    choice,
)

CHECKPOINTS_DIR = Option(
    "execution.checkpointing.dir",
    SHARED_PLACE,
    None,
    "Where the checkpoints of jobs lie: an absolute path, or a URL that Spark and Python reach, "
    "the same for all processes. Each job has a directory there, named by its id, and keeps the "
    "one that it began with. Unset: in high-availability.storageDir, and gone with the "
    "application.",
    "same key; there a checkpoint is a copy, here Spark's own checkpoint location",
)
SAVEPOINT_DIR = Option(
    "execution.checkpointing.savepoint-dir",
    TEXT,
    None,
    "Below which directory savepoints are written that are asked for without one: a path or a URL "
    "that all JobManagers reach.",
    "same",
)
SAVEPOINT_ALLOWED_DIRS = Option(
    "execution.checkpointing.savepoint-allowed-dirs",
    SHARED_PLACES,
    "",
    "Below which directories REST may write savepoints and remove them: absolute paths or URLs, "
    "with commas between; beside execution.checkpointing.savepoint-dir. Where neither is set, REST "
    "takes only those that a command asks for of the user who runs the cluster.",
)
NUM_RETAINED = Option(
    "execution.checkpointing.num-retained",
    POSITIVE,
    "1",
    "How many completed checkpoints of a job are remembered, beside those that it needs to go on "
    "from (the latest of each query, DataFrame and state).",
    "same key; how many batches can be gone back to is spark.sql.streaming.minBatchesToRetain",
)
EXTERNALIZED = Option(
    "execution.checkpointing.externalized-checkpoint-retention",
    choice("DELETE_ON_CANCELLATION", "RETAIN_ON_CANCELLATION", "NO_EXTERNALIZED_CHECKPOINTS"),
    "NO_EXTERNALIZED_CHECKPOINTS",
    "What becomes of a job's checkpoints at its end. RETAIN_ON_CANCELLATION: those of a failed or "
    "cancelled job stay; DELETE_ON_CANCELLATION: only those of a failed one; "
    "NO_EXTERNALIZED_CHECKPOINTS: none. Those of a finished job never stay. What stays is yours to "
    "delete. Needs execution.checkpointing.dir.",
    "same",
)
ACCEPT_FOUND = Option(
    "execution.checkpointing.accept-found",
    BOOLEAN,
    "false",
    "Let a streaming job go on from whatever lies at its checkpoint location, though it is not "
    "what was recorded: gone, older, damaged, or another query's. Rows may be written twice, or "
    "be missing.",
)
RECOVERY_PATH = Option(
    "execution.state-recovery.path",
    TEXT,
    None,
    "The savepoint or retained checkpoint that a new run begins with, where --from-savepoint is "
    "not given: a path or a URL.",
    "same",
)
RECOVERY_CLAIM_MODE = Option(
    "execution.state-recovery.claim-mode",
    choice("NO_CLAIM", "CLAIM"),
    "NO_CLAIM",
    "Whose the savepoint is once a job has begun with it, where --claim-mode is not given. CLAIM: "
    "it is removed then.",
    "same; LEGACY is not there",
)
RECOVERY_IGNORE_UNCLAIMED = Option(
    "execution.state-recovery.ignore-unclaimed-state",
    BOOLEAN,
    "false",
    "The application need not submit a job of the savepoint's name, as with "
    "--allow-non-restored-state.",
    "same",
)
