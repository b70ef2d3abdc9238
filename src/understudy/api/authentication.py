"""Who may ask a REST endpoint: those who show the token, and a certificate where that is wanted.

The token follows from the secret of the cluster, not the other way round: whoever overhears it can
ask for and cancel applications, but has no part in the links between the processes. It is sent to
whoever serves at the address that the leader has published; that this is the leader is proved by
TLS, and by nothing without it.
"""

from __future__ import annotations

import hmac
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from understudy.config import Configuration, options
from understudy.rpc.certificates import PemFiles
from understudy.rpc.secret import read_secret

if TYPE_CHECKING:
    import httpx

SCHEME = "Bearer"


def token_of(secret: bytes) -> str:
    """Return what stands for the secret in requests."""
    return hmac.new(secret, b"understudy rest", "sha256").hexdigest()


@dataclass(frozen=True)
class RestSecurity:
    """What endpoint and clients of a configuration have in common."""

    token: str | None = field(default=None, repr=False)
    files: PemFiles | None = None
    """The certificates; None without TLS."""
    clients_need_certificates: bool = False
    verify_hostname: bool = True

    @property
    def scheme(self) -> str:
        """Return what the addresses of endpoints begin with."""
        return "https" if self.files else "http"

    def server(self) -> ssl.SSLContext | None:
        """Return what an endpoint is to serve with; raises `ConfigurationError`."""
        if self.files is None:
            return None
        return self.files.server(clients_need_certificates=self.clients_need_certificates)

    def client(self, timeout: httpx.Timeout | float) -> httpx.AsyncClient:
        """Return a client for endpoints of the cluster, and of nobody else: it sends the token."""
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
        """Return the headers that say who asks."""
        return {"authorization": f"{SCHEME} {self.token}"} if self.token else {}

    def check(self, *, serves: bool) -> None:
        """Raise `ConfigurationError` for files that cannot be used.

        Who does not ``serve`` need not have a certificate; one that is named must be good.
        """
        if self.files and (serves or self.files.keystore):
            self.files.prove()
        elif self.files:
            self.files.client(verify_hostname=self.verify_hostname, with_certificate=False)


OPEN = RestSecurity()
"""For an endpoint on loopback without a secret."""


def rest_security(configuration: Configuration) -> RestSecurity:
    """Return what a configuration says; raises `ConfigurationError` for a bad secret file."""
    path = configuration.find(options.SECRET_FILE)
    files = None
    if configuration.get(options.REST_SSL):
        files = PemFiles(
            "security.ssl.rest",
            configuration.find(options.REST_TRUSTSTORE) or "",
            configuration.find(options.REST_KEYSTORE),
            configuration.find(options.REST_KEY_PASSWORD),
        )
    return RestSecurity(
        token_of(read_secret(path)) if path else None,
        files,
        configuration.get(options.REST_CLIENTS),
        configuration.get(options.VERIFY_HOSTNAME),
    )
