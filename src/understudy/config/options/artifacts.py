"""Options of uploaded artifacts."""

from __future__ import annotations

from understudy.config.option import BOOLEAN, DURATION, SAME, SIZE, Option

UPLOADS = Option(
    "web.submit.enable",
    BOOLEAN,
    "true",
    "Whether artifacts may be uploaded over REST. A cluster that ends with its application "
    "(execution.shutdown-on-application-finish) takes none in any case.",
    SAME,
)
ARTIFACT_MAX = Option(
    "artifacts.max-size",
    SIZE,
    "1 gb",
    "The largest file that may be uploaded. A JobManager receives it into io.tmp.dirs.",
)
ARTIFACTS_TOTAL_MAX = Option(
    "artifacts.max-total-size",
    SIZE,
    "16 gb",
    "The limit of all uploaded artifacts of a cluster together; equal content counts once. At most "
    "1,000 artifacts are kept.",
)
ARTIFACT_TTL = Option(
    "artifacts.unused-ttl",
    DURATION,
    "7 d",
    "How long an uploaded artifact stays after its last use. What an unfinished application was "
    "submitted with stays in any case.",
    "until the JobManager ends there",
)
