"""Turning the command line into a submission: script or function, with its files."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from understudy.cli.launch.spec import ApplicationSpec
from understudy.config import Configuration, options
from understudy.config.configuration import learn_secrets, quoted
from understudy.core.matching import NAME_BYTES_MAX
from understudy.errors import UsageError
from understudy.jobmanager.submission import Submission
from understudy.process import code, given_files
from understudy.process.code import SourceFile

if TYPE_CHECKING:
    from understudy.cli.launch.spark_submit import SparkSubmit


def application_spec(
    configuration: Configuration, app: str, args: Iterable[str], said: SparkSubmit
) -> ApplicationSpec:
    """Return the complete application from the command line. Raises `UsageError`."""
    if _is_function(app):
        target, title = app, app.rpartition(":")[2]
    else:
        path = Path(app)
        if not path.is_file():
            raise UsageError(f"{app}: no such script (or give module:function)")
        if path.suffix in {".jar", ".r", ".R"}:
            raise UsageError(f"{app}: only Python applications can be run")
        target, title = str(path.absolute()), path.stem
    settings = dict(said.conf)
    title = _checked_title(said.name or settings.get("spark.app.name") or title)
    settings["spark.app.name"] = title
    learn_secrets(settings, configuration.get(options.REDACTED_KEYS))
    spec = ApplicationSpec(target, tuple(args), str(Path.cwd()), title, said.py_files, settings)
    source_files(spec)  # Refuse now files that could not be stored later.
    return spec


def _checked_title(title: str) -> str:
    """Return a valid application name: it appears in tables, logs and pages."""
    if not title.isprintable() or not title.strip() or len(title.encode()) > NAME_BYTES_MAX:
        raise UsageError(
            f"the application's name is {quoted(title)}: use up to {NAME_BYTES_MAX:,} bytes of "
            "printable text, given with --name"
        )
    return title


def submission_of(spec: ApplicationSpec, configuration: Configuration) -> Submission:
    """Return the submission to store."""
    is_function = _is_function(spec.app)
    return Submission(
        name=spec.name,
        target=target_of(spec),
        script="" if is_function else spec.app,
        args=spec.args,
        cwd=spec.cwd,
        files=tuple(source_files(spec)),
        conf={**configuration.passed_on("spark."), **spec.conf},
        configuration=dict(configuration.redacted()),
        first_job_id=configuration.find(options.FIRST_JOB_ID) or "",
        savepoints=spec.savepoints,
    )


def target_of(spec: ApplicationSpec) -> str:
    """Return the target: the script's file name, or ``module:function``."""
    return spec.app if _is_function(spec.app) else Path(spec.app).name


def source_files(spec: ApplicationSpec) -> list[SourceFile]:
    """Return the application's files. Raises `UsageError`."""
    given = [*code.py_files(spec.py_files), *given_files.gathered(spec.conf)]
    if not _is_function(spec.app):
        return [*code.beside(Path(spec.app)), *given]
    module = spec.app.partition(":")[0]
    try:
        found = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        found = None
    if found is None or not found.origin:
        local = Path(spec.cwd) / f"{module.partition('.')[0]}.py"
        if not local.is_file():
            raise UsageError(f"{spec.app}: no module {module!r} here or on Python's path")
        return [*code.beside(local), *given]
    origin = Path(found.origin)
    if "site-packages" in origin.parts or "dist-packages" in origin.parts:
        return given  # Installed: the same for every process.
    return [*code.beside(origin), *given]


def _is_function(app: str) -> bool:
    module, _, name = app.partition(":")
    return bool(name) and not Path(app).exists() and module.replace(".", "_").isidentifier()
