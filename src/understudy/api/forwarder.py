"""How a standby asks the leader what it was asked itself."""

from __future__ import annotations

from collections.abc import Mapping

import httpx
from starlette.requests import Request

FORWARD_S = 10.0
"""How long a standby waits for the leader's answer."""


class Forwarder:
    """Keeps connections to the leader."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        """``client`` is to give up after `FORWARD_S`."""
        self._client = client

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def ask(
        self, request: Request, leader: str, headers: Mapping[str, str]
    ) -> httpx.Response | None:
        """Return the leader's answer to a request, None where it gives none."""
        try:
            return await self._client.request(
                request.method,
                leader + request.url.path,
                params=str(request.query_params),
                content=await request.body(),
                headers=dict(headers),
            )
        except httpx.HTTPError:
            return None
