"""From a command line to what is deployed on Kubernetes: checked settings, and a blueprint."""

from __future__ import annotations

import base64
import re
import secrets
import uuid
from dataclasses import dataclass
from pathlib import Path

from understudy.cli.launch.entry_points import is_function
from understudy.cli.launch.spark_submit import SparkSubmit
from understudy.cli.launch.typed import Typed
from understudy.config import Configuration, options
from understudy.config.configuration import is_a_secret, quoted
from understudy.config.option import Option
from understudy.errors import UsageError
from understudy.kubernetes.manifests import CONFIG_BYTES_MAX, Blueprint
from understudy.kubernetes.templates import Json, read_template, template_file
from understudy.process.given_files import FILE_SETTINGS

SECRET_BYTES = 32

IN_IMAGE = "local://"
"""The scheme of what is in the image, as Flink and Spark have it."""

_HA = options.HA_TYPE.key

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://")


def cluster_name(configuration: Configuration) -> str | None:
    """Return what the names of the cluster's objects begin with; None if nobody has said it."""
    said = configuration.find(options.K8S_CLUSTER_ID)
    named = configuration.find(options.CLUSTER_ID)
    return said or (named if named and options.is_legal(named) else None)


def completed(configuration: Configuration, target: str) -> Configuration:
    """Return the settings of a cluster in pods; raises `UsageError` for what it cannot do."""
    cluster = cluster_name(configuration) or f"understudy-{uuid.uuid4().hex[:10]}"
    session = target == options.KUBERNETES_SESSION
    found = configuration.with_settings(
        {
            options.EXECUTION_TARGET.key: target,
            **settings_of(configuration, cluster),
            **({options.SESSION.key: "true"} if session else {}),
        }
    )
    if found.is_standalone:
        raise UsageError(
            f"{_HA} is NONE: in pods, a leader is found by its register; leave it out, and "
            "the API server has it (kubernetes)"
        )
    if not session and found.get(options.SESSION):
        raise UsageError(f"{options.SESSION.key} is true: start it with `understudy session start`")
    if not found.find(options.K8S_IMAGE):
        raise UsageError(
            f"{options.K8S_IMAGE.key} is not set: name the image that has Understudy, PySpark and "
            "the application"
        )
    _check_storage(found)
    return found


def settings_of(configuration: Configuration, cluster: str) -> dict[str, str]:
    """Return the ids of a cluster in pods, and what is usual there and not set."""
    usual = {_HA: "kubernetes", options.WORKER_PROVIDER.key: "kubernetes"}
    chosen = {key: text for key, text in usual.items() if key not in configuration.settings}
    return {
        options.K8S_CLUSTER_ID.key: cluster,
        options.CLUSTER_ID.key: configuration.find(options.CLUSTER_ID) or cluster,
        **chosen,
    }


def _check_storage(configuration: Configuration) -> None:
    """Raise `UsageError` for storage that the pods of a cluster do not share."""
    key, place = options.STORAGE_DIR.key, configuration.find(options.STORAGE_DIR)
    if not place:
        raise UsageError(
            f"{key} is not set: name what all pods reach, a URL (s3://bucket/path) or the "
            f"directory where {options.K8S_TEMPLATE.key} mounts a shared volume"
        )
    is_mounted = any(
        template_file(configuration, one)
        for one in (options.K8S_JOBMANAGER_TEMPLATE, options.K8S_TASKMANAGER_TEMPLATE)
    )
    if not _SCHEME.match(place) and not is_mounted:
        raise UsageError(
            f"{key} is {place}, a directory of each pod alone: name a URL, or mount a shared "
            f"volume there with {options.K8S_TEMPLATE.key}"
        )


def readable_secrets(configuration: Configuration) -> list[str]:
    """Return the keys whose secret values a ConfigMap would show."""
    further = configuration.get(options.REDACTED_KEYS)
    return [key for key in configuration.settings if is_a_secret(key, further)]


