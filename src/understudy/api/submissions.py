"""Turns a request to run an application into a submission: what runs, with which files, and how.

Everything that can be wrong with a request is found here, before anything is stored: the entry
point, the settings, the savepoint, the archives.
"""

from __future__ import annotations

import base64
import dataclasses
import io
import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from understudy.api.bodies_submitting import PlanRequest, RunRequest
from understudy.config.brought import Brought, BroughtSettings
from understudy.config.configuration import learn_secrets, quoted
from understudy.config.options import PYTHON_REQUIREMENTS
from understudy.core import ids
from understudy.core.converted import builder_settings, imports_understudy, module_name
from understudy.core.matching import check_name, is_application_name
from understudy.errors import CheckpointError, ConfigurationError, JobNameError, UsageError
from understudy.ha import savepoints
from understudy.ha.format import digest
from understudy.ha.storage import BlockingStorage
from understudy.jobmanager import retained
from understudy.jobmanager.submission import Submission
from understudy.model import MODULE, Artifact, StartFrom, UploadedArtifact
from understudy.process import archives, code, requirements
from understudy.process.code import SourceFile
from understudy.process.given_files import FILE_SETTINGS
from understudy.spark.masters import problem_of, refuse_others

LOOKED_INTO_BYTES_MAX = archives.CODE_BYTES_MAX
"""A larger wheel is not looked into: whether its modules import Understudy stays unknown."""


@dataclass(frozen=True)
class Uploads:
    """The uploaded artifacts that a request names."""

    main: UploadedArtifact | None
    """What the path names; None for a job without ``main``."""
    py_files: tuple[UploadedArtifact, ...]
    files: tuple[UploadedArtifact, ...]
    archives: tuple[tuple[UploadedArtifact, str], ...]
    """Each with its alias, which is empty or begins with ``#``."""

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the ids of all, each once."""
        packed = (one for one, _ in self.archives)
        main = (self.main,) if self.main else ()
        found = (*main, *self.py_files, *self.files, *packed)
        return tuple(dict.fromkeys(one.artifact_id for one in found))


@dataclass(frozen=True)
class EntryPlace:
    """What is executed."""

    target: str
    """The script's path in the code, ``-m module``, or ``module:function``."""
    script: str
    """The script's path in the code; empty for the others."""
    title: str
    module: str
    """The module that is executed first."""

    @property
    def function(self) -> str:
        """Return the function's name; empty for a script and for a module."""
        return "" if self.script else self.target.partition(":")[2]


def run_id_of(body: RunRequest, minted: str) -> str:
    """Return the run that a request names; ``minted`` for one that names none."""
    if body.applicationId and body.runId:
        raise UsageError("applicationId and runId name the same: give one of them")
    if body.runId and not ids.is_run_id(body.runId):
        raise UsageError(
            f"runId {quoted(body.runId)}: use up to {ids.RUN_ID_MAX} letters (a to z), digits, "
            "'.', '_' and '-', beginning with a letter or digit"
        )
    return body.applicationId or body.runId or minted


def digest_of(artifact_id: str, body: RunRequest | PlanRequest, *, single_job: bool = False) -> str:
    """Return what tells one request from another: the same for a repeated one."""
    said = body
    if isinstance(body, RunRequest):
        said = msgspec.structs.replace(body, applicationId=None, runId=None)
    given = {key: value for key, value in msgspec.to_builtins(said).items() if value is not None}
    encoded = msgspec.json.encode([artifact_id, given, single_job], order="sorted")
    return digest(encoded).removeprefix("sha256:")[:16]


def named_by(body: RunRequest) -> Iterable[str]:
    """Yield the ids of the artifacts that a request names beside the one of its path."""
    yield from body.pyFiles or ()
    yield from body.files or ()
    for text in body.archives or ():
        yield text.partition("#")[0]


