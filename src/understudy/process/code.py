"""The application's code: collected beside the script, stored as blobs, laid out for imports.

In a layout ``app/`` holds the script and the modules beside it, ``files/`` the ``--py-files``; a
wheel becomes a directory with the wheel's name, so that packages find their data files. Files for
Spark (`process.given_files`) are beside those two. A layout is named by the digest of its artifact
list, published whole, and shared by all processes of a host.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import msgspec
from msgspec.structs import replace

from understudy.core.converted import module_name
from understudy.errors import UsageError
from understudy.ha import layout, own_directory, removal
from understudy.ha.blobs import BlobStore
from understudy.ha.format import digest
from understudy.ha.storage import BlockingStorage, LocalStorage
from understudy.model import Artifact, UploadedArtifact
from understudy.process.disk import Disk

CODE_BYTES_MAX = 10 << 20
CODE_FILES_MAX = 1_000
"""Limits for the code beside a script. More is data, or a home directory."""

WHEEL = ".whl"

APP = "app"
"""Directory of a layout with the script and the modules beside it."""

CODE_ARCHIVES = (".zip", ".tar.gz", ".tgz")
"""Uploads with a script and the modules beside it."""

LAYOUT_MARK = "understudy.layout"
"""A file in each layout with all file sizes as JSON. It marks the layout as no code of an
application: storage may be below a script's directory."""

WAY_OUT = "set TMPDIR to a directory of your own: code would be executed from there"

DRAFT = ".draft-"
"""Beginning of the name of what is laid out or removed just now."""

PLACED_MAX = 10
"""How often another process may repair the same damaged layout first."""

_SKIPPED = {"__pycache__", "node_modules", "site-packages", "spark-warehouse", "metastore_db"}


@dataclass(frozen=True)
class SourceFile:
    """A file of the application: its path, and its name in the layout."""

    path: Path
    name: str
    on_path: bool = False

    def read(self) -> bytes:
        """Return what is stored of the file."""
        return self.path.read_bytes()

    def is_there(self) -> bool:
        """Return whether the file may still be read."""
        return self.path.is_file()


def beside(script: Path, root: Path | None = None) -> list[SourceFile]:
    """Return the script and the modules beside it, or all those below ``root``.

    Raises `UsageError` above the limits, and for a module that cannot be read.
    """
    root = root or script.parent
    found = [SourceFile(script, f"app/{script.relative_to(root).as_posix()}")]
    size = script.stat().st_size
    for path in _modules(root):
        if path == script:
            continue
        if not os.access(path, os.R_OK):
            raise UsageError(
                f"{path} lies beside {script.name} and cannot be read: correct its permissions, or "
                "put the script and its modules into a directory of their own"
            )
        if not _is_text(path.name):
            raise UsageError(
                f"{str(path)!r} lies beside {script.name}, and its name is no UTF-8: rename it"
            )
        found.append(SourceFile(path, f"app/{path.relative_to(root).as_posix()}"))
        size += path.stat().st_size
        if len(found) > CODE_FILES_MAX or size > CODE_BYTES_MAX:
            raise UsageError(
                f"{root} holds more than {CODE_FILES_MAX} files or {CODE_BYTES_MAX >> 20} MB of "
                f"Python beside {script.name}, all of which would be stored with it: put the "
                "script and its modules into a directory of their own"
            )
    return found


def _archives() -> ModuleType:
    """Return the module that knows wheels, which few applications bring."""
    return importlib.import_module("understudy.process.archives")


def py_files(paths: Iterable[str]) -> list[SourceFile]:
    """Return the files of ``--py-files``: .py files, .zip archives, eggs and wheels."""
    found = []
    for text in paths:
        path = Path(text)
        if path.suffix not in {".py", ".zip", ".egg", WHEEL}:
            raise UsageError(f"--py-files {text}: expected .py, .zip, .egg or .whl")
        if not path.is_file():
            raise UsageError(f"--py-files {text}: no such file")
        if path.suffix == WHEEL:
            _archives().check_wheel(path)
        found.append(SourceFile(path, f"files/{path.name}", on_path=path.suffix != ".py"))
    return found


