"""Mutants of the line of contenders, and of the backend that keeps one; see `catalogue`."""

from __future__ import annotations

from tests.mutants.mutant import mutant

LEASE = "core/lease.py"
ELECTION = "ha/election.py"
TURNS = "ha/turns.py"
REGISTER = "ha/backends/zookeeper/register.py"
LATCH = "ha/backends/zookeeper/latch.py"
SESSION = "ha/backends/zookeeper/session.py"
GUARDIAN = "process/guardian.py"

IN_LINE = "tests/ha/test_latch_election.py"
CONTRACT = "tests/contract/test_latch.py"
ON_REGISTER = "tests/ha/test_zookeeper_register.py"
ON_SESSION = "tests/ha/test_zookeeper_session.py"
ON_SILENCE = f"{ON_SESSION}::test_silence_breaks_the_connection_though_nobody_waits_any_more"
ON_LATCH = "tests/ha/test_zookeeper_latch.py"

ZOOKEEPER = (
    # --- the election
    mutant(
        "a leader acts for longer than its session", 1, LEASE,
        "ACT_SHARE, RENEW_SHARE = 0.9, 0.1",
        "ACT_SHARE, RENEW_SHARE = 0.9999, 0.1",
        "tests/core/test_lease.py",
    ),
    mutant(
        "a session lives as long as it seems", 1, LEASE,
        "lease_s = session_s - min(TICK_SHARE * session_s, TICK_MAX_S)",
        "lease_s = session_s * 1.15",
        IN_LINE,
    ),
    mutant(
        "a renewal that failed is tried again at leisure", 1, ELECTION,
        "failures = failures + 1 if reason else 0",
        "failures = 0",
        IN_LINE,
    ),
    mutant(
        "a leader in line counts from the answer", 1, TURNS,
        "return await self._latch.renew()",
        "return await self._latch.renew() and self._clock.now() + 0.3 * self.timing.lease_s",
        IN_LINE,
    ),
    mutant(
        "the place is not confirmed after the term", 1, ELECTION,
        "        proved_at = await self._confirm()\n        self._state = lease.written(",
        "        proved_at = None\n        self._state = lease.written(",
        IN_LINE,
    ),
    mutant(
        "the asked session timeout counts, not the granted", 1, SESSION,
        "self.number, self.session_s = number, timeout_s",
        "self.number = number",
        ON_SESSION,
    ),
    mutant(
        "who stands ahead is waited for though it is dead", 3, TURNS,
        "await self._latch.dismiss(ahead)",
        "await asyncio.Event().wait()",
        IN_LINE,
    ),
    mutant(
        "who steps down stays in line", 5, TURNS,
        "                await self._latch.leave()",
        "                pass",
        IN_LINE,
    ),
    mutant(
        "a takeover is timed from the first stir", 3, TURNS,
        "self.died_at[ahead] = self._clock.now() if died_at is None else died_at",
        "self.died_at.setdefault(ahead, self._clock.now())",
        IN_LINE,
    ),
    # --- the line
    mutant(
        "a read counts as an acknowledgement", 1, LATCH,
        'methodcaller("set_async", path, self._note)',
        'methodcaller("get_async", path)',
        CONTRACT,
    ),
    mutant(
        "a renewal counts from its answer", 1, LATCH,
        "        return sent_at",
        "        return self._clock.now()",
        CONTRACT,
    ),
    mutant(
        "all watch the first in line", 5, LATCH,
        "self._watched = line[place - 1] if place else None",
        "self._watched = line[0] if place else None",
        CONTRACT,
    ),
    mutant(
        "a second place of ours stays", 3, LATCH,
        "                mine = node\n            else:\n                await self._remove(node)",
        "                mine = node",
        ON_LATCH,
    ),
    mutant(
        "a place is that of whatever session there is", 1, LATCH,
        "self._node, self._number = mine, number",
        "self._node, self._number = mine, self._session.number",
        ON_LATCH,
    ),
    mutant(
        "a place that is gone is not missed", 1, LATCH,
        'return "" if there else f"znode',
        'return "" if True else f"znode',
        ON_LATCH,
    ),
    mutant(
        "all are afraid of a broken connection", 3, LATCH,
        'return "" if self._tolerant else',
        'return "" if False else',
        ON_LATCH,
    ),
    # --- the session
    mutant(
        "a silent server is waited for", 1, SESSION,
        "loop.call_later(self.session_s / 4, client.wire.drop)",
        "loop.call_later(self.session_s * 4, client.wire.drop)",
        ON_SILENCE,
    ),
    mutant(
        "a silent server is noticed by the patient only", 1, SESSION,
        "            raise self.understood(error) from error\n",
        "            raise self.understood(error) from error\n"
        "        finally:\n            overdue.cancel()\n",
        ON_SILENCE,
    ),
    mutant(
        "what is asked without a connection is sent later", 1, SESSION,
        "if self._state == KeeperState.CONNECTING:",
        "if self._state is None:",
        ON_SESSION,
    ),
    mutant(
        "a silent member is waited for", 3, SESSION,
        "super()._invoke(min(timeout, wire.handshake_s), request, xid)",
        "super()._invoke(timeout, request, xid)",
        ON_SESSION,
    ),
    mutant(
        "a session outlives its register", 5, SESSION,
        "weakref.finalize(self, self._farewell.begin)",
        "pass",
        ON_SESSION,
    ),
    # --- the register
    mutant(
        "a version of a node is thought to be a fence", 1, REGISTER,
        "            return await self._replace(key, value, nonce, int(number))",
        "            nonce = await self._find_nonce(key) or nonce\n"
        "            return await self._replace(key, value, nonce, int(number))",
        ON_REGISTER,
    ),
    mutant(
        "one of two values is taken for the value", 9, REGISTER,
        "if len(nonces) != 1:",
        "if not nonces:",
        ON_REGISTER,
    ),
    mutant(
        "a register makes what was made for it", 8, REGISTER,
        'if not await self._session.read(methodcaller("exists_async", path[:end]))',
        "if True",
        ON_REGISTER,
    ),
    mutant(
        "nodes that hands have made are removed", 5, REGISTER,
        "if data != OURS or (stat",
        "if (stat",
        ON_REGISTER,
    ),
    # --- the release
    mutant(
        "a session is given up before the descendants are dead", 3, GUARDIAN,
        "        self._kill_all()\n        for message",
        "        self._run_release()\n        self._kill_all()\n        for message",
        "tests/guardian/test_release.py",
    ),
    mutant(
        "last words are not heard", 3, GUARDIAN,
        "            self._from_worker(message)\n        code",
        "            pass\n        code",
        "tests/guardian/test_release.py",
    ),
    mutant(
        "what was released is given up again", 3, GUARDIAN,
        "if self._release is None or self._released:",
        "if self._release is None:",
        "tests/guardian/test_release.py",
    ),
)  # fmt: skip