def uploads_of(
    main: UploadedArtifact | None, body: RunRequest, found: Mapping[str, UploadedArtifact]
) -> Uploads:
    """Return the artifacts in their roles. Raises `UsageError` for one that does not fit its."""
    packed = []
    for text in body.archives or ():
        artifact, separator, alias = text.partition("#")
        if not artifact.endswith(archives.ARCHIVES):
            raise UsageError(f"archives: {artifact} is no archive that Spark unpacks")
        if separator and (not alias or "/" in alias or "," in alias or alias in {".", ".."}):
            raise UsageError(f"archives: {quoted(text)}: {alias!r} is no name for a directory")
        packed.append((found[artifact], separator + alias))
    for artifact in body.pyFiles or ():
        if not artifact.endswith((".py", ".zip", code.WHEEL)):
            raise UsageError(f"pyFiles: {artifact}: expected .py, .zip or {code.WHEEL}")
    py_files = tuple(found[one] for one in body.pyFiles or ())
    files = tuple(found[one] for one in body.files or ())
    for role, several in (("pyFiles", py_files), ("files", files)):
        names = [one.name for one in several]
        if len(set(names)) < len(names):
            raise UsageError(f"{role}: two of them have one name")
    return Uploads(main, py_files, files, tuple(packed))


def submission_of(
    storage: BlockingStorage,
    accepted: BroughtSettings,
    uploads: Uploads,
    body: RunRequest,
    request: str,
) -> Submission:
    """Return the submission that a request asks for. Blocking; raises `UsageError`.

    Raises `NotFoundError` or `CorruptDataError` for an artifact that storage has lost.
    """
    brought = accepted.checked(body.flinkConfiguration or {})
    conf = dict(brought.conf)
    sources, is_complete = _sources(storage, uploads)
    assert uploads.main is not None
    entry = _entry(uploads.main, body.entryClass or "", sources, is_complete=is_complete)
    as_job = not imports_understudy(entry.module, sources)
    if body.runsAs:
        as_job = body.runsAs == "job"
    if as_job and entry.module in sources:
        # Drivers are started before the script runs: what it asks for then would come too late.
        conf = {**builder_settings(sources[entry.module], entry.function), **conf}
    title = conf.get("spark.app.name") or entry.title
    if not is_application_name(title):
        raise UsageError(f"spark.app.name is {quoted(title)}: use a line of printable text")
    conf, artifacts = _complete(accepted, conf, uploads, title)
    return Submission(
        name=title,
        target=entry.target,
        script=entry.script,
        args=_arguments(body),
        cwd=_directory(body.cwd or ""),
        files=_requirements(accepted, brought, conf),
        conf=conf,
        configuration=dict(brought.settings),
        first_job_id=body.jobId or brought.first_job_id,
        savepoints=_savepoints(body, brought),
        as_job=as_job,
        uploaded=artifacts,
        uploads=uploads.ids,
        request=request,
    )


def _requirements(
    accepted: BroughtSettings, brought: Brought, conf: Mapping[str, str]
) -> tuple[SourceFile, ...]:
    """Return the application's requirements, or else the cluster's, to store. Checked."""
    text = brought.settings.get(PYTHON_REQUIREMENTS.key) or accepted.requirements
    requirements.check_one_python(conf, has_requirements=bool(text))
    return tuple(requirements.given("", text))


def plan_submission(
    accepted: BroughtSettings, uploads: Uploads, body: PlanRequest, job_id: str, request: str
) -> Submission:
    """Return the submission of a job without ``main``. Raises `UsageError`."""
    plan, name = _plan_of(body.plan)
    brought = accepted.checked(body.flinkConfiguration or {})
    title = brought.conf.get("spark.app.name") or name
    if not is_application_name(title):
        raise UsageError(f"the application's name is {quoted(title)}: use a line of printable text")
    conf, artifacts = _complete(accepted, brought.conf, uploads, title)
    return Submission(
        name=title,
        target="",
        script="",
        args=(),
        cwd="",
        files=_requirements(accepted, brought, conf),
        conf=conf,
        configuration=dict(brought.settings),
        first_job_id=job_id,
        plan=plan,
        job_name=name,
        uploaded=artifacts,
        uploads=uploads.ids,
        request=request,
    )


