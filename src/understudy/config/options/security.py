"""Options of authentication and encryption."""

from __future__ import annotations

import re

from understudy.config.option import BOOLEAN, SAME, TEXT, Kind, Option

_FINGERPRINT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def _fingerprint(text: str) -> str:
    digits = text.replace(":", "").lower()
    if not _FINGERPRINT.fullmatch(digits):
        raise ValueError("40 (SHA-1) or 64 (SHA-256) hexadecimal digits, with colons or without")
    return digits


FINGERPRINT = Kind("Fingerprint (SHA-1 or SHA-256)", _fingerprint)

_PEM = "there, a Java key store"

SECRET_FILE = Option(
    "security.secret-file",
    TEXT,
    None,
    "A file with the secret that all processes and clients of the cluster share: at least 16 "
    "bytes, readable by its owner only. It is needed for every link over TCP and for a REST "
    "endpoint that is not on loopback. Once it is set, REST asks everybody for the token that "
    "`understudy token` prints. It is read when a process starts.",
)
INTERNAL_SSL = Option(
    "security.ssl.internal.enabled",
    BOOLEAN,
    "false",
    "TLS 1.2 or newer for links over TCP. Both sides must show a certificate that the trust store "
    "takes; names in certificates are not looked at. The secret is asked for beside it.",
    SAME,
)
INTERNAL_KEYSTORE = Option(
    "security.ssl.internal.keystore",
    TEXT,
    None,
    "A PEM file with the private key, its certificate, and those between it and the trust store.",
    _PEM,
)
INTERNAL_TRUSTSTORE = Option(
    "security.ssl.internal.truststore",
    TEXT,
    None,
    "A PEM file with the certificates that vouch for the processes of the cluster.",
    _PEM,
)
INTERNAL_KEY_PASSWORD = Option(
    "security.ssl.internal.key-password",
    TEXT,
    None,
    "What the private key is encrypted with, if it is.",
    SAME,
)
INTERNAL_FINGERPRINT = Option(
    "security.ssl.internal.cert.fingerprint",
    FINGERPRINT,
    None,
    "The one certificate that is taken from peers, where all processes show the same.",
    "SHA-1 only there",
)
REST_SSL = Option(
    "security.ssl.rest.enabled",
    BOOLEAN,
    "false",
    "HTTPS (TLS 1.2 or newer) for the REST endpoint, and for everybody who asks it.",
    SAME,
)
REST_KEYSTORE = Option(
    "security.ssl.rest.keystore",
    TEXT,
    None,
    "A PEM file with the private key of the endpoint, its certificate, and those between it and "
    "the trust store. Clients need one only if they must show a certificate.",
    _PEM,
)
REST_TRUSTSTORE = Option(
    "security.ssl.rest.truststore",
    TEXT,
    None,
    "A PEM file with the certificates that vouch for the endpoint, and for clients that must show "
    "a certificate.",
    _PEM,
)
REST_KEY_PASSWORD = Option(
    "security.ssl.rest.key-password",
    TEXT,
    None,
    "What the private key is encrypted with, if it is.",
    SAME,
)
REST_CLIENTS = Option(
    "security.ssl.rest.authentication-enabled",
    BOOLEAN,
    "false",
    "Clients must show a certificate that the trust store takes; the secret's token is asked for "
    "beside it.",
    SAME,
)
VERIFY_HOSTNAME = Option(
    "security.ssl.verify-hostname",
    BOOLEAN,
    "true",
    "Whether the endpoint's certificate must name the host under which it is asked.",
    SAME,
)
