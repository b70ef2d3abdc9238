"""``ctx.checkpoint``, ``ctx.table`` and ``ctx.read``: DataFrames that outlive an attempt.

An attempt writes the whole DataFrame to a directory of its own, then a manifest beside the files,
then records the checkpoint with the manifest's digest. Only a recorded directory counts: any other
one belongs to a dead attempt, and the next attempt removes it.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import logging
import re
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from understudy.clock import Clock
from understudy.driver.checkpointing import Recorder, counted
from understudy.errors import CheckpointError, DataError, NotFoundError, UsageError
from understudy.ha import drafts
from understudy.ha.format import Format, digest
from understudy.ha.storage import BlockingStorage, LocalStorage, storage_of
from understudy.model import Checkpoint, CheckpointKind, Record
from understudy.process.persist import once_blocking, persist_blocking
from understudy.rpc.messages import Deploy
from understudy.spark.urls import plain_url, spark_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MANIFEST = "_manifest.json"
"""Spark ignores files whose names begin with an underscore."""

NAME_CHARS_MAX = 200

HANDLE = "understudy-table"
"""The key that identifies a handle."""

_log = logging.getLogger(__name__)

_LOCATION = re.compile(r"[0-9a-f]{32}/[A-Za-z0-9][A-Za-z0-9_-]*")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class TableManifest(Record, frozen=True):
    """The contents of a DataFrame's directory."""

    name: str
    format: str
    schema: str
    """Spark's own JSON."""
    files: dict[str, int]
    """Size in bytes of each file, by name."""


manifests: Format[TableManifest] = Format("table-manifest", TableManifest)