def _plan_of(text: str) -> tuple[bytes, str]:
    """Return a plan, and the name of its job."""
    try:
        plan = base64.b64decode(text, validate=True)
        header = msgspec.json.decode(plan.partition(b"\n")[0], type=dict[str, Any])
    except (ValueError, msgspec.DecodeError) as error:
        raise UsageError(f"plan: is no plan of a job in base64: {error}") from None
    try:
        return plan, check_name(header.get("name"))
    except JobNameError as error:
        raise UsageError(f"plan: {error}") from error


def _complete(
    accepted: BroughtSettings, conf: Mapping[str, str], uploads: Uploads, title: str
) -> tuple[dict[str, str], tuple[Artifact, ...]]:
    """Return all of Spark's settings, and all artifacts."""
    given, artifacts = _given(conf, uploads)
    found = {**accepted.defaults, **given, "spark.app.name": title}
    if accepted.has_sessions:
        refuse_others(found, os.environ)
        if (master := found.get("spark.master")) and (problem := problem_of(master)):
            raise UsageError(f"spark.master is {quoted(master)}: {problem}")
    learn_secrets(found, accepted.redacted_keys)
    return found, artifacts


# --- settings -------------------------------------------------------------------------------------


def _given(
    conf: Mapping[str, str], uploads: Uploads
) -> tuple[dict[str, str], tuple[Artifact, ...]]:
    """Return Spark's settings with the uploaded files, and all artifacts of the application."""
    found = dict(conf)
    artifacts = [code.uploaded(uploads.main, code.APP)] if uploads.main else []
    artifacts += [code.uploaded(one, "files") for one in uploads.py_files]
    for flag, several in (
        ("files", [(one, "") for one in uploads.files]),
        ("archives", list(uploads.archives)),
    ):
        setting = FILE_SETTINGS[flag]
        listed = [one for one in found.get(setting, "").split(",") if one]
        for one, alias in several:
            # `given_files.resolved` names the copy of an item on its host by this place.
            place = f"{flag}-{len(listed)}/{one.name}"
            artifacts.append(Artifact(name=place, digest=one.digest, size=one.size, path=one.path))
            listed.append(one.name + alias)
        if listed:
            found[setting] = ",".join(listed)
    return found, tuple(artifacts)


def _arguments(body: RunRequest) -> tuple[str, ...]:
    if body.programArgs and body.programArgsList:
        raise UsageError("programArgs and programArgsList are the same: give one of them")
    if body.programArgs:
        try:
            found = tuple(shlex.split(body.programArgs))
        except ValueError as error:
            raise UsageError(f"programArgs: {error}: give programArgsList") from error
    else:
        found = tuple(body.programArgsList or ())
    if any("\0" in one for one in found):
        raise UsageError("an argument holds a NUL: no process can be given that")
    return found


def _directory(text: str) -> str:
    if text and ("\0" in text or not text.startswith("/")):
        raise UsageError(f"cwd {quoted(text)}: give an absolute path")
    return text


def _savepoints(body: RunRequest, brought: Brought) -> tuple[StartFrom, ...]:
    """Return the savepoint to start from, verified byte by byte."""
    path = body.savepointPath or brought.savepoint
    if not path:  # What else is said of a savepoint has no meaning then, as in Flink.
        return ()
    if "\0" in path or not (path.startswith("/") or "://" in path):
        raise UsageError(f"savepointPath {quoted(path)}: give an absolute path or a URL")
    try:
        if kept := retained.find(path):
            found = retained.savepoint_of(kept)
        else:
            found = savepoints.read(path)
            savepoints.check(found)
    except (CheckpointError, ConfigurationError) as error:
        raise UsageError(f"savepointPath: {error}") from error
    return (
        StartFrom(
            path=found.place.address,
            digest=found.digest,
            job_name=found.manifest.job_name,
            claim=body.claimMode == "CLAIM" if body.claimMode else brought.claims,
            may_be_left=bool(body.allowNonRestoredState) or brought.may_be_left,
        ),
    )


# --- the entry point ------------------------------------------------------------------------------