def sources(files: Iterable[SourceFile]) -> dict[str, bytes]:
    """Return the Python sources among the files, also those in archives, by their module's name."""
    found = {}
    for file in files:
        if file.on_path:
            found.update(_archives().python_sources(file.path))
        elif name := module_name(file.name.partition("/")[2]):
            found[name] = file.read()
    return found


def changed(stored: Iterable[Artifact], files: Iterable[SourceFile]) -> list[str]:
    """Return the names of files that were changed, added or removed since storing; sorted."""
    before = {item.name: item.digest for item in stored}
    now = {file.name: digest(file.read()) for file in files}
    names = (name for name in {*before, *now} if before.get(name) != now.get(name))
    return sorted({name.partition("/")[2] for name in names})


def store(blobs: BlobStore, files: Iterable[SourceFile]) -> tuple[Artifact, ...]:
    """Put files into the BlobStore; return their artifacts."""
    artifacts = []
    for file in files:
        body = file.read()
        artifacts.append(
            Artifact(name=file.name, digest=blobs.put(body), size=len(body), on_path=file.on_path)
        )
    return tuple(artifacts)


def uploaded(one: UploadedArtifact, directory: str) -> Artifact:
    """Return an upload as an artifact of an application, which reads it where it is stored.

    ``directory``: ``app`` for a script and the modules beside it, ``files`` for ``--py-files``. An
    archive of modules is unpacked in ``app``, except a wheel, which is a directory of its own.
    """
    if directory == APP and one.name.endswith(CODE_ARCHIVES):
        return Artifact(name=APP, digest=one.digest, size=one.size, path=one.path, unpacked=True)
    return Artifact(
        name=f"{directory}/{one.name}",
        digest=one.digest,
        size=one.size,
        on_path=one.name.endswith((".zip", WHEEL)),
        path=one.path,
    )


def code_digest(artifacts: tuple[Artifact, ...]) -> str:
    """Return the name of a layout: the same for the same content, wherever it is stored."""
    content = [replace(one, path="") for one in artifacts]
    encoded = msgspec.json.encode(content, order="sorted")
    return hashlib.sha256(encoded).hexdigest()[:24]


def python_path(directory: str, artifacts: tuple[Artifact, ...]) -> tuple[str, ...]:
    """Return the entries for Python's path, in order."""
    packed = tuple(f"{directory}/{item.name}" for item in artifacts if item.on_path)
    return (f"{directory}/app", f"{directory}/files", *packed)


def lay_out(
    storage: BlockingStorage, cluster: str, directory: str, artifacts: tuple[Artifact, ...]
) -> Path:
    """Lay the artifacts out on this host unless they already are; return the directory."""
    target = layout_base(storage, cluster) / code_digest(artifacts)
    if not isinstance(storage, LocalStorage):
        own_directory.check(target.parent, WAY_OUT)
    if _is_whole(target):
        return target
    blobs = BlobStore(storage, cluster, directory)
    for artifact in artifacts[:1]:
        blobs.get(artifact)  # Raises for a vanished storage, which must not be created again.
    for _ in range(PLACED_MAX):
        own_directory.make(target.parent, way_out=WAY_OUT)
        draft = _draft_in(target.parent)
        try:
            _write(draft, blobs, artifacts)
            _seal(draft)
            _place(draft, target)
        except FileNotFoundError:
            if (draft / LAYOUT_MARK).exists():
                raise
        else:
            return target
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    raise _disturbed(target)


def _write(draft: Path, blobs: BlobStore, artifacts: tuple[Artifact, ...]) -> None:
    """Write the artifacts into a new draft.

    The mark comes first, still empty. Another JobManager of this host, whose term has ended, may
    remove drafts meanwhile; a directory that is created again behind it has no mark.
    """
    draft.mkdir()
    (draft / LAYOUT_MARK).touch()
    for artifact in artifacts:
        path = draft / artifact.name
        path.parent.mkdir(parents=True, exist_ok=True)
        if artifact.unpacked:
            path.mkdir(exist_ok=True)
            _archives().unpack_code(blobs.get(artifact), path)
        elif artifact.on_path and path.suffix == WHEEL:
            _archives().unpack_wheel(blobs.get(artifact), path)
        else:
            path.write_bytes(blobs.get(artifact))
    for name in ("app", "files"):
        (draft / name).mkdir(exist_ok=True)


