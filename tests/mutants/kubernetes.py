"""Mutants of the Kubernetes backend, and of what followers of its Lease are sent."""

from __future__ import annotations

from tests.mutants.mutant import mutant

BACKEND = "ha/backends/kubernetes/"
REGISTER = BACKEND + "register.py"
OBJECTS = BACKEND + "objects.py"
CLIENT = "kubernetes/client.py"
REFUSALS = "kubernetes/refusals.py"
WATCH = "kubernetes/watch.py"
RELEASE = BACKEND + "release.py"
RIGHTS = "kubernetes/rights.py"
RIVAL = BACKEND + "rival.py"
ANNOUNCER = BACKEND + "announcer.py"

ON_REGISTER = "tests/ha/test_kubernetes_register.py"
ON_LEADER = "tests/ha/test_kubernetes_leader.py"
ON_CLIENT = "tests/ha/test_kubernetes_client.py"
ON_RIVAL = "tests/ha/test_kubernetes_rival.py"
ON_ANNOUNCER = "tests/ha/test_kubernetes_announcer.py"
ON_ELECTION = "tests/ha/test_kubernetes_election.py"

KUBERNETES = (
    # --- writes
    mutant(
        "a write compares no version of the object", 1, REGISTER,
        'fence = {"uid": stored.uid, "resourceVersion": stored.resource_version}\n'
        "        body = objects.merged(change",
        'fence = {"uid": stored.uid}\n        body = objects.merged(change',
        ON_REGISTER,
    ),
    mutant(
        "a deletion compares no version of the object", 1, REGISTER,
        '"preconditions": fence}',
        '"preconditions": {}}',
        ON_REGISTER,
    ),
    mutant(
        "a conflict over another entry is one over ours", 7, REGISTER,
        "self._conflicts += 1\n",
        "self._conflicts += 1\n                raise Conflict(key) from error\n",
        ON_REGISTER,
    ),
    mutant(
        "a person's edit makes no version", 9, OBJECTS,
        'version = _version(version.partition(".")[0], value)  # noqa: PLW2901',
        "pass",
        ON_REGISTER,
    ),
    mutant(
        "an object without the list of its entries is empty", 9, OBJECTS,
        "if values and ENTRIES not in _annotations(found):",
        "if False:",
        ON_REGISTER,
    ),
    mutant(
        "an entry that a person removed is absent", 9, OBJECTS,
        "elif not part and (whole or key == self._record):\n",
        "elif not part and (whole or key == self._record):\n                continue\n",
        ON_REGISTER,
    ),
    mutant(
        "a map grows beyond what Kubernetes takes", 7, OBJECTS,
        "CONFIG_MAP_FULL_BYTES = CONFIG_MAP_BYTES_MAX - 16_384",
        "CONFIG_MAP_FULL_BYTES = CONFIG_MAP_BYTES_MAX * 2",
        ON_REGISTER,
    ),
    mutant(
        "a part of a write under way is removed", 7, REGISTER,
        'and over != (of.resource_version if of else "")',
        "",
        ON_REGISTER,
    ),
    mutant(
        "a replaced part stays", 5, REGISTER,
        "if replaced and replaced.part:",
        "if False:",
        ON_REGISTER,
    ),
    mutant(
        "values are known though another process has written", 1, REGISTER,
        'found["metadata"]["resourceVersion"] != seen.resource_version',
        'not found["metadata"]["resourceVersion"]',
        ON_REGISTER,
    ),
    mutant(
        "the last entry leaves its object behind", 5, REGISTER,
        "        if not slots:\n            assert stored is not None\n            fence",
        "        if False:\n            assert stored is not None\n            fence",
        ON_REGISTER,
    ),
    mutant(
        "a renewal waits for other writes", 1, REGISTER,
        "lane = Lane.RENEWAL if key == LEADER else Lane.COMMON",
        "lane = Lane.COMMON",
        ON_LEADER,
    ),
    # --- answers
    mutant(
        "a write with an unknown outcome is sent again", 1, CLIENT,
        'if error.status < 500 or request.method != "GET" or reads == READS_MAX:',
        "if error.status < 500 or reads == READS_MAX:",
        ON_CLIENT,
    ),
    mutant(
        "a write whose answer is lost is sent again", 1, CLIENT,
        '            except OSError:\n                if request.method != "GET" or reads',
        "            except OSError:\n                if reads",
        ON_CLIENT,
    ),
    mutant(
        "a page of a proxy is an absence", 9, REFUSALS,
        "if (said is None and status in _ONLY_KUBERNETES) or (",
        "if False and (",
        ON_CLIENT,
    ),
    mutant(
        "patience is not what the server asks for", 7, CLIENT,
        "            self._quiet(lane, _seconds(retry_after))\n",
        "            pass\n",
        ON_CLIENT,
    ),
    mutant(
        "a refused token is not read again", 7, CLIENT,
        "                    await self._token.renew()\n                    continue",
        "                    continue",
        ON_CLIENT,
    ),
    # --- watches
    mutant(
        "a version that is too old is watched again", 7, WATCH,
        '            except Outdated:\n                self._version = ""\n',
        "            except Outdated:\n",
        ON_CLIENT,
    ),
    mutant(
        "a watch that closes early is opened for ever", 7, WATCH,
        'if early >= EARLY_MAX:\n                    self._version = ""',
        "if early >= EARLY_MAX:\n                    pass",
        ON_CLIENT,
    ),
    mutant(
        "nobody is woken after a list", 7, WATCH,
        "        self._version = version\n        notify(ListedObjects(found, asked_s))",
        "        self._version = version",
        ON_CLIENT,
    ),
    mutant(
        "a silent watch is waited for", 7, CLIENT,
        "timeout = httpx.Timeout(CONNECT_S, read=silence_s)",
        "timeout = httpx.Timeout(CONNECT_S, read=None)",
        ON_CLIENT,
    ),
    # --- the leader
    mutant(
        "the guardian empties a later leader's record", 10, RELEASE,
        'json.loads(text)["body"]["holder"] != what["holder"]',
        "False",
        ON_LEADER,
    ),
    mutant(
        "the guardian keeps the token of the grant", 5, REGISTER,
        "(holder, token) == self._held",
        "holder == self._held[0]",
        "tests/ha/test_kubernetes_guardian.py",
    ),
    mutant(
        "a missing right is no reason to refuse", 9, REGISTER,
        "if self._missing:",
        "if False:",
        ON_LEADER,
    ),
    mutant(
        "followers read at each renewal", 7, REGISTER,
        "if change is None or key != LEADER:",
        "if True:",
        ON_ELECTION,
    ),
    mutant(
        "each of two places for the record elects a leader", 10, RIVAL,
        "        if not view.holder:\n",
        "        if view.holder:\n",
        ON_RIVAL,
    ),
    mutant(
        "a dead leader in the other place is waited for without end", 8, RIVAL,
        "elif now - self._seen_at >= view.duration_s:",
        "elif False:",
        ON_RIVAL,
    ),
    mutant(
        "of two that write at once both lead", 10, REGISTER,
        "                await self._swap(place, LEADER, None, version)\n                raise\n",
        "                pass\n",
        ON_RIVAL,
    ),
    # --- Events
    mutant(
        "an Event that cannot be posted ends all further ones", 9, ANNOUNCER,
        "            except OSError as error:\n                refused",
        "            except NotThere as error:\n                refused",
        ON_ANNOUNCER,
    ),
    mutant(
        "the loss of the API server is the loss of its Events", 9, ANNOUNCER,
        "if not refused and",
        "if False and",
        ON_ANNOUNCER,
    ),
)  # fmt: skip
