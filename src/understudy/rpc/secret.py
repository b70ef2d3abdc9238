"""The shared secret of a cluster's processes: a file that only their user can read."""

from __future__ import annotations

import os
import stat

from understudy.config import options
from understudy.errors import ConfigurationError

SECRET_BYTES_MIN = 16
"""A shorter secret can be guessed from one overheard handshake."""

SECRET_BYTES_MAX = 64 << 10
"""A secret is one line; a larger file is a log or a disk named by mistake."""

_MAKE = "make one with `(umask 077; head -c 32 /dev/urandom | base64 > {})`"


def read_secret(path: str) -> bytes:
    """Return the content of the file without surrounding white space.

    Raises `ConfigurationError`, which names the option, the file and the way out, never the secret.
    """
    where = f"{options.SECRET_FILE.key}: {path}"
    secret = read_private(options.SECRET_FILE.key, path, _MAKE).strip()
    if not secret:
        raise ConfigurationError(f"{where} is empty: {_MAKE.format(path)}")
    if len(secret) < SECRET_BYTES_MIN:
        raise ConfigurationError(
            f"{where} holds {len(secret)} bytes: at least {SECRET_BYTES_MIN} are needed; "
            f"{_MAKE.format(path)}"
        )
    return secret


def is_private(mode: int, owner: int, reader: int) -> bool:
    """Return whether a file is closed to other users than its reader.

    The group may read what root has given to it: so a kubelet hands a Secret to a pod's user.
    """
    of_root = owner == 0 and reader != 0
    return not mode & (0o037 if of_root else 0o077)


def read_private(
    option: str, path: str, way_out: str = "make it with `(umask 077; touch {})`"
) -> bytes:
    """Return the content of a small file that only its owner can read.

    Raises `ConfigurationError`, which names the option, the file and the way out, never what it
    holds.
    """
    where = f"{option}: {path}"
    try:
        # One descriptor, so that the checked file is also the read file if somebody replaces it.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise ConfigurationError(f"{where} is no file: {way_out.format('FILE')}")
            if not is_private(found.st_mode, found.st_uid, os.geteuid()):
                raise ConfigurationError(
                    f"{where} can be read or written by others than its owner (its mode is "
                    f"{stat.S_IMODE(found.st_mode):04o}): `chmod 600` it, and change the secret if "
                    "others have read it"
                )
            content = os.read(descriptor, SECRET_BYTES_MAX + 1)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise ConfigurationError(f"{where} does not exist: {way_out.format(path)}") from None
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{where} cannot be read: {error}") from error
    if len(content) > SECRET_BYTES_MAX:
        raise ConfigurationError(f"{where} has more than {SECRET_BYTES_MAX:,} bytes: no secret")
    return content