def _seal(draft: Path) -> None:
    """Write the layout's file sizes and make all files durable, before the rename.

    Raises `FileNotFoundError` for a draft that was removed while it was written.
    """
    found, mark, disk = list(draft.rglob("*")), draft / LAYOUT_MARK, Disk()
    files = [path for path in found if path.is_file() and path != mark]
    sizes = {path.relative_to(draft).as_posix(): path.stat().st_size for path in files}
    with mark.open("r+b") as opened:
        opened.write(msgspec.json.encode(sizes))
    for path in (*found, draft):
        disk.sync(path)


def _is_whole(target: Path) -> bool:
    """Return whether a layout exists with all its sealed files.

    A crash of the host, or a cleaner of temporary directories, may have removed files. With an
    empty script the run would end at once.
    """
    try:
        sizes = msgspec.json.decode((target / LAYOUT_MARK).read_bytes(), type=dict[str, int])
        return all((target / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, msgspec.DecodeError):
        return False


def _place(draft: Path, target: Path) -> None:
    """Rename a draft to its final name; replace a damaged layout there, and keep a whole one."""
    for _ in range(PLACED_MAX):
        try:
            draft.rename(target)
        except OSError:
            if _is_whole(target):
                return
            if not target.is_dir():
                raise
        else:
            Disk().sync(target.parent)
            return
        shutil.rmtree(_put_aside(target), ignore_errors=True)
    raise _disturbed(target)


def _disturbed(target: Path) -> OSError:
    return OSError(errno.EBUSY, "the code cannot be laid out: others do so", str(target))


def _put_aside(laid_out: Path) -> Path:
    """Rename a layout before its removal, so that a crash leaves no partial layout in place."""
    draft = _draft_in(laid_out.parent)
    with contextlib.suppress(FileNotFoundError):  # Another process has renamed it.
        laid_out.rename(draft)
    return draft


def _draft_in(base: Path) -> Path:
    return base / f"{DRAFT}{uuid.uuid4().hex}"


def layout_base(storage: BlockingStorage, cluster: str) -> Path:
    """Return the directory of a cluster's layouts: in local storage or the temporary directory."""
    if isinstance(storage, LocalStorage):
        return storage.root / layout.code_directory(cluster, "x").rpartition("/")[0]
    # One directory, which a cleanup can remove; other users can predict its name.
    marked = layout.marked(cluster, storage.url)
    return Path(tempfile.gettempdir()) / f"understudy-{os.getuid()}-code-{marked}"


def remove_layouts(base: Path, kept: frozenset[str] = frozenset()) -> None:
    """Remove a cluster's layouts on this host, except those that are ``kept``; absent is fine.

    Where some are kept, others may be drafted just now: drafts are left to the last removal.
    """
    removal.refuse_links(base.parent, base.name)
    if not base.exists():
        return
    if kept:
        for laid_out in base.iterdir():
            if laid_out.name not in kept and not laid_out.name.startswith(DRAFT):
                removal.remove_tree(base, _put_aside(laid_out).name)
        return
    for laid_out in base.iterdir():
        _put_aside(laid_out)
    removal.remove_tree(base.parent, base.name)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _modules(root: Path) -> Iterator[Path]:
    for directory, names, files in os.walk(root):
        here = Path(directory)
        names[:] = sorted(
            name
            for name in names
            if name not in _SKIPPED
            and not name.startswith(".")
            and not (here / name / "pyvenv.cfg").exists()
            and not (here / name / LAYOUT_MARK).exists()
        )
        package = (here / "__init__.py").exists() and here != root
        for name in sorted(files):
            wanted = name.endswith(".py") or (package and not name.endswith((".pyc", ".pyo")))
            # A pipe would be read for ever; editors leave links to nothing (``.#app.py``).
            if wanted and (here / name).is_file():
                yield here / name
