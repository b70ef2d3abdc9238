"""Refuses requests before any route: those of web pages, and those without the secret.

A page in the user's browser can send requests to any address, this host's included. Two rules keep
it out, also on loopback. First, only known hosts are served: a page's own name that is rebound to a
loopback address (DNS rebinding) remains the name in ``Host``. Second, a change must be a request
that a page of another origin cannot send without a preflight: it is JSON, or has no body, and
neither ``Origin`` nor ``Sec-Fetch-Site`` names another origin. CORS is never granted. Only an
upload is a form, as in Flink: each browser names the origin of a page that posts one.

Any port is accepted: a browser sends the port that it has connected to, and a tunnel has another
port than the endpoint.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from understudy.api import answers, audit, multipart, own_headers, probes
from understudy.api.audit import SAFE
from understudy.api.authentication import SCHEME
from understudy.api.tokens import NOBODY, Caller, Role, Tokens
from understudy.config import options
from understudy.config.security import HostPort, Hosts, place_of

JSON = "application/json"

OWN_SITES = (b"same-origin", b"none")
"""``none``: typed by the user. ``same-site`` may be another program on another port."""

SHOWN_CHARS_MAX = 100

_WANTED = (
    "This cluster has a secret: say who asks, with the header 'Authorization: Bearer <token>'; "
    "`understudy token` prints the token, from the file of security.secret-file."
)

_ADMINS_ONLY = "This token is a viewer's, which reads only: {} needs one of an admin."

_DEFAULT_PORTS = {"http": 80, "https": 443}


class Gate:
    """Refuses requests that a foreign page may have sent, whatever their path."""

    def __init__(
        self, app: ASGIApp, hosts: Hosts, given_by: str = "", uploads: frozenset[str] = frozenset()
    ) -> None:
        """``given_by`` names this process, so that clients know that a refusal is ours.

        ``uploads``: paths to which a form may be posted.
        """
        self._app = app
        self._hosts = hosts
        self._uploads = uploads
        self._given_by = given_by

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on requests that are not refused."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                # No browser may take text that users wrote for a page or a script.
                own = [one for one in message.get("headers", ()) if one[0] != _NOSNIFF[0]]
                message = {**message, "headers": [*own, _NOSNIFF]}
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, marked)
            return
        if self._given_by:
            refusal.headers[own_headers.GIVEN_BY] = self._given_by
        await refusal(scope, receive, marked)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope["headers"])
        if not scope.get("raw_path", b"/").startswith(b"/"):
            return answers.error(
                400, f"{_shown(scope['raw_path'])}: ask for a path, like /overview, not for a URL"
            )
        hosts = headers.all(b"host")
        place = place_of(hosts[0].decode("latin-1")) if len(hosts) == 1 else None
        reached = scope.get("server")
        if place is None or not self._hosts.knows(place, str(reached[0]) if reached else ""):
            subject = f"Host {_shown(hosts[0])}" if hosts else "No Host, which"
            return answers.error(
                403,
                f"{subject} is not a name of this endpoint: use localhost or the address that it "
                f"publishes, or add the name to {options.ALLOWED_HOSTS.key}",
            )
        if scope["method"] in SAFE:
            return None
        if scope["method"] == "POST" and scope["path"] in self._uploads:
            return _foreign(headers, place) or _not(multipart.KIND, headers)
        return _foreign(headers, place) or _not_json(headers)


class Headers:
    """Headers as received, repeated ones included."""

    def __init__(self, lines: Iterable[tuple[bytes, bytes]]) -> None:
        self._lines = list(lines)

    def all(self, name: bytes) -> list[bytes]:
        """Return all values of a header."""
        return [text for key, text in self._lines if key == name]


def _foreign(headers: Headers, asked: HostPort) -> Response | None:
    """Return the refusal of a change that comes from a page of another origin, else None."""
    for site in headers.all(b"sec-fetch-site"):
        if site.strip().lower() not in OWN_SITES:
            return answers.error(
                403,
                f"{_shown(site)} (Sec-Fetch-Site): changes are not taken from pages of other sites",
            )
    for origin in headers.all(b"origin"):
        if not _is_own(origin.decode("latin-1"), asked):
            return answers.error(
                403,
                f"Origin {_shown(origin)}: changes are not taken from pages of other origins; a "
                "program leaves Origin out",
            )
    return None


def _is_own(origin: str, asked: HostPort) -> bool:
    """Return whether an origin is the target of the request; a proxy may end TLS before us."""
    try:
        parts = urlsplit(origin.strip())
        default = _DEFAULT_PORTS[parts.scheme]
        own = place_of(parts.netloc)
    except (KeyError, ValueError):
        return False
    if own is None or parts.path or parts.query or parts.fragment:
        return False
    return (own.host, own.port or default) == (asked.host, asked.port or default)


def _not_json(headers: Headers) -> Response | None:
    """Return the refusal of a change that a plain form can send, else None; a form may be empty."""
    if not headers.all(b"content-type") and not has_body(headers):
        return None
    return _not(JSON, headers)


def _not(wanted: str, headers: Headers) -> Response | None:
    """Return the refusal of a body of another type, else None."""
    types = headers.all(b"content-type")
    if [text.partition(b";")[0].strip().lower() for text in types] == [wanted.encode()]:
        return None
    subject = f"Content-Type {_shown(types[0])}" if types else "A body without Content-Type"
    further = ", or neither body nor Content-Type" if wanted == JSON else ""
    return answers.error(415, f"{subject} is not taken: send 'Content-Type: {wanted}'{further}")


def has_body(headers: Headers) -> bool:
    """Return whether a request announces a body."""
    lengths = headers.all(b"content-length")
    return bool(headers.all(b"transfer-encoding")) or any(one.strip() != b"0" for one in lengths)


_NOSNIFF = (b"x-content-type-options", b"nosniff")


def _shown(text: bytes) -> str:
    return repr(text[:SHOWN_CHARS_MAX].decode("latin-1"))


class Doorkeeper:
    """Answers 401 to every request without a token, and 403 to changes with a viewer's.

    Only the probes of a kubelet, which has no token, are answered to everyone.
    """

    def __init__(self, app: ASGIApp, tokens: Tokens, given_by: str) -> None:
        """``given_by`` says who answers, so that clients know a refusal is not a stranger's."""
        self._app = app
        self._tokens = tokens
        self._given_by = given_by

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on what shows a token that suffices; the scope says whose it is."""
        if scope["type"] != "http" or (scope["method"] in SAFE and scope["path"] in probes.PATHS):
            await self._app(scope, receive, send)
            return
        caller = await self._caller(scope)
        scope = {**scope, audit.CALLER: caller}
        if caller.role is Role.NONE:
            refusal = answers.error(401, _WANTED)
            refusal.headers["www-authenticate"] = SCHEME
        elif caller.role is Role.ADMIN or scope["method"] in SAFE:
            await self._app(scope, receive, send)
            return
        else:
            refusal = answers.error(403, _ADMINS_ONLY.format(scope["method"]))
        audit.refused(scope, refusal.status_code)
        refusal.headers[own_headers.GIVEN_BY] = self._given_by
        await refusal(scope, receive, send)

    async def _caller(self, scope: Scope) -> Caller:
        shown = [text for name, text in scope["headers"] if name == b"authorization"]
        if len(shown) != 1:
            return NOBODY
        scheme, _, token = shown[0].partition(b" ")
        if scheme.lower() != SCHEME.lower().encode():
            return NOBODY
        return await self._tokens.caller(token.strip())
