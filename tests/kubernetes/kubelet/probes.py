"""Whether a container is ready, and whether it is alive, as its pod wants it to be asked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import httpx

from tests.kubernetes.kubelet.recipe import Recipe

Object = dict[str, Any]


class Probe:
    """One probe of a running container; ``run`` tells each change of its judgement."""

    def __init__(self, spec: Object, container: Object, recipe: Recipe, address: str) -> None:
        self._spec = spec
        self._ports = {one.get("name"): one["containerPort"] for one in container.get("ports", [])}
        self._recipe = recipe
        self._address = address
        self._timeout_s = float(spec.get("timeoutSeconds", 1))

    async def run(self, judged: Callable[[bool], None]) -> None:
        """Ask again and again; tell what each threshold's worth of equal answers says."""
        await asyncio.sleep(self._spec.get("initialDelaySeconds", 0))
        good = bad = 0
        while True:
            if await self._holds():
                good, bad = good + 1, 0
            else:
                good, bad = 0, bad + 1
            if good == self._spec.get("successThreshold", 1):
                judged(True)
            if bad == self._spec.get("failureThreshold", 3):
                judged(False)
            await asyncio.sleep(self._spec.get("periodSeconds", 10))

    async def _holds(self) -> bool:
        with contextlib.suppress(OSError, httpx.HTTPError, TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                if "exec" in self._spec:
                    return 0 == await executed(self._spec["exec"]["command"], self._recipe)
                if "tcpSocket" in self._spec:
                    await self._connect(self._spec["tcpSocket"])
                    return True
                return await got(self._spec["httpGet"], self._address, self._ports)
        return False

    async def _connect(self, target: Object) -> None:
        port = target["port"]
        host = target.get("host", self._address)
        _, writer = await asyncio.open_connection(host, self._ports.get(port, port))
        writer.close()


async def executed(command: list[str], recipe: Recipe) -> int:
    """Run a command in a container's surroundings; return its exit code. Killed when cancelled."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env=dict(recipe.environment),
        cwd=recipe.directory,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        return await process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


async def got(target: Object, address: str, ports: dict[Any, int]) -> bool:
    """Ask by HTTP; return whether the answer is a good one."""
    scheme = target.get("scheme", "HTTP").lower()
    port = ports.get(target["port"], target["port"])
    url = f"{scheme}://{target.get('host', address)}:{port}{target.get('path', '/')}"
    headers = {one["name"]: one["value"] for one in target.get("httpHeaders", [])}
    # A kubelet does not check whose certificate it is.
    async with httpx.AsyncClient(verify=False, trust_env=False) as client:
        return (await client.get(url, headers=headers)).status_code < httpx.codes.BAD_REQUEST