def _sources(storage: BlockingStorage, uploads: Uploads) -> tuple[dict[str, bytes], bool]:
    """Return all Python sources by module, and whether every file was looked into."""
    found: dict[str, bytes] = {}
    is_complete = True
    main = (uploads.main,) if uploads.main else ()
    for one in (*reversed(uploads.py_files), *main):  # The later ones win.
        is_main = one is uploads.main
        if one.name.endswith(code.WHEEL):
            archives.check_wheel_fits(one.name, one.name)
        if one.size > LOOKED_INTO_BYTES_MAX:
            if is_main and not one.name.endswith(code.WHEEL):
                raise UsageError(
                    f"{one.name}: takes more than the {LOOKED_INTO_BYTES_MAX >> 20} MB of a script "
                    "with its modules: bring the rest as pyFiles, files or archives"
                )
            is_complete = False
            continue
        found.update(_sources_of(one, _read(storage, one), is_main=is_main))
    return found, is_complete


def _read(storage: BlockingStorage, one: UploadedArtifact) -> bytes:
    body = storage.read(one.path)
    if digest(body) != one.digest:
        raise UsageError(f"{one.name} was altered since it was uploaded: upload it again")
    return body


def _sources_of(one: UploadedArtifact, body: bytes, *, is_main: bool) -> dict[str, bytes]:
    if one.name.endswith(".py"):
        return {module_name(one.name): body}
    if is_main and one.name.endswith(code.CODE_ARCHIVES):
        unpacked = archives.code_in(one.name, body)
        return {name: text for path, text in unpacked.items() if (name := module_name(path))}
    return archives.python_sources(io.BytesIO(body))


def _entry(
    main: UploadedArtifact, said: str, sources: Mapping[str, bytes], *, is_complete: bool
) -> EntryPlace:
    """Return what ``entryClass`` means in an artifact."""
    if not said:
        if not main.name.endswith(".py"):
            raise UsageError(
                f"entryClass is missing: say what of {main.name} runs, a script.py, a module or "
                "module:function"
            )
        said = main.name
    entry = _named(said)
    if entry.script and main.name.endswith(code.WHEEL):
        raise UsageError(f"entryClass {quoted(said)}: a wheel has modules: give one of them")
    module = entry.module
    if entry.target.startswith(MODULE) and f"{module}.__main__" in sources:
        module = f"{module}.__main__"
    if module not in sources and (entry.script or is_complete):
        raise UsageError(
            f"entryClass {quoted(said)}: neither {main.name} nor pyFiles hold it; their modules: "
            f"{', '.join(sorted(sources)[:20]) or 'none'}"
        )
    if module in sources:
        _compiled(module, sources[module])
    return dataclasses.replace(entry, module=module)


def _named(said: str) -> EntryPlace:
    """Return the entry point that a text names, wherever that is."""
    if said.endswith(".py"):
        parts = said.split("/")
        if "" in parts or "." in parts or ".." in parts or not said.isprintable():
            raise UsageError(f"entryClass {quoted(said)}: give the script's path in the archive")
        return EntryPlace(said, said, parts[-1].removesuffix(".py"), module_name(said))
    module, colon, function = said.removeprefix(MODULE).strip().partition(":")
    is_module = said.startswith(MODULE) or not colon
    dotted = [*module.split("."), *(function.split(".") if colon else [])]
    if not all(part.isidentifier() for part in dotted) or (colon and said.startswith(MODULE)):
        raise UsageError(
            f"entryClass {quoted(said)}: give a script.py, a module, or module:function"
        )
    if is_module:
        return EntryPlace(MODULE + module, "", module.rpartition(".")[2], module)
    return EntryPlace(f"{module}:{function}", "", function, module)


def _compiled(module: str, source: bytes) -> None:
    try:
        compile(source, module, "exec", dont_inherit=True)
    except SyntaxError as error:
        where = f", line {error.lineno}" if error.lineno else ""
        raise UsageError(f"{module}{where}: {error.msg}: correct the script") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{module}: Python cannot compile it: {error}") from error
