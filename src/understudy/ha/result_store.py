"""JobResultStore and ApplicationResultStore: results of jobs and applications (FLIP-194, FLIP-560).

The commit is one fenced register write (`JobEntry.result`, `ApplicationDocument.result`). The files
here are published from the commit for people and third parties, with the same bytes in every
term: ``<id>_DIRTY.json`` until the cleanup, then ``<id>.json`` or nothing. A file that the register
does not name is foreign. A missing file never means that the job did not run.
"""

from __future__ import annotations

from collections.abc import Sequence

from understudy.errors import DataError, NotFoundError
from understudy.ha.format import Format, digest
from understudy.ha.storage import Storage
from understudy.model import ApplicationResult, JobId, JobResultEntry, Outcome, Pointer

DIRTY_SUFFIX = "_DIRTY.json"
CLEAN_SUFFIX = ".json"

outcomes: Format[Outcome] = Format("job-result", Outcome)
application_results: Format[ApplicationResult] = Format("application-result", ApplicationResult)


class ResultStore:
    """Result files in one directory; one class serves jobs and applications."""

    def __init__(self, storage: Storage, directory: str) -> None:
        self._storage = storage
        self.directory = directory

    async def publish_dirty(self, result_id: str, source: Pointer) -> None:
        """Publish the file of a committed result from its staged bytes; idempotent."""
        path = self.dirty_path(result_id)
        data = await self._sound(path, source.digest)
        if data is not None or await self._storage.exists(self.clean_path(result_id)):
            return
        data = await self._sound(source.path, source.digest)
        if data is None:
            raise NotFoundError(
                f"{source.path}: the staged result of {result_id} is gone or altered, "
                f"and so is {path}"
            )
        await self._storage.publish(path, data)

    async def mark_clean(self, result_id: str, *, keep: bool) -> None:
        """Turn the dirty file into a clean one, or remove it; idempotent."""
        dirty = self.dirty_path(result_id)
        if keep:
            try:
                data = await self._storage.read(dirty)
            except NotFoundError:
                return
            await self._storage.publish(self.clean_path(result_id), data)
        await self._storage.delete(dirty)

    async def read(self, result_id: str, source: Pointer) -> bytes:
        """Return the bytes of a committed result, from its staged, dirty or clean file.

        The cleanup moves the bytes in the same order, so that no read misses them.
        """
        (data,) = await self.read_all([(result_id, source)])
        if data is not None:
            return data
        place = self._storage.place(self.dirty_path(result_id))
        raise NotFoundError(
            f"{place}: the result file was removed or altered, and so was "
            f"{self._storage.place(source.path)}; the register still knows how the job ended"
        )

    async def read_all(self, wanted: Sequence[tuple[str, Pointer]]) -> list[bytes | None]:
        """Return the bytes of several committed results; None for each missing one."""
        return await self._storage.run(lambda: [self._find(*each) for each in wanted])

    async def prune(self) -> None:
        """Remove the directory if it is empty."""
        await self._storage.prune(self.directory)

    def dirty_path(self, result_id: str) -> str:
        """Return the path of the file before the cleanup."""
        return f"{self.directory}/{result_id}{DIRTY_SUFFIX}"

    def clean_path(self, result_id: str) -> str:
        """Return the path of the file after the cleanup, if kept."""
        return f"{self.directory}/{result_id}{CLEAN_SUFFIX}"

    def _find(self, result_id: str, source: Pointer) -> bytes | None:
        for path in (source.path, self.dirty_path(result_id), self.clean_path(result_id)):
            try:
                data = self._storage.blocking.read(path)
            except (NotFoundError, DataError):
                continue
            if digest(data) == source.digest:
                return data
        return None

    async def _sound(self, path: str, expected_digest: str) -> bytes | None:
        try:
            data = await self._storage.read(path)
        except (NotFoundError, DataError):
            return None
        return data if digest(data) == expected_digest else None


async def read_outcome(results: ResultStore, job_id: JobId, result: JobResultEntry) -> Outcome:
    """Read a job's committed result."""
    data = await results.read(job_id, result.source)
    return outcomes.load(data, f"result of job {job_id}")
