"""Every error that Understudy raises on purpose, in one tree.

UnderstudyError
├── UsageError                 an invalid command (exit code 2, nothing was started)
│   └── ConfigurationError     an option that is unknown, of the wrong type, or contradicts another
├── SubmissionError            ``execute`` refused the job before anything ran
│   ├── JobNameError           the name is missing, too long, or its configured id was used before
│   ├── DifferentRequestError  an unfinished application of this id was submitted with other content
│   ├── AlreadyEndedError      the run has ended: its id is used
│   ├── PlanError              the function or its arguments cannot be stored as an execution plan
│   └── PlanVersionError       a stored plan was written by another Python, cloudpickle or PySpark
├── InvalidValueError          a job returned a value that cannot be kept or is too large
├── StartTimeSettingError      a job asked for a Spark setting that only a new driver can have
├── JobFailed                  the job ended without a result; carries the remote traceback
│   └── JobCanceled            ... because somebody cancelled the job
├── JobStopped                 ``main`` asked a job for its value that was stopped with a savepoint
├── ResultUnavailable          the job ended, but a third party removed or damaged its result
├── LeadershipLost             a newer term owns the document: this process leads no longer
├── Conflict                   somebody else wrote the key since the read (never leaves ``ha``)
├── DataError                  stored data that cannot be used
│   ├── CorruptDataError       truncated, altered, or not in the format at all
│   ├── ForeignDataError       intact, but of another kind, cluster or application
│   ├── NewerFormatError       written by a later Understudy
│   ├── UnreadableDataError    present, but not a file, or not readable
│   ├── UnreadableApplication  an application whose documents cannot be read
│   └── LostDataError          gone although it was stored, or replaced by an older copy
├── CheckpointError            a checkpoint or savepoint is missing, damaged or does not fit
├── TooLargeError              a value exceeds a limit of a backend or an option
├── ArtifactInUse              an uploaded artifact is needed, so it is not removed
├── NotFoundError              no such application, job, key or file
├── NoLeaderError              the cluster has no leader at the moment
├── UnreachableError           a peer did not answer; the request may or may not have been executed
├── SessionLost                the JVM of a session was killed, or its cluster is gone
├── ExecutorsUnavailable       the Spark cluster gave a job no executors for too long
├── EnvironmentFailed          the Python environment of an application cannot be built
├── JobTimedOut                an attempt ran for longer than the job's timeout
└── StorageError               the storage or file system breaks its guarantees

Each class has a stable ``code`` for REST answers and ``--json``. Errors of third parties are
translated in the one file that imports that library, and chained.
"""

from __future__ import annotations


class UnderstudyError(Exception):
    """Base class of all errors that Understudy raises on purpose."""

    code = "error"


class UsageError(UnderstudyError):
    """An invalid command; nothing was started."""

    code = "usage"


class ConfigurationError(UsageError):
    """An option that is unknown, has the wrong type, or contradicts another one."""

    code = "configuration"


class SubmissionError(UnderstudyError):
    """``execute`` refused the job before anything ran."""

    code = "submission"


class JobNameError(SubmissionError):
    """The job's name is missing, too long, or its configured id was used before."""

    code = "job-name"


class DifferentRequestError(SubmissionError):
    """An unfinished application of this id was submitted with other content."""

    code = "different-request"


class AlreadyEndedError(SubmissionError):
    """The run has ended, so that its id is used.

    Attributes:
        application_id: the id of its application (32 hexadecimal digits).
        status: the state in which it has ended.
    """

    code = "already-ended"

    def __init__(self, message: str, application_id: str, status: str) -> None:
        super().__init__(message)
        self.application_id = application_id
        self.status = status


class PlanError(SubmissionError):
    """The function or its arguments cannot be stored as an execution plan."""

    code = "plan"


class PlanVersionError(SubmissionError):
    """A stored plan was written by another Python, cloudpickle or PySpark."""

    code = "plan-version"


class InvalidValueError(UnderstudyError):
    """A job returned a value that cannot be kept or exceeds ``job.result.max-size``."""

    code = "invalid-value"


class StartTimeSettingError(UnderstudyError):
    """A job asked for a Spark setting that only a newly started driver can have."""

    code = "start-time-setting"


