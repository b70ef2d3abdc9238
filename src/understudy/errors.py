"""Every error that Understudy raises on purpose, in one tree.

UnderstudyError
├── UsageError                 a command that cannot be meant (exit code 2, nothing was started)
│   └── ConfigurationError     an option that is unknown, of the wrong type, or contradicts another
├── SubmissionError            what ``execute`` refuses before anything has run
│   ├── JobNameError           the name is missing, too long, or used twice by its configured id
│   ├── PlanError              the function or its arguments cannot be stored as an execution plan
│   └── PlanVersionError       a stored plan was written by another Python, cloudpickle or PySpark
├── InvalidValueError          a job returned something that is not JSON, or too much of it
├── StartTimeSettingError      a job asked for a Spark setting that only a new driver can have
├── JobFailed                  the job ended without a result; carries the remote traceback
│   └── JobCanceled            ... because somebody cancelled it
├── ResultUnavailable          the job ended, but a third party removed or damaged what it returned
├── LeadershipLost             a newer term owns the document: whoever sees this leads no longer
├── Conflict                   somebody else wrote the key since it was read (never leaves ``ha``)
├── DataError                  durable data that cannot be taken for what it should be
│   ├── CorruptDataError       truncated, altered, or not in the format at all
│   ├── ForeignDataError       sound, but of another kind, cluster or application
│   ├── NewerFormatError       written by a later Understudy
│   ├── UnreadableDataError    there, but no file, or the file system does not give it out
│   └── LostDataError          gone though it was there, or an older copy lies in its place
├── CheckpointError            what a job would resume from, or keep, is not as it should be
├── TooLargeError              a value would pass a backend's or an option's limit
├── NotFoundError              no such application, job, key or file
├── NoLeaderError              nobody leads the cluster just now
├── UnreachableError           a peer did not answer; what was asked may or may not have been done
├── SessionLost                the JVM of a session was killed, or its cluster is away
├── ExecutorsUnavailable       the Spark cluster gave a job no executors for too long
└── StorageError               the storage or file system does not keep what it promises

Each class has a ``code``: stable, for REST answers and ``--json``. Errors of third parties are
translated in the one file that imports that party, and chained.
"""

from __future__ import annotations


class UnderstudyError(Exception):
    """The root of the tree: everything that Understudy raises on purpose."""

    code = "error"


class UsageError(UnderstudyError):
    """A command that cannot be meant; nothing was started."""

    code = "usage"


class ConfigurationError(UsageError):
    """An option that is unknown, has the wrong type, or contradicts another one."""

    code = "configuration"


class SubmissionError(UnderstudyError):
    """What ``execute`` refuses before anything has run."""

    code = "submission"


class JobNameError(SubmissionError):
    """The job's name is missing, too long, or its configured id was used before."""

    code = "job-name"


class PlanError(SubmissionError):
    """The function or its arguments cannot be stored as an execution plan."""

    code = "plan"


class PlanVersionError(SubmissionError):
    """A stored plan was written by another Python, cloudpickle or PySpark."""

    code = "plan-version"


class InvalidValueError(UnderstudyError):
    """A job returned something that is not exactly JSON, or more than ``job.result.max-size``."""

    code = "invalid-value"


class StartTimeSettingError(UnderstudyError):
    """A job asked for a Spark setting that only a newly started driver can have."""

    code = "start-time-setting"


class JobFailed(UnderstudyError):  # noqa: N818 -- the public name; Flink's word for the state
    """A job ended without a result.

    Attributes:
        job_id: the id of the job (32 hexadecimal digits).
        job_name: its name.
        error_type: the class of the exception that ended it, as the driver named it.
        remote_traceback: the traceback as the driver printed it; empty if the driver was lost.
        checkpoint: where its last completed checkpoint lies, if that is retained; else None.
        savepoint: where the savepoint lies with which it was stopped, if it was; else None.
    """

    code = "job-failed"

    def __init__(
        self,
        message: str,
        job_id: str,
        job_name: str,
        error_type: str,
        remote_traceback: str,
        checkpoint: str | None = None,
        savepoint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.job_name = job_name
        self.error_type = error_type
        self.remote_traceback = remote_traceback
        self.checkpoint = checkpoint
        self.savepoint = savepoint

    def __str__(self) -> str:
        message = str(self.args[0])
        if not self.remote_traceback:
            return message
        return f"{message}\n\n--- in the driver of {self.job_name!r} ---\n{self.remote_traceback}"


class JobCanceled(JobFailed):
    """A job ended without a result since somebody cancelled it."""

    code = "job-canceled"


class ResultUnavailable(UnderstudyError):  # noqa: N818
    """The job ended, but what it returned was removed or damaged by a third party."""

    code = "result-unavailable"


class LeadershipLost(UnderstudyError):  # noqa: N818
    """A newer term owns the document, or the lease ran out: whoever sees this must stop."""

    code = "leadership-lost"


class Conflict(UnderstudyError):  # noqa: N818
    """Somebody else wrote the key since it was read. Never leaves ``understudy.ha``."""

    code = "conflict"


class DataError(UnderstudyError):
    """Durable data that cannot be taken for what it should be; it is left where it is."""

    code = "data"


class CorruptDataError(DataError):
    """Truncated, altered, or not in the format at all."""

    code = "corrupt-data"


class ForeignDataError(DataError):
    """Sound data of another kind, cluster or application."""

    code = "foreign-data"


class NewerFormatError(DataError):
    """Data that a later version of Understudy wrote."""

    code = "newer-format"


class UnreadableDataError(DataError):
    """Something is there that the file system does not give out, or that is not a file."""

    code = "unreadable-data"


class LostDataError(DataError):
    """Data that was there is gone, or an older copy of it lies in its place."""

    code = "lost-data"


class CheckpointError(UnderstudyError):
    """What a job would resume from, or wants to keep, is not as it should be."""

    code = "checkpoint"


class TooLargeError(UnderstudyError):
    """A value would pass a backend's or an option's limit; it was not sent."""

    code = "too-large"


class NotFoundError(UnderstudyError):
    """There is no such application, job, key or file."""

    code = "not-found"


class NoLeaderError(UnderstudyError):
    """Nobody leads the cluster just now; asking again later may help."""

    code = "no-leader"


class UnreachableError(UnderstudyError):
    """A peer did not answer. What was asked may or may not have been done."""

    code = "unreachable"


class SessionLost(UnderstudyError):  # noqa: N818
    """The JVM of a session was killed, or its cluster is away: no fault of settings or of a job."""

    code = "session-lost"


class ExecutorsUnavailable(UnderstudyError):  # noqa: N818
    """The Spark cluster gave a job no executors within ``taskmanager.executors.wait-timeout``."""

    code = "executors-unavailable"


class StorageError(UnderstudyError):
    """The storage or file system does not keep what it promises."""

    code = "storage"
