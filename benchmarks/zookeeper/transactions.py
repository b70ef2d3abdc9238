"""What a ZooKeeper server has written: counted by the server, named from its transaction log."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass

from tests.support.zookeeper import Server
from understudy.spark.java import find_java
from understudy.spark.zookeeper_server import find_jars

READER = "org.apache.zookeeper.server.persistence.TxnLogToolkit"

_BEGIN = re.compile(
    r"^.{1,40} session 0x[0-9a-f]+ cxid 0x[0-9a-f]+ zxid 0x([0-9a-f]+) (\w+)", re.MULTILINE
)

_COUNTER = re.compile(r"/checkpoint_id_counter")


@dataclass(frozen=True)
class Transaction:
    """One transaction; a ``multi`` is one, whatever it holds."""

    number: int
    operation: str
    text: str

    @property
    def refused(self) -> bool:
        """Say whether nothing was changed: a refusal is written, too."""
        return self.operation == "error" or (self.operation == "multi" and "error:" in self.text)

    @property
    def of_session(self) -> bool:
        """Say whether a session began or ended by it."""
        return self.operation in {"createSession", "closeSession"}


def read(server: Server) -> list[Transaction]:
    """Return all that the server has written since it was first started."""
    found = []
    jars = ":".join(map(str, find_jars()))
    for log in sorted((server.directory / "data" / "version-2").glob("log.*")):
        line = [find_java().program, "-cp", jars, READER, "-d", str(log)]
        told = subprocess.run(line, capture_output=True, check=False).stdout
        text = told.decode(errors="replace")
        begins = list(_BEGIN.finditer(text))
        ends = [*(match.start() for match in begins[1:]), len(text)]
        found += [
            Transaction(int(match[1], 16), match[2], text[match.end() : end])
            for match, end in zip(begins, ends, strict=True)
        ]
    return found


REFUSED = "refused: somebody was first, or a parent was missing"
SESSIONS = "a session began or ended"
CHECKPOINT = "checkpoints and their counter"


def ours(one: Transaction) -> str:
    """Name a transaction of ours."""
    if one.refused:
        return REFUSED
    if one.of_session:
        return SESSIONS
    if "/register/proof-" in one.text:
        return "the proof, before the start, that this ZooKeeper keeps what we rely on"
    if "/latch/" in one.text:
        beats = one.operation == "setData"
        return "heartbeat of the leader, on its own node" if beats else "a place in line"
    document = re.search(r"/register/([a-z]+)", one.text)
    if document:
        return f"document: {document[1]}"
    return "directories"


def flinks(one: Transaction) -> str:
    """Name a transaction of Flink's."""
    if one.refused:
        return REFUSED
    if one.of_session:
        return SESSIONS
    if (_COUNTER.search(one.text) and one.operation == "setData") or "/checkpoints/0" in one.text:
        return CHECKPOINT
    if re.search(r"/(execution-plans|jobgraphs)", one.text):
        return "execution plans"
    if "/jobs/" in one.text:
        return "nodes of a job, for its checkpoints"
    if re.search(r"/leader", one.text):
        return "leaders, and their latches"
    return "directories"


def begins_checkpoint(one: Transaction) -> bool:
    """Say whether Flink counts one more checkpoint of a job by it."""
    return one.operation == "setData" and _COUNTER.search(one.text) is not None
