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
    "Where the checkpoints of jobs are stored: an absolute path, or a URL that Spark and Python "
    "reach, the same for all processes. Each job has a directory there, named by its id; a job "
    "that has started keeps its directory. Unset: in high-availability.storageDir, and removed "
    "with the application.",
    "same key; there a checkpoint is a copy, here Spark's own checkpoint location",
)
SAVEPOINT_DIR = Option(
    "execution.checkpointing.savepoint-dir",
    TEXT,
    None,
    "The default parent directory of savepoints: a path or a URL that all JobManagers reach.",
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
    "How many completed checkpoints of a job are listed, in addition to those that it needs to "
    "resume (the latest of each query, DataFrame and state).",
    "same key; spark.sql.streaming.minBatchesToRetain sets how many batches Spark keeps",
)
EXTERNALIZED = Option(
    "execution.checkpointing.externalized-checkpoint-retention",
    choice("DELETE_ON_CANCELLATION", "RETAIN_ON_CANCELLATION", "NO_EXTERNALIZED_CHECKPOINTS"),
    "NO_EXTERNALIZED_CHECKPOINTS",
    "What happens to a job's checkpoints at its end. RETAIN_ON_CANCELLATION: those of a failed or "
    "cancelled job stay; DELETE_ON_CANCELLATION: only those of a failed job; "
    "NO_EXTERNALIZED_CHECKPOINTS: none. Those of a finished job never stay. You delete what "
    "stays. Needs execution.checkpointing.dir.",
    "same",
)
ACCEPT_FOUND = Option(
    "execution.checkpointing.accept-found",
    BOOLEAN,
    "false",
    "Let a streaming job resume from whatever is at its checkpoint location, even if that is not "
    "what was recorded: gone, older, damaged, or another query's. Rows may be written twice, or "
    "be missing.",
)
RECOVERY_PATH = Option(
    "execution.state-recovery.path",
    TEXT,
    None,
    "The savepoint or retained checkpoint that a new run starts from, unless --from-savepoint is "
    "given: a path or a URL.",
    "same",
)
RECOVERY_CLAIM_MODE = Option(
    "execution.state-recovery.claim-mode",
    choice("NO_CLAIM", "CLAIM"),
    "NO_CLAIM",
    "Who owns the savepoint once a job has started from it, unless --claim-mode is given. CLAIM: "
    "the job does, and the savepoint is removed then.",
    "same, without LEGACY",
)
RECOVERY_IGNORE_UNCLAIMED = Option(
    "execution.state-recovery.ignore-unclaimed-state",
    BOOLEAN,
    "false",
    "true: the application need not submit a job with the savepoint's job name, as with "
    "--allow-non-restored-state.",
    "same",
)
