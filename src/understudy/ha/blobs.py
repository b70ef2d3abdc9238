"""BlobStore: the files of an application, named by their digest, durable at upload.

Jobs share the blobs of their application; the application's cleanup removes them together. An
uploaded artifact stays where it was uploaded to (`artifact_store`), and is only read here.
"""

from __future__ import annotations

from understudy.errors import CorruptDataError, DataError, NotFoundError
from understudy.ha import layout
from understudy.ha.format import digest
from understudy.ha.storage import BlockingStorage
from understudy.model import Artifact


class BlobStore:
    """The artifacts of one application. Methods block: call them in a thread."""

    def __init__(self, storage: BlockingStorage, cluster: str, directory: str) -> None:
        self._storage = storage
        self._directory = f"{layout.application_directory(cluster, directory)}/blobs"

    def put(self, body: bytes) -> str:
        """Store bytes and return their digest; idempotent."""
        name = digest(body)
        try:
            there = self._storage.read(self._path(name))
        except (NotFoundError, DataError):
            there = None
        if there != body:
            self._storage.publish(self._path(name), body)
        return name

    def get(self, artifact: Artifact) -> bytes:
        """Return an artifact's bytes; raises `NotFoundError` or `CorruptDataError`."""
        path = artifact.path or self._path(artifact.digest)
        body = self._storage.read(path)
        if digest(body) != artifact.digest:
            raise CorruptDataError(f"{self._storage.url}/{path}: {artifact.name} was altered")
        return body

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name.removeprefix('sha256:')}"
