"""Certificates and keys from PEM files, and the TLS contexts made of them.

A TLS handshake with oneself finds every error when the files are opened: a key of another
certificate, a wrong password, a certificate that has expired or that the trust store does not
know. Errors name the option, the file and the reason.
"""

from __future__ import annotations

import hashlib
import hmac
import ssl
from dataclasses import dataclass

from understudy.errors import ConfigurationError

_FLIGHTS_MAX = 10
"""A handshake has four flights; one without end is given up."""


@dataclass(frozen=True)
class PemFiles:
    """The PEM files of the options with one prefix."""

    prefix: str
    truststore: str
    keystore: str | None
    """The private key, its certificate, and intermediate certificates up to the trust store."""
    key_password: str | None = None

    def server(self, *, clients_need_certificates: bool) -> ssl.SSLContext:
        """Return the context of a server; raises `ConfigurationError`."""
        context = self._context(ssl.PROTOCOL_TLS_SERVER)
        if clients_need_certificates:
            context.verify_mode = ssl.CERT_REQUIRED
        self._show(context)
        return context

    def client(self, *, verify_hostname: bool, with_certificate: bool) -> ssl.SSLContext:
        """Return the context of a client; raises `ConfigurationError`."""
        context = self._context(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = verify_hostname
        if with_certificate:
            self._show(context)
        return context

    def _context(self, protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        where = f"{self.prefix}.truststore: {self.truststore}"
        try:
            context.load_verify_locations(self.truststore)
        except FileNotFoundError:
            raise ConfigurationError(f"{where} does not exist") from None
        except ssl.SSLError as error:
            raise ConfigurationError(
                f"{where} holds no certificates as PEM ({_reason(error)}); a Java key store is "
                "converted by `keytool -exportcert -rfc`"
            ) from error
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{where} cannot be read: {error}") from error
        return context

    def _show(self, context: ssl.SSLContext) -> None:
        """Load our certificate into a context."""
        key = f"{self.prefix}.keystore"
        if self.keystore is None:
            raise ConfigurationError(
                f"{key} is not set, but {self.prefix}.enabled is true: name the PEM file with the "
                "private key and its certificate"
            )
        where = f"{key}: {self.keystore}"
        # Without this callback OpenSSL would ask for a password at the terminal.
        password = self.key_password or ""
        asked = False

        def answer() -> str:
            nonlocal asked
            asked = True
            return password

        try:
            context.load_cert_chain(self.keystore, password=answer)
        except FileNotFoundError:
            raise ConfigurationError(f"{where} does not exist") from None
        except (OSError, ValueError) as error:
            if asked:
                what = "does not open it" if password else "is not set, and it is encrypted"
                raise ConfigurationError(f"{where}: {self.prefix}.key-password {what}") from error
            if not isinstance(error, ssl.SSLError):
                raise ConfigurationError(f"{where} cannot be read: {error}") from error
            raise ConfigurationError(
                f"{where} holds no private key with its certificate, both as PEM "
                f"({_reason(error)}); a Java key store is converted by `keytool "
                "-importkeystore -deststoretype pkcs12` and `openssl pkcs12 -nodes`"
            ) from error

    def prove(self) -> bytes:
        """Check that the trust store accepts the certificate; return the certificate as DER.

        Raises `ConfigurationError`.
        """
        server = self.server(clients_need_certificates=True)
        client = self.client(verify_hostname=False, with_certificate=True)
        try:
            return _shaken(server, client)
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", "") or _reason(error)
            raise ConfigurationError(
                f"{self.prefix}.keystore: {self.keystore} is not taken by {self.prefix}.truststore "
                f"({self.truststore}): {reason}"
            ) from error


def is_pinned(certificate: bytes | None, fingerprint: str | None) -> bool:
    """Return whether a certificate (DER) matches a fingerprint (hexadecimal).

    Without a fingerprint every certificate matches; the trust store has accepted it already.
    """
    if fingerprint is None:
        return True
    # Flink's option takes SHA-1. A second certificate with a given digest cannot be found.
    name = "sha1" if len(fingerprint) == 40 else "sha256"
    digest = hashlib.new(name, certificate or b"", usedforsecurity=False).hexdigest()
    return hmac.compare_digest(digest, fingerprint)


def _shaken(server: ssl.SSLContext, client: ssl.SSLContext) -> bytes:
    """Perform a handshake of two contexts in memory; return the server's certificate."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    done = 0
    for _ in range(_FLIGHTS_MAX):
        done = 0
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            done += 1
        if done == len(ends):
            break
    if done < len(ends):
        raise ssl.SSLError("the handshake does not end")
    return ends[0].getpeercert(binary_form=True) or b""


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error).lower().replace("_", " ")
