"""Retained checkpoints of an ended job, and their use by another job.

Checkpoints are retained only in a directory that a person has chosen: files in the HA storage are
removed with the application. A file beside the checkpoints lists them and their job, so that they
are usable when nothing else remains of the job. A job that begins with them gets a savepoint made
of them: from there on, all rules of savepoints apply.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from typing import NamedTuple

from msgspec.structs import replace

from understudy.core import checkpoints as core
from understudy.core.checkpoints import Retention, is_retained
from understudy.errors import CheckpointError, ConfigurationError, DataError, NotFoundError
from understudy.ha import savepoints
from understudy.ha.format import Format
from understudy.ha.savepoints import Manifest
from understudy.ha.storage import Storage, storage_of
from understudy.ha.transfer import FileTree, split
from understudy.jobmanager import savepoint_files
from understudy.jobmanager.savepoint_files import Directories, UnderWayError
from understudy.model import Checkpoint, CheckpointKind, Checkpoints, JobEntry, JobStatus, Record
from understudy.process.persist import persist
from understudy.spark.urls import address_of

RETAIN_S = 60.0
"""How long a job's result waits for an unwritable directory of checkpoints."""

_NAME = re.compile(r"checkpoint-(\d+)\.json", re.ASCII)

_log = logging.getLogger(__name__)


class Retained(Record, frozen=True):
    """The file that describes the retained checkpoints."""

    about: Manifest
    """Manifest for a savepoint made of the checkpoints, without the list of files."""
    directory: str
    """The job's directory of checkpoints; they may have been moved since."""
    checkpoints: Checkpoints


files: Format[Retained] = Format("retained-checkpoints", Retained)


class RetainedCheckpoints(NamedTuple):
    """Retained checkpoints, found at an address."""

    directory: str
    number: int
    """Number of the newest checkpoint; it is part of the file's name."""
    content: Retained


async def retain(
    storage: Storage,
    retention: Retention,
    entry: JobEntry,
    status: JobStatus,
    body: Checkpoints,
    about: Manifest,
) -> str:
    """Write the file that lists the retained checkpoints of a job about to have this status.

    Returns the file's path; empty where none are retained: the cleanup then deletes them. Where
    the list cannot be read or written, all are kept: the result is then their directory.
    """
    directory = entry.intent.checkpoints if entry.intent else ""
    if not directory or not entry.checkpoints or not is_retained(retention, status):
        return ""
    if not body.completed:  # No checkpoint was completed, or the list cannot be read.
        return "" if body.counter else directory
    path = f"{directory}/{_name(body.completed[-1].number)}"
    content = Retained(about=about, directory=directory, checkpoints=body)
    data = files.dump(content, pretty=True)
    try:
        holder, file = storage_of(storage.blocking, path)
        async with asyncio.timeout(RETAIN_S):
            await persist(
                "write down which checkpoints are retained",
                lambda: storage.run(holder.publish, file, data),
            )
    except (TimeoutError, ConfigurationError) as error:
        _log.error("%s cannot be written: %s", path, str(error) or "timeout")
        return directory
    return path


def find(address: str) -> RetainedCheckpoints | None:
    """Return the retained checkpoints at an address: of their file or directory. Blocking.

    The newest file, where there are several; None without any. Raises `CheckpointError` for an
    unreadable file, and `ConfigurationError`.
    """
    parent, name = split(address)
    named = _NAME.fullmatch(name)
    directory = parent if named else address.rstrip("/")
    storage = FileTree(directory).storage
    try:
        names = [name] if named else storage.names("")
        numbers = [int(match[1]) for one in names if (match := _NAME.fullmatch(one))]
        if not numbers:
            return None
        file = _name(max(numbers))
        content = files.load(storage.read(file), f"{directory}/{file}")
        return RetainedCheckpoints(directory, max(numbers), content)
    except NotFoundError:
        return None
    except DataError as error:
        raise CheckpointError(f"the retained checkpoint cannot be used: {error}") from error


def savepoint_of(found: RetainedCheckpoints) -> savepoints.FoundSavepoint:
    """Make a savepoint of retained checkpoints, beside them, and return it. Blocking.

    The files are copied each time, since the retained ones may change: while they are unchanged,
    every copy is the same to the last byte. Raises `CheckpointError`.
    """
    directory, content = found.directory, found.content
    address = f"{directory}/savepoint-{found.number}"
    wanted = [
        _as_found(one, address_of("", content.directory), directory)
        for one in core.latest(content.checkpoints)
        if one.kind is not CheckpointKind.HANDLE  # Its table went with the application.
    ]
    places = Directories(storage=directory, checkpoints=directory, tables=directory)
    try:
        savepoint_files.write(wanted, places, content.about, address, threading.Event())
    except UnderWayError as error:
        raise CheckpointError(
            f"{directory}: {error} when the job ended, and only that could have told whether its "
            "rows are there: start the job without --from-savepoint"
        ) from error
    except (NotFoundError, DataError) as error:
        raise CheckpointError(f"the retained checkpoint is damaged: {error}") from error
    except OSError as error:
        raise CheckpointError(
            f"{address}: the savepoint of what is retained cannot be written: {error}; copy the "
            "directory to where you may write, and give the copy"
        ) from error
    return savepoints.read(address)


def _as_found(one: Checkpoint, before: str, directory: str) -> Checkpoint:
    """Return a checkpoint with its present location: the directory may have been moved."""
    whole = address_of("", one.location)
    if one.kind is CheckpointKind.WRITE or not whole.startswith(f"{before}/"):
        return one
    return replace(one, location=f"{directory}{whole.removeprefix(before)}")


def _name(number: int) -> str:
    return f"checkpoint-{number}.json"
