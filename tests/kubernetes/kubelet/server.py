"""The API server, as a kubelet asks it: one try each, with a deadline; who asks tries again."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import yaml

Object = dict[str, Any]

ANSWER_S = 10.0
WATCH_S = 60
"""The server ends a watch after so long; one that is silent for longer is given up."""

CORE = "/api/v1"
NODES = f"{CORE}/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"

_MERGE = {"Content-Type": "application/merge-patch+json"}

Unreachable = httpx.HTTPError
"""No answer, or one that is an error: `httpx.HTTPStatusError` has it."""


class Server:
    """The API server of a kubeconfig, asked as its user."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        user = config["users"][0]["user"]
        ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
        context = ssl.create_default_context(cadata=ca)
        # An SSL context reads a client's certificate from files only.
        for name in ("certificate", "key"):
            file = kubeconfig.with_suffix(f".{name}")
            file.touch(mode=0o600)
            file.write_bytes(base64.b64decode(user[f"client-{name}-data"]))
        context.load_cert_chain(
            kubeconfig.with_suffix(".certificate"), kubeconfig.with_suffix(".key")
        )
        self.url = str(cluster["server"])
        self.ca = ca
        self._http = httpx.AsyncClient(
            base_url=self.url, verify=context, timeout=ANSWER_S, trust_env=False
        )

    async def get(self, path: str, parameters: Mapping[str, str] | None = None) -> Object:
        """Return an object or a list."""
        return _judged(await self._http.get(path, params=parameters))

    async def create(self, path: str, body: Object) -> Object:
        """Create an object."""
        return _judged(await self._http.post(path, json=body))

    async def patch(self, path: str, body: Object) -> Object:
        """Merge fields into an object."""
        return _judged(await self._http.patch(path, content=json.dumps(body), headers=_MERGE))

    async def put(self, path: str, body: Object) -> Object:
        """Replace an object."""
        return _judged(await self._http.put(path, json=body))

    async def remove(self, path: str, uid: str) -> None:
        """Remove an object at once, if it is still this one; done if it is not there."""
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        answer = await self._http.request("DELETE", path, json=options)
        if answer.status_code not in {httpx.codes.NOT_FOUND, httpx.codes.CONFLICT}:
            _judged(answer)

    async def data(self, kind: str, name: str, namespace: str) -> dict[str, bytes] | None:
        """Return the data of a ConfigMap or a Secret; None if there is none.

        A node may read what the pods on it refer to, from a moment after they were bound to it.
        """
        answer = await self._http.get(f"{CORE}/namespaces/{namespace}/{kind}/{name}")
        if answer.status_code in {httpx.codes.NOT_FOUND, httpx.codes.FORBIDDEN}:
            return None
        found = _judged(answer)
        binary = found.get("binaryData", {}) if kind == "configmaps" else found.get("data", {})
        decoded = {key: base64.b64decode(value) for key, value in binary.items()}
        if kind == "configmaps":
            decoded |= {key: value.encode() for key, value in found.get("data", {}).items()}
        return decoded

    async def watch(self, path: str, parameters: Mapping[str, str]) -> AsyncIterator[Object]:
        """Yield what happens to a list until the server ends the stream."""
        asked = {"watch": "true", "timeoutSeconds": str(WATCH_S), **parameters}
        wait = httpx.Timeout(ANSWER_S, read=WATCH_S + ANSWER_S)
        async with self._http.stream("GET", path, params=asked, timeout=wait) as answer:
            answer.raise_for_status()
            async for line in answer.aiter_lines():
                yield json.loads(line)


def _judged(answer: httpx.Response) -> Object:
    answer.raise_for_status()
    found: Object = answer.json()
    return found
