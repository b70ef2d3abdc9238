"""Close the ZooKeeper session of a dead process: ``python -I -S release.py < what.json``.

Standard library only, so that the program starts in milliseconds. It resumes the session by number
and password, as a reconnecting client does, and closes it. So the ephemeral nodes disappear at
once, and not after the session timeout. The caller must have proof that the process is dead.

The input is JSON: ``servers`` (a list of host and port), ``session``, ``password`` (hexadecimal),
``timeout_ms``, ``tls`` (null, or ca, certfile, keyfile, keyfile_password, check_hostname).
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time
from typing import Any

SERVER_S, ALL_S = 1.0, 3.0
"""Limits for one server and for all together; the session timeout ends the session anyway."""

CLOSE_SESSION, XID = -11, 1


def main() -> int:
    """Try one server after the other; return 0 once the session is closed."""
    what = json.load(sys.stdin)
    until = time.monotonic() + ALL_S
    while True:
        for host, port in what["servers"]:
            if time.monotonic() > until:
                return 1
            try:
                close(what, host, port)
            except (OSError, struct.error, EOFError):
                continue
            return 0
        time.sleep(0.05)


def close(what: dict[str, Any], host: str, port: int) -> None:
    """Close the session at one server; raises ``OSError`` if the server does not answer."""
    with _connected(what, host, port) as line:
        password = bytes.fromhex(what["password"])
        head = struct.pack(">iqiqi", 0, 0, what["timeout_ms"], what["session"], len(password))
        _send(line, head + password + b"\0")
        _, granted_ms = struct.unpack_from(">ii", _receive(line))
        if granted_ms <= 0:
            return  # The session has ended already.
        _send(line, struct.pack(">ii", XID, CLOSE_SESSION))
        while struct.unpack_from(">i", _receive(line))[0] != XID:
            pass


def _connected(what: dict[str, Any], host: str, port: int) -> socket.socket:
    line = socket.create_connection((host, port), SERVER_S)
    tls = what.get("tls")
    if not tls:
        return line
    import ssl

    context = ssl.create_default_context(cafile=tls.get("ca"))
    context.check_hostname = bool(tls.get("check_hostname"))
    if tls.get("certfile"):
        context.load_cert_chain(tls["certfile"], tls.get("keyfile"), tls.get("keyfile_password"))
    return context.wrap_socket(line, server_hostname=host)


def _send(line: socket.socket, packet: bytes) -> None:
    line.sendall(struct.pack(">i", len(packet)) + packet)


def _receive(line: socket.socket) -> bytes:
    (length,) = struct.unpack(">i", _exactly(line, 4))
    return _exactly(line, length)


def _exactly(line: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = line.recv(count - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


if __name__ == "__main__":
    sys.exit(main())
