"""What a container shall run, made of its pod's values alone: no file is touched, nothing asked."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.kubernetes.kubelet.images import Image
from understudy.kubernetes.access import DIRECTORY_VARIABLE, SERVICE_ACCOUNT

Object = dict[str, Any]

Lookup = Callable[[str, str], Mapping[str, bytes] | None]
"""The data of a ConfigMap or a Secret by kind and name; None if there is none."""

_REFERENCE = re.compile(r"\$(\$|\(([A-Za-z_][\w.-]*)\))")
_KEYED = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
_INHERITED = ("PATH", "LANG", "TZ", "TMPDIR")


class ConfigurationError(Exception):
    """A container cannot be started as its pod says; the message says what is missing."""


@dataclass(frozen=True)
class Recipe:
    """A process to start."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str | None


@dataclass(frozen=True)
class Surroundings:
    """What a pod's container gets from its node, beside what its pod says."""

    pod: Object
    address: str
    host_address: str
    root: str
    mounts: Mapping[str, str]
    """Where the files of each mount path are."""
    server: Mapping[str, str]
    """Variables with the address of the API server."""

    def field(self, path: str) -> str:
        """Return a field of the pod, as the downward API has it."""
        metadata, spec = self.pod["metadata"], self.pod["spec"]
        if keyed := _KEYED.fullmatch(path):
            return str(metadata.get(keyed[1], {}).get(keyed[2], ""))
        values = {
            "metadata.name": metadata["name"],
            "metadata.namespace": metadata["namespace"],
            "metadata.uid": metadata["uid"],
            "spec.nodeName": spec["nodeName"],
            "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
            "status.podIP": self.address,
            "status.podIPs": self.address,
            "status.hostIP": self.host_address,
        }
        if path not in values:
            raise ConfigurationError(f"this kubelet does not know the field {path}")
        return str(values[path])

    def relocated(self, text: str) -> str:
        """Return a text in which paths below mount paths are where their files are."""
        if not self.mounts:
            return text
        places = {mount.rstrip("/"): place for mount, place in self.mounts.items()}
        longest_first = sorted(places, key=len, reverse=True)
        # Files below the machine's own /tmp, as those of tests, are reached by their paths.
        known = "|".join(
            re.escape(one) + ("(?!/)" if one == "/tmp" else "") for one in longest_first
        )
        # Not in the middle of another path, but after the scheme of a URL.
        pattern = rf"(?<![\w.-])(?:(?<!/)|(?<=://))({known})(?![\w.-])"
        return re.sub(pattern, lambda match: places[match[1]], text)


def recipe(container: Object, image: Image, around: Surroundings, lookup: Lookup) -> Recipe:
    """Return what a container shall run; raise `ConfigurationError`."""
    environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    environment |= image.environment
    environment |= around.server
    environment |= {"HOSTNAME": around.pod["metadata"]["name"], "POD_ROOT": around.root}
    environment[DIRECTORY_VARIABLE] = around.relocated(str(SERVICE_ACCOUNT))
    declared = _declared(container, around, lookup)
    environment |= {name: around.relocated(value) for name, value in declared.items()}
    command = container.get("command") or [*image.entrypoint]
    arguments = container.get("args") or ([] if container.get("command") else [*image.arguments])
    if not command:
        raise ConfigurationError(
            f"there are no images here: give the container {container['name']} a command, or "
            f"tell the kubelet what {container.get('image', 'its image')} stands for"
        )
    known = {**around.server, **declared}
    argv = [around.relocated(expanded(word, known)) for word in [*command, *arguments]]
    directory = container.get("workingDir") or image.directory
    return Recipe(
        tuple(argv), environment, around.relocated(directory) if directory is not None else None
    )


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """Return a text with ``$(NAME)`` replaced; an unknown name stays, ``$$`` is a dollar."""

    def replacement(match: re.Match[str]) -> str:
        if match[1] == "$":
            return "$"
        return variables.get(match[2], match[0])

    return _REFERENCE.sub(replacement, text)


def _declared(container: Object, around: Surroundings, lookup: Lookup) -> dict[str, str]:
    """Return the variables that the pod declares, in the order in which they see each other."""
    found: dict[str, str] = {}
    for source in container.get("envFrom", []):
        kind = "configmaps" if "configMapRef" in source else "secrets"
        data = _data(kind, source.get("configMapRef") or source["secretRef"], lookup)
        prefix = source.get("prefix", "")
        found |= {f"{prefix}{key}": value.decode() for key, value in data.items()}
    for variable in container.get("env", []):
        if (reference := variable.get("valueFrom")) is None:
            found[variable["name"]] = expanded(variable.get("value", ""), found)
        elif (value := _value(reference, around, lookup)) is not None:
            found[variable["name"]] = value
    return found


def _value(reference: Object, around: Surroundings, lookup: Lookup) -> str | None:
    if "fieldRef" in reference:
        return around.field(reference["fieldRef"]["fieldPath"])
    for word, kind in (("configMapKeyRef", "configmaps"), ("secretKeyRef", "secrets")):
        if word in reference:
            wanted = reference[word]
            data = _data(kind, wanted, lookup)
            if wanted["key"] in data:
                return data[wanted["key"]].decode()
            if wanted.get("optional"):
                return None
            raise ConfigurationError(f"{kind}/{wanted['name']} has no key {wanted['key']}")
    raise ConfigurationError(f"this kubelet does not know values from {', '.join(reference)}")


def _data(kind: str, reference: Object, lookup: Lookup) -> Mapping[str, bytes]:
    data = lookup(kind, reference["name"])
    if data is None and not reference.get("optional"):
        raise ConfigurationError(f"{kind}/{reference['name']} is not there")
    return data or {}
