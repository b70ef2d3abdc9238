"""Turning the command line into a submission: script or function, with its files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from understudy.cli.launch.entry_points import EntryPoint, check, entry_point, full_name
from understudy.cli.launch.spec import ApplicationSpec, RunsAs
from understudy.config import Configuration, options
from understudy.config.configuration import learn_secrets, quoted
from understudy.config.secrets import masked
from understudy.core.converted import builder_settings, imports_understudy, module_name
from understudy.core.matching import NAME_BYTES_MAX, is_application_name
from understudy.errors import UsageError
from understudy.jobmanager.submission import Submission
from understudy.process import code, given_files, requirements
from understudy.process.code import SourceFile
from understudy.process.reporter import printable

if TYPE_CHECKING:
    from understudy.cli.launch.typed import Typed


VARIABLES = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
"""Variables that name what the settings `given_files.PYTHON_SETTINGS` name."""


def application_spec(configuration: Configuration, typed: Typed) -> ApplicationSpec:
    """Return the complete application from the command line. Raises `UsageError`."""
    if typed.app is None:
        raise UsageError("give APP (a script, or module:function)")
    cwd, said = str(Path.cwd()), typed.said
    app = typed.app if typed.is_module else full_name(typed.app)
    entry = entry_point(app, cwd, is_module=typed.is_module)
    check(entry)
    settings = {**said.conf, **_packed_python(said.conf)}
    title = _checked_title(said.name or settings.get("spark.app.name") or entry.title)
    settings["spark.app.name"] = title
    learn_secrets(settings, configuration.get(options.REDACTED_KEYS))
    spec = ApplicationSpec(
        app,
        typed.args,
        cwd,
        title,
        said.py_files,
        settings,
        is_module=typed.is_module,
        python=typed.python or "",
        requirements=said.requirements,
        requirements_text=""
        if said.requirements
        else configuration.find(options.PYTHON_REQUIREMENTS) or "",
    )
    has_requirements = bool(spec.requirements or spec.requirements_text)
    requirements.check_one_python(settings, has_requirements=has_requirements)
    files = source_files(spec)  # Refuse now files that could not be stored later.
    found = typed.runs_as or _runs_as(entry, files)
    if found is RunsAs.JOB and entry.begins:
        # Drivers are started before the script runs: what it asks for then would come too late.
        written = builder_settings(entry.begins.read(), entry.function)
        learn_secrets(written, configuration.get(options.REDACTED_KEYS))
        adopted = {key: value for key, value in written.items() if key not in spec.conf}
        spec = replace(spec, conf={**adopted, **spec.conf}, adopted=tuple(sorted(adopted)))
    return replace(spec, runs_as=found, overruled=typed.runs_as is not None)


def adopted_settings(spec: ApplicationSpec) -> str:
    """Return what to tell of the settings that drivers take from the script; empty for none."""
    if not spec.adopted:
        return ""
    told = masked(", ".join(f"{key}={spec.conf[key]}" for key in spec.adopted))
    return (
        f"understudy: drivers start with these settings of {target_of(spec)}, which --conf "
        f"overrules: {printable(told)}"
    )


def unconverted(spec: ApplicationSpec) -> str:
    """Return what to tell of an application that was not converted; empty for any other."""
    if spec.runs_as is RunsAs.MAIN or spec.overruled:
        return ""
    return (
        f"understudy: {target_of(spec)} does not import understudy, so all of it runs as one job: "
        "the loss of a JobManager does not touch it, the loss of its driver starts it again from "
        "the top (--as main changes that; docs/convert.md)"
    )


def _runs_as(entry: EntryPoint, files: Iterable[SourceFile]) -> RunsAs:
    """Return how an application runs, by whether its stored sources import Understudy."""
    if entry.begins is None or entry.begins not in entry.files:
        return RunsAs.MAIN  # Installed, or a part of Python: nobody looks into that.
    sources = code.sources(files)
    name = module_name(entry.begins.name.partition("/")[2]) or "__main__"
    sources[name] = entry.begins.read()
    return RunsAs.MAIN if imports_understudy(name, sources) else RunsAs.JOB


def _checked_title(title: str) -> str:
    """Return a valid application name. Raises `UsageError`."""
    if not is_application_name(title):
        raise UsageError(
            f"the application's name is {quoted(title)}: use up to {NAME_BYTES_MAX:,} bytes of "
            "printable text, given with --name"
        )
    return title


def submission_of(spec: ApplicationSpec, configuration: Configuration) -> Submission:
    """Return the submission to store."""
    entry = _entry_of(spec)
    return Submission(
        name=spec.name,
        target=entry.target,
        script=entry.script,
        args=spec.args,
        cwd=spec.cwd,
        files=(*entry.files, *_given(spec)),
        conf={**configuration.passed_on("spark."), **spec.conf},
        configuration=dict(configuration.redacted()),
        first_job_id=configuration.find(options.FIRST_JOB_ID) or "",
        savepoints=spec.savepoints,
        as_job=spec.runs_as is RunsAs.JOB,
    )


def target_of(spec: ApplicationSpec) -> str:
    """Return the target: the script's file name, ``-m module``, or ``module:function``."""
    return _entry_of(spec).target


def source_files(spec: ApplicationSpec) -> list[SourceFile]:
    """Return the application's files. Raises `UsageError`."""
    return [*_entry_of(spec).files, *_given(spec)]


def _entry_of(spec: ApplicationSpec) -> EntryPoint:
    return entry_point(spec.app, spec.cwd, is_module=spec.is_module)


def _given(spec: ApplicationSpec) -> list[SourceFile]:
    return [
        *code.py_files(spec.py_files),
        *given_files.gathered(spec.conf),
        *requirements.given(spec.requirements, spec.requirements_text),
    ]


def _packed_python(conf: Mapping[str, str]) -> dict[str, str]:
    """Return settings that name an interpreter in an archive as this command's environment does.

    As with ``spark-submit --archives env.tar.gz#env`` and ``PYSPARK_PYTHON=./env/bin/python``. The
    processes of a cluster, which may have been started elsewhere, know it as a setting.
    """
    keys = given_files.PYTHON_SETTINGS
    if any(conf.get(key) for key in keys):
        return {}
    named = {key: os.environ.get(name, "") for key, name in zip(keys, VARIABLES, strict=True)}
    named = {key: value for key, value in named.items() if value}
    return named if given_files.packed_python({**conf, **named}) else {}