class JobFailed(UnderstudyError):  # noqa: N818 -- the public name; Flink's word for the state
    """A job ended without a result.

    Attributes:
        job_id: the id of the job (32 hexadecimal digits).
        job_name: its name.
        error_type: the class of the exception that ended the job, as the driver named the class.
        remote_traceback: the traceback as the driver printed it; empty if the driver was lost.
        checkpoint: the location of its last completed checkpoint if retained, else None.
        savepoint: the location of the savepoint that it was stopped with, else None.
    """

    code = "job-failed"

    def __init__(
        self,
        message: str,
        job_id: str,
        job_name: str,
        error_type: str,
        remote_traceback: str,
    ) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.job_name = job_name
        self.error_type = error_type
        self.remote_traceback = remote_traceback
        self.checkpoint: str | None = None
        self.savepoint: str | None = None

    def __str__(self) -> str:
        message = str(self.args[0])
        if not self.remote_traceback:
            return message
        return f"{message}\n\n--- in the driver of {self.job_name!r} ---\n{self.remote_traceback}"


class JobCanceled(JobFailed):
    """A job ended without a result because somebody cancelled it."""

    code = "job-canceled"


class JobStopped(UnderstudyError):  # noqa: N818
    """``main`` asked for the value of a job that a person stopped with a savepoint: it has none.

    Where it is not caught, it ends ``main``, and the application is FINISHED.
    """

    code = "job-stopped"


class ResultUnavailable(UnderstudyError):  # noqa: N818
    """The job ended, but a third party removed or damaged its result."""

    code = "result-unavailable"


class LeadershipLost(UnderstudyError):  # noqa: N818
    """A newer term owns the document, or the lease expired: this process must stop leading."""

    code = "leadership-lost"


class Conflict(UnderstudyError):  # noqa: N818
    """Somebody else wrote the key since the read. Never leaves ``understudy.ha``."""

    code = "conflict"


class DataError(UnderstudyError):
    """Stored data that cannot be used; it stays where it is."""

    code = "data"


class CorruptDataError(DataError):
    """Data that is truncated, altered, or not in the format at all."""

    code = "corrupt-data"


class ForeignDataError(DataError):
    """Intact data of another kind, cluster or application."""

    code = "foreign-data"


class NewerFormatError(DataError):
    """Data that a later version of Understudy wrote."""

    code = "newer-format"


class UnreadableDataError(DataError):
    """Something is stored there, but it is not readable or not a file."""

    code = "unreadable-data"


class UnreadableApplication(DataError):  # noqa: N818
    """The registry names this application, but its documents cannot be read."""

    code = "unreadable-application"


class LostDataError(DataError):
    """Stored data is gone, or an older copy replaced it."""

    code = "lost-data"


class CheckpointError(UnderstudyError):
    """A checkpoint or savepoint is missing, damaged or does not fit."""

    code = "checkpoint"


class TooLargeError(UnderstudyError):
    """A value exceeds a limit of a backend or an option; it was not sent."""

    code = "too-large"


class ArtifactInUse(UnderstudyError):  # noqa: N818
    """An unfinished application, or a submission under way, needs an uploaded artifact."""

    code = "artifact-in-use"


class NotFoundError(UnderstudyError):
    """There is no such application, job, key or file."""

    code = "not-found"


class NoLeaderError(UnderstudyError):
    """The cluster has no leader at the moment; a later retry may succeed."""

    code = "no-leader"


class UnreachableError(UnderstudyError):
    """A peer did not answer; the request may or may not have been executed."""

    code = "unreachable"


class SessionLost(UnderstudyError):  # noqa: N818
    """The JVM of a session was killed, or its cluster is gone; the job did not cause this."""

    code = "session-lost"


class ExecutorsUnavailable(UnderstudyError):  # noqa: N818
    """The Spark cluster gave a job no executors within ``taskmanager.executors.wait-timeout``."""

    code = "executors-unavailable"


class EnvironmentFailed(UnderstudyError):  # noqa: N818
    """The Python environment of an application cannot be built, or does not work."""

    code = "environment"


class JobTimedOut(UnderstudyError):  # noqa: N818
    """An attempt ran for longer than its job's ``timeout``; the job fails without a retry.

    ``main`` gets `JobFailed` with this class as its ``error_type``.
    """

    code = "job-timed-out"


class StorageError(UnderstudyError):
    """The storage or file system breaks its guarantees."""

    code = "storage"
