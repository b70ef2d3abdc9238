"""Who stands before an endpoint of a cluster that has a secret."""

from __future__ import annotations

import hmac

from starlette.types import ASGIApp, Receive, Scope, Send

from understudy.api import answers, own_headers
from understudy.api.authentication import SCHEME

_WANTED = (
    "This cluster has a secret: say who asks, with the header 'Authorization: Bearer <token>'; "
    "`understudy token` prints the token, from the file of security.secret-file."
)


class Doorkeeper:
    """Answers 401 to every request without the token, whatever it is for."""

    def __init__(self, app: ASGIApp, token: str, given_by: str) -> None:
        """``given_by`` says who answers, so that clients know a refusal is not a stranger's."""
        self._app = app
        self._expected = token.encode()
        self._given_by = given_by

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on what shows the token."""
        if scope["type"] != "http" or self._is_known(scope):
            await self._app(scope, receive, send)
            return
        refusal = answers.error(401, _WANTED)
        refusal.headers["www-authenticate"] = SCHEME
        refusal.headers[own_headers.GIVEN_BY] = self._given_by
        await refusal(scope, receive, send)

    def _is_known(self, scope: Scope) -> bool:
        shown = [text for name, text in scope["headers"] if name == b"authorization"]
        if len(shown) != 1:
            return False
        scheme, _, token = shown[0].partition(b" ")
        return scheme.lower() == SCHEME.lower().encode() and hmac.compare_digest(
            token.strip(), self._expected
        )
