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
    "endpoint beyond loopback. Once it is set, REST requires from every client the token that "
    "`understudy token` prints. A process reads the file at its start.",
)
ADMINS_FILE = Option(
    "security.rest.admins-file",
    TEXT,
    None,
    "A file with the names and tokens of those who may read and change everything over REST, one "
    "on a line (`understudy token --new NAME` prints one), readable by its owner only. The file is "
    "read again once it changes. It needs security.secret-file. Who may submit code may run code.",
)
VIEWERS_FILE = Option(
    "security.rest.viewers-file",
    TEXT,
    None,
    "The same for those who may only read: every REST path and metrics, logs included.",
)
BEARER_FILE = Option(
    "security.rest.bearer-file",
    TEXT,
    None,
    "For commands: a file with the token to send, alone or behind a name as in the viewers' and "
    "admins' files, readable by its owner only; `--token-file FILE` sets this. Unset: the token of "
    "security.secret-file.",
)
INTERNAL_SSL = Option(
    "security.ssl.internal.enabled",
    BOOLEAN,
    "false",
    "TLS 1.2 or newer for links over TCP. Both sides must present a certificate that the trust "
    "store accepts; names in certificates are not checked. The secret is required as well.",
    SAME,
)
INTERNAL_KEYSTORE = Option(
    "security.ssl.internal.keystore",
    TEXT,
    None,
    "A PEM file with the private key, its certificate, and the intermediate certificates.",
    _PEM,
)
INTERNAL_TRUSTSTORE = Option(
    "security.ssl.internal.truststore",
    TEXT,
    None,
    "A PEM file with the certificates that are trusted to sign those of the cluster's processes.",
    _PEM,
)
INTERNAL_KEY_PASSWORD = Option(
    "security.ssl.internal.key-password",
    TEXT,
    None,
    "The password of the private key, if it is encrypted.",
    SAME,
)
INTERNAL_FINGERPRINT = Option(
    "security.ssl.internal.cert.fingerprint",
    FINGERPRINT,
    None,
    "The only certificate that is accepted from peers, if all processes present the same one.",
    "SHA-1 only there",
)
REST_SSL = Option(
    "security.ssl.rest.enabled",
    BOOLEAN,
    "false",
    "HTTPS (TLS 1.2 or newer) for the REST endpoint and all its clients.",
    SAME,
)
REST_KEYSTORE = Option(
    "security.ssl.rest.keystore",
    TEXT,
    None,
    "A PEM file with the private key of the endpoint, its certificate, and the intermediate "
    "certificates. Clients need one only if they must present a certificate.",
    _PEM,
)
REST_TRUSTSTORE = Option(
    "security.ssl.rest.truststore",
    TEXT,
    None,
    "A PEM file with the certificates that are trusted to sign the endpoint's, and those of "
    "clients that must present one.",
    _PEM,
)
REST_KEY_PASSWORD = Option(
    "security.ssl.rest.key-password",
    TEXT,
    None,
    "The password of the private key, if it is encrypted.",
    SAME,
)
REST_CLIENTS = Option(
    "security.ssl.rest.authentication-enabled",
    BOOLEAN,
    "false",
    "Clients must present a certificate that the trust store accepts; the secret's token is "
    "required as well.",
    SAME,
)
VERIFY_HOSTNAME = Option(
    "security.ssl.verify-hostname",
    BOOLEAN,
    "true",
    "Whether the endpoint's certificate must name the host that the client connects to.",
    SAME,
)
