"""The files of a pod's volumes, below one directory; each file is replaced as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.kubernetes.kubelet.recipe import ConfigurationError, Lookup, Object, Surroundings

DEFAULT_MODE = 0o644
TOKEN_S = 3600


class Volumes:
    """The volumes of one pod.

    ``lookup`` has the ConfigMaps and Secrets, ``token`` what the API server last gave for
    a `tokens` entry.
    """

    def __init__(self, pod: Object, root: Path) -> None:
        self._volumes: dict[str, Object] = {
            one["name"]: one for one in pod["spec"].get("volumes", [])
        }
        self.root = root
        self.bound: dict[str, Path] = {}
        """Where the volume of each claim is, once that is known."""

    def mounts(self, container: Object) -> dict[str, str]:
        """Return where the files of each mount path of a container are."""
        found = {}
        for mount in container.get("volumeMounts", []):
            place = self._place(mount["name"])
            if inner := mount.get("subPath"):
                place = place / inner
            found[mount["mountPath"]] = str(place)
        return found

    def claims(self) -> Iterator[str]:
        """Return each persistent volume claim that a volume has."""
        for volume in self._volumes.values():
            if "persistentVolumeClaim" in volume:
                yield volume["persistentVolumeClaim"]["claimName"]

    def tokens(self) -> Iterator[Object]:
        """Return each service account token that a volume has."""
        for _, source in self._sources():
            if "serviceAccountToken" in source:
                yield source["serviceAccountToken"]

    def write(self, around: Surroundings, lookup: Lookup, tokens: dict[str, str]) -> None:
        """Write all files, or raise `ConfigurationError`; ``tokens`` are by their path."""
        for name, volume in self._volumes.items():
            if "emptyDir" in volume:
                self._place(name).mkdir(parents=True, exist_ok=True)
        for name, source in self._sources():
            place = self._place(name)
            place.mkdir(parents=True, exist_ok=True)
            for file, (data, mode) in _files(source, around, lookup, tokens).items():
                publish(place / file, data, mode & ~self._group_bits(around))

    def _group_bits(self, around: Surroundings) -> int:
        """Return what root would let ``fsGroup`` do: here the pod's user owns its files."""
        context = around.pod.get("spec", {}).get("securityContext") or {}
        return 0o070 if context.get("fsGroup") else 0

    def _place(self, name: str) -> Path:
        if name not in self._volumes:
            raise ConfigurationError(f"there is no volume {name}")
        volume = self._volumes[name]
        if "persistentVolumeClaim" in volume:
            return self.bound[volume["persistentVolumeClaim"]["claimName"]]
        if "hostPath" in volume:
            return Path(volume["hostPath"]["path"])
        return self.root / "volumes" / name

    def _sources(self) -> Iterator[tuple[str, Object]]:
        """Return each source of files with the name of its volume, in the form of projections."""
        for name, volume in self._volumes.items():
            if "projected" in volume:
                for source in volume["projected"]["sources"]:
                    yield name, source
            elif "secret" in volume:
                secret = volume["secret"]
                yield name, {"secret": {**secret, "name": secret["secretName"]}}
            elif {"configMap", "downwardAPI"} & set(volume):
                yield name, volume
            elif not {"emptyDir", "hostPath", "persistentVolumeClaim"} & set(volume):
                kind = ", ".join(set(volume) - {"name"})
                raise ConfigurationError(f"this kubelet has no volumes of the kind {kind}")


def publish(path: Path, data: bytes, mode: int = DEFAULT_MODE) -> None:
    """Replace a file, so that a reader sees the old or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(data)
    part.chmod(mode)
    part.replace(path)


def _files(
    source: Object, around: Surroundings, lookup: Lookup, tokens: dict[str, str]
) -> dict[str, tuple[bytes, int]]:
    if "serviceAccountToken" in source:
        path = source["serviceAccountToken"]["path"]
        return {path: (tokens[path].encode(), DEFAULT_MODE)}
    if "downwardAPI" in source:
        return {
            item["path"]: (around.field(item["fieldRef"]["fieldPath"]).encode(), DEFAULT_MODE)
            for item in source["downwardAPI"]["items"]
        }
    kind = "configmaps" if "configMap" in source else "secrets"
    wanted = source.get("configMap") or source["secret"]
    data = lookup(kind, wanted["name"])
    if data is None and not wanted.get("optional"):
        raise ConfigurationError(f"{kind}/{wanted['name']} is not there")
    default = wanted.get("defaultMode", DEFAULT_MODE)
    items = wanted.get("items") or [{"key": key, "path": key} for key in data or {}]
    missing = [item["key"] for item in items if item["key"] not in (data or {})]
    if missing and not wanted.get("optional"):
        raise ConfigurationError(f"{kind}/{wanted['name']} has no key {missing[0]}")
    return {
        item["path"]: (data[item["key"]], item.get("mode", default))
        for item in items
        if data is not None and item["key"] in data
    }
