"""Routes about uploaded artifacts, and the same under Flink's names, ``/jars``.

An upload is received into a temporary file without a name, checked as a whole, and answered once it
is durable. Its id follows from its content and name, so a client may repeat an upload whose answer
was lost.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import tempfile
from typing import BinaryIO

from starlette.requests import Request
from starlette.responses import Response

from understudy.api import answers, audit, bodies_submitting
from understudy.api.answers import Operation, Routes
from understudy.api.leading import Leading
from understudy.api.multipart import OneFile, boundary_of
from understudy.api.views import Json, milliseconds
from understudy.config import options
from understudy.errors import DataError, TooLargeError, UsageError
from understudy.ha.artifact_store import ReceivedFile
from understudy.model import UploadedArtifact
from understudy.process import archives

WRITTEN_BYTES = 1 << 20
"""Bytes of an upload that are written, and added to its digest, at a time."""

_log = logging.getLogger(__name__)


class ArtifactRoutes:
    """Everything below ``/artifacts`` and ``/jars``."""

    def __init__(self, leading: Leading) -> None:
        self._leading = leading

    def routes(self) -> Routes:
        """Return method, path and handler of each."""
        return [
            Operation(
                *("GET", "/artifacts", self._list),
                "All uploaded artifacts, the latest first.",
                bodies_submitting.ArtifactList,
            ),
            Operation(
                "GET", "/jars", self._jars, "The same in Flink's shape.", bodies_submitting.JarList
            ),
            *(
                Operation(
                    *("POST", f"{base}/upload", self._upload),
                    "Upload an artifact: .py, .zip, .whl or .tar.gz.",
                    bodies_submitting.ArtifactUpload,
                    takes_file=True,
                )
                for base in ("/artifacts", "/jars")
            ),
            *(
                Operation(
                    *("DELETE", f"{base}/{{artifact_id}}", self._delete),
                    "Remove an artifact that no unfinished application needs.",
                )
                for base in ("/artifacts", "/jars")
            ),
        ]

    async def _list(self, request: Request) -> Response:
        return self._leading.json({"artifacts": [_facts(one) for one in await self._all()]})

    async def _jars(self, request: Request) -> Response:
        files = [
            {
                "id": one.artifact_id,
                "name": one.name,
                "uploaded": milliseconds(one.uploaded_at),
                "entry": [],
            }
            for one in await self._all()
        ]
        return self._leading.json({"address": self._leading.manager.me.rest, "files": files})

    async def _all(self) -> list[UploadedArtifact]:
        services = self._leading.manager.around.services
        return await services.artifacts.listed(self._leading.term.number)

    async def _delete(self, request: Request) -> Response:
        services = self._leading.manager.around.services
        artifact = str(request.path_params["artifact_id"])
        await services.artifacts.remove(self._leading.term.number, artifact)
        return self._leading.json({})

    async def _upload(self, request: Request) -> Response:
        settings = self._leading.settings.artifacts
        if not settings.are_taken:
            return answers.error(
                403,
                "This cluster takes no uploads: it ends with its application "
                f"({options.SHUTDOWN_ON_FINISH.key}), or {options.UPLOADS.key} is false",
            )
        await self._sweep()
        boundary = boundary_of(request.headers.get("content-type", ""))
        # Without a name: nothing is left, however this process ends.
        with tempfile.TemporaryFile(dir=settings.directory) as file:
            receiver = Receiver(OneFile(boundary), file, settings.size_max)
            async for piece in request.stream():
                await receiver.take(piece)
            received = await receiver.end()
            audit.about(request, received.artifact_id)
            around = self._leading.manager.around
            artifact = await around.services.artifacts.add(
                self._leading.term.number, received, settings.total_max, around.clock.wall()
            )
        flinks = {"filename": f"/artifacts/{artifact.artifact_id}", "status": "success"}
        return self._leading.json({**_facts(artifact), **flinks})

    async def _sweep(self) -> None:
        """Remove what nobody has used for long, which makes room."""
        around, unused_s = self._leading.manager.around, self._leading.settings.artifacts.unused_s
        term = self._leading.term.number
        try:
            await around.services.artifacts.sweep(term, unused_s, around.clock.wall())
        except (OSError, TimeoutError, DataError) as error:
            _log.warning("artifacts that are not used stay for now: %s", error)


class Receiver:
    """Receives one file of a form."""

    def __init__(self, form: OneFile, file: BinaryIO, size_max: int) -> None:
        self._form = form
        self._file = file
        self._size_max = size_max
        self._size = 0
        self._hash = hashlib.sha256()
        self._unwritten = bytearray()

    async def take(self, piece: bytes) -> None:
        """Take a piece of the form; raises `UsageError` or `TooLargeError`."""
        is_named = self._form.name is not None
        self._unwritten += self._form.feed(piece)
        if self._form.name is not None and not is_named:
            archives.check_upload_name(self._form.name)
        if self._size + len(self._unwritten) > self._size_max:
            raise TooLargeError(
                f"{self._form.name} has more than {self._size_max:,} bytes "
                f"({options.ARTIFACT_MAX.key})"
            )
        if len(self._unwritten) >= WRITTEN_BYTES:
            await asyncio.to_thread(self._write)

    async def end(self) -> ReceivedFile:
        """Return the file, which is checked; raises `UsageError`."""
        name = self._form.name
        if name is None or not self._form.is_whole:
            raise UsageError("the body ends before the file does")
        await asyncio.to_thread(self._write)
        await asyncio.to_thread(archives.check_upload, name, self._file, self._size)
        return ReceivedFile(name, f"sha256:{self._hash.hexdigest()}", self._size, self._file)

    def _write(self) -> None:
        piece, self._unwritten = self._unwritten, bytearray()
        self._hash.update(piece)
        self._file.write(piece)
        self._file.flush()
        self._size += len(piece)


def _facts(artifact: UploadedArtifact) -> Json:
    return {
        "id": artifact.artifact_id,
        "name": artifact.name,
        "size": artifact.size,
        "digest": artifact.digest,
        "uploaded": milliseconds(artifact.uploaded_at),
        "used": milliseconds(artifact.used_at),
    }
