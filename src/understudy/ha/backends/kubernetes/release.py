"""Empty the leader's record of a dead process: ``python -I -S release.py < what.json``.

Standard library only, so that the program starts in milliseconds. It reads the Lease or ConfigMap,
and writes the record without a holder over exactly that version, if the dead process still holds
it. So a standby leads at once, and not after the lease. The caller must have proof that the process
is dead.

The input is JSON: ``server``, ``path`` of the object, ``in_lease``, ``holder``, and what
authenticates us: ``token``, ``authority``, ``certificate``, ``verify``, ``server_name``.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import socket
import ssl
import sys
import time
import uuid
import zlib
from typing import Any
from urllib.parse import urlsplit

REQUEST_S, ALL_S = 1.0, 3.0
"""RequestLimits for one request and for all together; the lease runs out anyway."""

ENTRIES, VALUE = "understudy/entries", "understudy/value"
LEADER = "leader"
ANNOTATION = "control-plane.alpha.kubernetes.io/leader"


def main() -> int:
    """Try until the record is empty or another's; return 0 then."""
    what = json.load(sys.stdin)
    until = time.monotonic() + ALL_S
    while time.monotonic() < until:
        try:
            if empty(what):
                return 0
        except (OSError, http.client.HTTPException, ValueError, KeyError):
            pass
        time.sleep(0.05)
    return 1


def empty(what: dict[str, Any]) -> bool:
    """Empty the record once; False if another version was written meanwhile."""
    status, found = _ask(what, "GET", None)
    if status == 404:
        return True
    if status != 200:
        return False
    text = found["metadata"].get("annotations", {}).get(VALUE)
    if text is None or json.loads(text)["body"]["holder"] != what["holder"]:
        return True
    status, _ = _ask(what, "PATCH", change(what["in_lease"], found, vacant(text)))
    return status == 200


def vacant(text: str) -> str:
    """Return a leader's record without a holder, as `ha.election` writes it."""
    record = json.loads(text)
    kept = {name: record["body"][name] for name in ("term", "session")}
    body = json.dumps({"holder": "", **kept}, separators=(",", ":"), ensure_ascii=False)
    record["checksum"] = "sha256:" + hashlib.sha256(body.encode()).hexdigest()
    record["body"] = json.loads(body)
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False)


def change(in_lease: bool, found: dict[str, Any], text: str) -> dict[str, Any]:
    """Return the merge patch that writes a vacant record over the object as it was read."""
    metadata = found["metadata"]
    fence = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    version = f"{uuid.uuid4().hex[:12]}.{zlib.crc32(text.encode()):08x}"
    before = metadata["annotations"]
    entries = json.dumps({**json.loads(before[ENTRIES]), LEADER: version})
    annotations = {ENTRIES: entries, VALUE: text}
    if in_lease:
        spec = {"holderIdentity": "", "leaseDurationSeconds": 1}
        return {"metadata": {**fence, "annotations": annotations}, "spec": spec}
    shown = json.loads(before.get(ANNOTATION, "{}"))
    shown |= {"holderIdentity": "", "leaseDurationSeconds": 1}
    annotations[ANNOTATION] = json.dumps(shown)
    return {"metadata": {**fence, "annotations": annotations}}


def _ask(
    what: dict[str, Any], method: str, body: dict[str, Any] | None
) -> tuple[int, dict[str, Any]]:
    line = _connected(what)
    try:
        headers = {"accept": "application/json", "content-type": "application/merge-patch+json"}
        if what["token"]:
            headers["authorization"] = f"Bearer {what['token']}"
        line.request(method, what["path"], json.dumps(body) if body else None, headers)
        answer = line.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        line.close()


def _connected(what: dict[str, Any]) -> http.client.HTTPConnection:
    server = urlsplit(what["server"])
    host, port = server.hostname or "", server.port
    if server.scheme != "https":
        return http.client.HTTPConnection(host, port or 80, timeout=REQUEST_S)
    context = ssl.create_default_context(cadata=what["authority"])
    if not what["verify"]:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if what["certificate"]:
        descriptor = os.memfd_create("certificate")
        with os.fdopen(descriptor, "w", closefd=False) as file:
            file.write(what["certificate"])
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        os.close(descriptor)
    line = http.client.HTTPSConnection(host, port or 443, timeout=REQUEST_S)
    plain = socket.create_connection((host, port or 443), REQUEST_S)
    line.sock = context.wrap_socket(plain, server_hostname=what["server_name"] or host)
    return line


if __name__ == "__main__":
    sys.exit(main())