class TableKeeper:
    """The DataFrames that one attempt or its predecessors have stored."""

    def __init__(
        self, deploy: Deploy, recorder: Recorder, storage: BlockingStorage, clock: Clock
    ) -> None:
        self._deploy = deploy
        self._recorder = recorder
        self._storage = storage
        self._clock = clock
        self._numbers = itertools.count(1)
        self._restored = {(one.kind, one.name): one for one in deploy.restored}
        self._turn = threading.Lock()
        self._used: set[tuple[CheckpointKind, str]] = set()
        self._tidied: set[str] = set()

    def checkpoint(self, spark: SparkSession, df: Any, name: str, format_: str) -> DataFrame:
        """Store a DataFrame once; return one that reads its rows (`JobContext.checkpoint`)."""
        base = f"{self._deploy.checkpoints}/tables"
        what = f"ctx.checkpoint({name!r})"
        with self._once(CheckpointKind.TABLE, name, what):
            kept = self._keep(df, CheckpointKind.TABLE, name, format_, base, what)
            return self._open(spark, kept.location, kept.digest, what, df)

    def table(self, df: Any, name: str) -> dict[str, Any]:
        """Store a DataFrame once; return its handle (`JobContext.table`)."""
        base = f"{self._deploy.tables}/{self._deploy.job_id}"
        what = f"ctx.table({name!r})"
        with self._once(CheckpointKind.HANDLE, name, what):
            kept = self._keep(df, CheckpointKind.HANDLE, name, "parquet", base, what)
        return {
            HANDLE: name,
            "application": self._deploy.application_id,
            "location": f"{self._deploy.job_id}/{kept.location.rpartition('/')[2]}",
            "digest": kept.digest,
        }

    def read(self, spark: SparkSession, handle: Any) -> DataFrame:
        """Return the DataFrame of a handle (`JobContext.read`). Raises `UsageError`."""
        if not isinstance(handle, dict) or HANDLE not in handle:
            raise UsageError(
                "ctx.read takes a handle that ctx.table has returned, in this job or an earlier "
                f"one of the application, not {_shown(handle)}"
            )
        what = f"the table {handle[HANDLE]!r}"
        application = handle.get("application")
        if application != self._deploy.application_id:
            raise UsageError(
                f"{what} is of application {application}, and goes with it; this one is "
                f"{self._deploy.application_id}: hand it on in a place of your own, with df.write"
            )
        location, wanted = handle.get("location"), handle.get("digest")
        if (
            not (isinstance(location, str) and isinstance(wanted, str))
            or not _LOCATION.fullmatch(location)
            or not _DIGEST.fullmatch(wanted)
        ):
            raise UsageError(f"{what}: the handle was altered: hand it on as ctx.table returned it")
        return self._open(spark, f"{self._deploy.tables}/{location}", wanted, what)

    # --- writing ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _once(self, kind: CheckpointKind, name: Any, what: str) -> Iterator[None]:
        """Refuse a bad name or one in use; a name whose write failed is free again."""
        if not isinstance(name, str) or not name.strip() or len(name) > NAME_CHARS_MAX:
            raise UsageError(
                f"{what}: the name must be text of 1 to {NAME_CHARS_MAX} characters: it says which "
                "one a restarted job gets back"
            )
        with self._turn:
            if (kind, name) in self._used:
                raise UsageError(
                    f"{what}: this attempt has used the name already: give each DataFrame its own, "
                    "such as one with the step's number, so that a restarted job gets the right one"
                )
            self._used.add((kind, name))
        try:
            yield
        except BaseException:
            self._used.discard((kind, name))
            raise

    def _keep(
        self, df: Any, kind: CheckpointKind, name: str, format_: str, base: str, what: str
    ) -> Checkpoint:
        """Return the checkpoint recorded by an earlier attempt, or write and record one."""
        tables = importlib.import_module("understudy.spark.tables")
        tables.check(df, format_, what)
        self._tidy(kind, base)
        if found := self._restored.get((kind, name)):
            return found
        tables.check_schema(df, what)
        began = self._clock.now()
        location = f"{base}/{_safe(name)}-{self._deploy.attempt}-{next(self._numbers)}"
        storage, path = self._at(location)
        taken = Checkpoint(kind=kind, name=name, attempt=self._deploy.attempt, location=location)
        with counted(self._recorder, self._clock, taken):
            try:
                schema = tables.write(df, spark_url(self._storage.url, location), format_)
                files = persist_blocking("make a table durable", lambda: _settled(storage, path))
                manifest = TableManifest(name=name, format=format_, schema=schema, files=files)
                data = manifests.dump(manifest, pretty=True)
                persist_blocking(
                    "keep a table", lambda: storage.publish(f"{path}/{MANIFEST}", data)
                )
            except BaseException:
                with contextlib.suppress(Exception):  # The first error must reach the caller.
                    storage.delete_tree(path)
                raise
        # After a refusal the files stay: the record may exist although its answer was lost.
        taken = replace(
            taken,
            digest=digest(data),
            size=sum(files.values()),
            duration_s=self._clock.now() - began,
            completed_at=self._clock.wall(),
        )
        self._recorder.record(taken)
        return taken

    def _tidy(self, kind: CheckpointKind, base: str) -> None:
        """Remove half-written tables of dead attempts, before this attempt writes."""
        with self._turn:
            if self._deploy.attempt == 1 or base in self._tidied:
                return
            self._tidied.add(base)
            needed = {
                one.location.rpartition("/")[2] for one in self._deploy.restored if one.kind is kind
            }
            storage, path = self._at(base)

            def remove() -> None:
                for name in storage.names(path):
                    if name not in needed:
                        storage.delete_tree(f"{path}/{name}")

            once_blocking("remove half-written tables", remove)

    # --- reading ----------------------------------------------------------------------------------

    def _open(
        self, spark: SparkSession, location: str, wanted: str, what: str, given: Any = None
    ) -> DataFrame:
        """Return a DataFrame that reads the stored rows. Raises `CheckpointError`."""
        manifest = self._manifest(location, wanted, what)
        tables = importlib.import_module("understudy.spark.tables")
        if given is not None and tables.differs(given, manifest.schema):
            _log.warning(
                "%s returns what an earlier attempt has kept, which has other columns than the "
                "DataFrame has now: if that is not meant, use another name for it",
                what,
            )
        url = spark_url(self._storage.url, location)
        df: DataFrame = tables.read(spark, url, manifest.format, manifest.schema)
        return df

    def _manifest(self, location: str, wanted: str, what: str) -> TableManifest:
        storage, path = self._at(location)
        place = spark_url(self._storage.url, location)
        try:
            data = persist_blocking("read a table", lambda: storage.read(f"{path}/{MANIFEST}"))
            if digest(data) != wanted:
                raise CheckpointError(_amiss(what, f"{place}/{MANIFEST} was altered since"))
            manifest = manifests.load(data, f"{place}/{MANIFEST}")
            found = persist_blocking("read a table", lambda: _files(storage, path))
        except (NotFoundError, DataError) as error:
            raise CheckpointError(_amiss(what, str(error))) from error
        for name in sorted({*found, *manifest.files}):
            if name not in found:
                raise CheckpointError(_amiss(what, f"{place}/{name} is gone"))
            if name not in manifest.files:
                raise CheckpointError(_amiss(what, f"{place}/{name} is not of it"))
            if found[name] != manifest.files[name]:
                sizes = f"{found[name]} bytes instead of {manifest.files[name]}"
                raise CheckpointError(_amiss(what, f"{place}/{name} has {sizes}"))
        return manifest

    def _at(self, location: str) -> tuple[BlockingStorage, str]:
        """Return the storage of a location that Spark reads, and the path within that storage."""
        return storage_of(self._storage, plain_url(spark_url(self._storage.url, location)))


def _amiss(what: str, why: str) -> str:
    return (
        f"{what} was kept, but {why}; it is not computed again by itself: use another name for it, "
        "or start a new run"
    )


def _files(storage: BlockingStorage, path: str) -> dict[str, int]:
    """Return the sizes of the files that Spark would read, by name."""
    return {
        name: size
        for name, size in storage.sizes(path).items()
        if not any(part.startswith(("_", ".")) for part in name.split("/"))
    }


def _settled(storage: BlockingStorage, path: str) -> dict[str, int]:
    """Return the files and sizes once they are on disk: Spark does not sync its files."""
    files = _files(storage, path)
    if isinstance(storage, LocalStorage):
        top = storage.root / path
        for name in files:
            drafts.sync(top / name)
        drafts.sync(top)
        for above in top.parents[:4]:  # Spark makes directories up to ``checkpoints``.
            with contextlib.suppress(PermissionError):  # Not one that Spark made.
                drafts.sync(above)
    return files


def _safe(name: str) -> str:
    """Return a directory name that Spark needs not escape."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:60]
    return plain if plain[:1].isalnum() else f"t{plain}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
