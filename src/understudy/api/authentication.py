"""Authentication at a REST endpoint: the token, and a client certificate if that is configured.

The cluster's token is derived from its secret, not the other way round: a stranger who overhears it
can query and cancel applications, but cannot join the links between processes. Clients send the
token to the address that the leader has published. Only TLS proves that the leader listens there.
"""

from __future__ import annotations

import hmac
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from understudy.api.tokens import Role, TokenFile, Tokens, read_token
from understudy.config import Configuration, options
from understudy.rpc.certificates import PemFiles
from understudy.rpc.secret import read_secret

if TYPE_CHECKING:
    import httpx

SCHEME = "Bearer"

_FILES = ((options.ADMINS_FILE, Role.ADMIN), (options.VIEWERS_FILE, Role.VIEWER))


def token_of(secret: bytes) -> str:
    """Return the token that requests carry instead of the secret."""
    return hmac.new(secret, b"understudy rest", "sha256").hexdigest()


@dataclass(frozen=True)
class RestSecurity:
    """Security settings that the endpoint and the clients of a configuration share."""

    token: str | None = field(default=None, repr=False)
    files: PemFiles | None = None
    """The certificates; None without TLS."""
    clients_need_certificates: bool = False
    verify_hostname: bool = True
    token_files: tuple[tuple[str, str, Role], ...] = ()
    """Further tokens: the option that names a file, the file, and the role of its tokens."""

    @classmethod
    def of(cls, configuration: Configuration, *, asks: bool = False) -> RestSecurity:
        """Return the settings of a configuration; ``asks``: of a command, which may have a token.

        Raises `ConfigurationError` for a bad secret file.
        """
        path = configuration.find(options.SECRET_FILE)
        bearer = None
        if asks and (file := configuration.find(options.BEARER_FILE)):
            bearer = read_token(options.BEARER_FILE.key, file)
        files = None
        if configuration.get(options.REST_SSL):
            files = PemFiles(
                "security.ssl.rest",
                configuration.find(options.REST_TRUSTSTORE) or "",
                configuration.find(options.REST_KEYSTORE),
                configuration.find(options.REST_KEY_PASSWORD),
            )
        return cls(
            bearer or (token_of(read_secret(path)) if path else None),
            files,
            configuration.get(options.REST_CLIENTS),
            configuration.get(options.VERIFY_HOSTNAME),
            tuple(
                (option.key, path, role)
                for option, role in _FILES
                if (path := configuration.find(option))
            ),
        )

    @property
    def scheme(self) -> str:
        """Return the scheme of endpoint addresses."""
        return "https" if self.files else "http"

    def tokens(self) -> Tokens | None:
        """Return the tokens that an endpoint accepts; None if it needs none."""
        if self.token is None:
            return None
        return Tokens(self.token, tuple(TokenFile(*one) for one in self.token_files))

    def server(self) -> ssl.SSLContext | None:
        """Return the TLS context of an endpoint, None without TLS; raises `ConfigurationError`."""
        if self.files is None:
            return None
        return self.files.server(clients_need_certificates=self.clients_need_certificates)

    def client(self, timeout: httpx.Timeout | float) -> httpx.AsyncClient:
        """Return a client that sends the token: for endpoints of this cluster only."""
        import httpx  # It takes a quarter of a second, and a TaskManager never asks.

        verify: ssl.SSLContext | bool = True
        if self.files:
            verify = self.files.client(
                verify_hostname=self.verify_hostname,
                with_certificate=self.clients_need_certificates,
            )
        return httpx.AsyncClient(
            timeout=timeout, trust_env=False, verify=verify, headers=self.headers()
        )

    def headers(self) -> dict[str, str]:
        """Return the headers that authenticate a request."""
        return {"authorization": f"{SCHEME} {self.token}"} if self.token else {}

    def check(self, *, serves: bool) -> None:
        """Raise `ConfigurationError` for files that cannot be used.

        A process that does not ``serve`` needs no certificate, and no tokens of others; a
        configured certificate must be valid.
        """
        for one in self.token_files if serves else ():
            TokenFile(*one).read()
        if self.files and (serves or self.files.keystore):
            self.files.prove()
        elif self.files:
            self.files.client(verify_hostname=self.verify_hostname, with_certificate=False)


OPEN = RestSecurity()
"""For an endpoint on loopback without a secret."""