def blueprint(
    configuration: Configuration, namespace: str, arguments: tuple[str, ...] = ()
) -> Blueprint:
    """Return what is deployed, without a run; raises `ConfigurationError`."""
    cluster = configuration.get(options.K8S_CLUSTER_ID)
    has_own = configuration.find(options.SECRET_FILE)
    # Where a link needs a secret it is checked with the addresses that pods have.
    configuration.with_settings(
        {options.SECRET_FILE.key: has_own or "made", options.BIND_HOST.key: "10.0.0.1"}
    )
    found = Blueprint(
        cluster,
        namespace,
        configuration,
        arguments,
        secret=None if has_own else base64.b64encode(secrets.token_bytes(SECRET_BYTES)),
        jobmanager_template=_template(configuration, options.K8S_JOBMANAGER_TEMPLATE),
        taskmanager_template=_template(configuration, options.K8S_TASKMANAGER_TEMPLATE),
    )
    for _, one in found.objects():
        size = sum(len(text.encode()) for text in one.get("data", {}).values())
        if size > CONFIG_BYTES_MAX:
            raise UsageError(
                f"the configuration has {size:,} bytes, a ConfigMap takes {CONFIG_BYTES_MAX:,}: "
                "put large files into the image"
            )
    return found


def _template(configuration: Configuration, own: Option[str]) -> Json | None:
    path = template_file(configuration, own)
    if path is None:
        return None
    key = own.key if configuration.find(own) else options.K8S_TEMPLATE.key
    return read_template(key, path)


@dataclass(frozen=True)
class Further:
    """Options of run-application about the run, which the JobManager has too."""

    rerun: tuple[str, ...] = ()
    savepoints: tuple[str, ...] = ()
    allow_non_restored: bool = False
    claim: str = ""


def application_arguments(typed: Typed, further: Further) -> tuple[str, ...]:
    """Return the words of ``understudy jobmanager`` that name an application in an image.

    Raises `UsageError` for files of this machine, which no pod has.
    """
    found: list[str] = []
    said = typed.said
    if said.name:
        found += ["--name", said.name]
    if said.py_files:
        found += ["--py-files", ",".join(said.py_files)]
    for key, value in said.conf.items():
        _check_files(key, value)
        found += ["--conf", f"{key}={value}"]
    for name in further.rerun:
        found += ["--rerun", name]
    for path in further.savepoints:
        found += ["--from-savepoint", path]
    if further.allow_non_restored:
        found.append("--allow-non-restored-state")
    if further.claim:
        found += ["--claim-mode", further.claim]
    if typed.runs_as:
        found += ["--as", typed.runs_as.value]
    if typed.is_module:
        found.append("-m")
    return (*found, _app(typed), *typed.args)


def requirements_setting(said: SparkSubmit) -> dict[str, str]:
    """Return the setting that stands for ``--requirements``: the file's text."""
    if not said.requirements:
        return {}
    try:
        text = Path(said.requirements).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--requirements {said.requirements}: {error}") from error
    return {options.PYTHON_REQUIREMENTS.key: text}


def _app(typed: Typed) -> str:
    if typed.app is None:
        raise UsageError("give APP: a script in the image (local:///opt/app/etl.py), or a URL")
    if typed.is_module or is_function(typed.app) or _SCHEME.match(typed.app):
        return typed.app
    raise UsageError(
        f"{quoted(typed.app)} is a file of this machine, which pods do not have: put it into the "
        f"image and name it there, as {IN_IMAGE}/opt/app/{Path(typed.app).name}, or name a URL"
    )


def _check_files(key: str, value: str) -> None:
    for flag, setting in FILE_SETTINGS.items():
        if key != setting:
            continue
        for item in value.split(","):
            if item and not _SCHEME.match(item):
                raise UsageError(
                    f"--{flag} {item}: a file of this machine, which pods do not have: name one "
                    f"in the image ({IN_IMAGE}/path), or a URL"
                )
