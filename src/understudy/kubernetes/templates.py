"""Pod templates: what the user's file says of a pod, merged with what the cluster needs.

As in Flink: the template may add anything; what the cluster owns wins over it. Lists whose items
have a name (containers, volumes, environment variables, ports, mounts) are merged item by item;
the container `MAIN_CONTAINER` is ours, others run beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from understudy.config import Configuration, options
from understudy.config.option import Option
from understudy.errors import ConfigurationError

Json = dict[str, Any]

MAIN_CONTAINER = "understudy-main-container"

TEMPLATE_BYTES_MAX = 256 << 10
"""A template is part of a ConfigMap, which has at most 1 MiB."""

_NAMED_BY: Mapping[str, str] = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
}
"""Lists whose items are merged, and the field that identifies an item."""

_WHOLE = ("volumes", "env")
"""Of these lists, an item is not mixed from two: a volume has one source, a variable one value."""

_JOINED = ("tolerations", "envFrom")
"""Lists of which both have a part."""

_ONE_OF = ("httpGet", "tcpSocket", "exec", "grpc")
"""Ways to probe: a probe has one of them."""


def merged(under: Json, over: Json) -> Json:
    """Return two manifests as one; ``over`` wins where both say something of one field."""
    found = dict(under)
    if any(way in over for way in _ONE_OF):
        found = {name: value for name, value in found.items() if name not in _ONE_OF}
    for name, value in over.items():
        if name not in found:
            found[name] = value
        elif isinstance(value, dict) and isinstance(found[name], dict):
            found[name] = merged(found[name], value)
        elif name in _NAMED_BY and isinstance(found[name], list):
            found[name] = _merged_lists(found[name], value, name)
        elif name in _JOINED and isinstance(found[name], list):
            found[name] = [*found[name], *(one for one in value if one not in found[name])]
        else:
            found[name] = value
    return found


def _merged_lists(under: Sequence[Json], over: Sequence[Json], name: str) -> list[Json]:
    """Return the items of both, those of ``over`` first: a later variable may refer to them."""
    identity = _NAMED_BY[name]
    theirs = {one.get(identity): one for one in under}
    found = [(theirs.pop(one[identity], {}), one) for one in over]
    ours = [one if name in _WHOLE else merged(other, one) for other, one in found]
    return [*ours, *theirs.values()]


def template_file(configuration: Configuration, own: Option[str]) -> str | None:
    """Return the path of the template for one kind of pod; None without one."""
    return configuration.find(own) or configuration.find(options.K8S_TEMPLATE)


def read_template(key: str, path: str) -> Json:
    """Return the ``metadata`` and ``spec`` of a template; raises `ConfigurationError`."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{key}: {path} cannot be read: {error.strerror}") from error
    if len(text) > TEMPLATE_BYTES_MAX:
        raise ConfigurationError(
            f"{key}: {path} has {len(text):,} bytes: a pod template has at most "
            f"{TEMPLATE_BYTES_MAX:,}"
        )
    return parsed_template(text.decode(errors="replace"), f"{key}: {path}")


def parsed_template(text: str, where: str) -> Json:
    """Return the ``metadata`` and ``spec`` of a template; raises `ConfigurationError`."""
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        said = " ".join(str(error).split())
        raise ConfigurationError(f"{where} is not YAML: {said}") from error
    if not isinstance(found, dict) or found.get("kind", "Pod") != "Pod":
        raise ConfigurationError(f"{where} is no pod: it must have `kind: Pod`")
    metadata, spec = found.get("metadata") or {}, found.get("spec") or {}
    if not isinstance(metadata, dict) or not isinstance(spec, dict):
        raise ConfigurationError(f"{where}: metadata and spec must be mappings")
    _check_items(spec, where)
    kept = {name: metadata[name] for name in ("labels", "annotations") if metadata.get(name)}
    return {"metadata": kept, "spec": spec}


def _check_items(spec: Json, where: str) -> None:
    """Refuse lists whose items cannot be told apart; raises `ConfigurationError`."""
    for name, value in spec.items():
        identity = _NAMED_BY.get(name)
        if identity is None:
            continue
        for one in value if isinstance(value, list) else (value,):
            if not isinstance(one, dict) or not one.get(identity):
                raise ConfigurationError(f"{where}: each item of {name} must have {identity!r}")
            _check_items(one, f"{where}: {name}: {one[identity]}")
