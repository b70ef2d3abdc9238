"""All options together: what is declared, what it says by default, and what is written of it."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest

from understudy.config import Configuration, Option, backends, docs, flink, options
from understudy.config.configuration import REDACTED, redact
from understudy.config.known import known_with
from understudy.config.option import INFINITE

KNOWN = known_with({})
EVERY = [*options.OPTIONS, *(one for _, backend in backends.ours() for one in backend.options)]

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
KEYS = [option.key for option in EVERY]


def test_every_option_is_declared_once() -> None:
    expected = sorted(set(KEYS))

    actual = sorted(KEYS)

    assert expected == actual
    assert len(actual) > 40


@pytest.mark.parametrize("option", EVERY, ids=KEYS)
def test_every_option_has_a_key_a_meaning_and_a_default_that_can_be_read(
    option: Option[object],
) -> None:
    expected = None if option.default is None else option.parse(option.default)

    actual = Configuration().find(option)

    assert expected == actual
    assert re.fullmatch(r"[a-zA-Z$.-]+", option.key)
    assert option.meaning.endswith(".")
    assert "|" not in option.meaning + option.flink, "it would break the table"


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (options.HA_TYPE, "filesystem"),
        (options.LEASE_DURATION, 15.0),
        (options.RENEW_DEADLINE, 10.0),
        (options.RETRY_PERIOD, 2.0),
        (options.DELETE_ON_COMMIT, True),
        (options.TOMBSTONE_TTL, 7 * 86400.0),
        (options.UNREACHED_GRACE, 5.0),
        (options.RESULT_MAX_SIZE, 262144),
        (options.RESTART_TYPE, "exponential-delay"),
        (
            options.NO_RETRY,
            ("AnalysisException", "ParseException", "NameError", "ImportError", "SyntaxError"),
        ),
        (options.FIXED_ATTEMPTS, 1),
        (options.FIXED_DELAY, 1.0),
        (options.EXPONENTIAL_ATTEMPTS, 3),
        (options.EXPONENTIAL_INITIAL, 1.0),
        (options.EXPONENTIAL_MAX, 60.0),
        (options.EXPONENTIAL_MULTIPLIER, 1.5),
        (options.EXPONENTIAL_JITTER, 0.1),
        (options.EXPONENTIAL_RESET, 3600.0),
        (options.CLEANUP_TYPE, "exponential-delay"),
        (options.CLEANUP_ATTEMPTS, INFINITE),
        (options.CLEANUP_INITIAL, 1.0),
        (options.CLEANUP_MAX, 3600.0),
        (options.CLEANUP_FIXED_ATTEMPTS, INFINITE),
        (options.CLEANUP_FIXED_DELAY, 60.0),
        (options.ADOPTION_GRACE, 40.0),
        (options.MAIN_HEARTBEAT, 30.0),
        (options.ORPHAN_TIMEOUT, 30.0),
        (options.SLOTS, 2),
        (options.SPARES, 1),
        (options.DRIVER_HEARTBEAT, 30.0),
        (options.DRIVER_START, 180.0),
        (options.CANCEL_GRACE, 5.0),
        (options.DRIVER_KIND, "spark"),
        (options.HEARTBEAT_INTERVAL, 5.0),
        (options.REST_BIND_ADDRESS, "127.0.0.1"),
        (options.REST_BIND_PORT, tuple(range(8081, 8181))),
        (options.SHUTDOWN_ON_FINISH, True),
        (options.CLIENT_TIMEOUT, 60.0),
        (options.AWAIT_LEADER, 30.0),
        (options.REDACTED_KEYS, ()),
    ],
    ids=lambda value: value.key if isinstance(value, Option) else "",
)
def test_what_holds_where_nothing_is_set(option: Option[object], expected: object) -> None:
    actual = Configuration().get(option)

    assert expected == actual


@pytest.mark.parametrize("family", ["restart-strategy.type", "cleanup-strategy.type"])
@pytest.mark.parametrize(
    ("spelling", "expected"),
    [
        ("none", "none"),
        ("off", "none"),
        ("disable", "none"),
        ("fixed-delay", "fixed-delay"),
        ("fixeddelay", "fixed-delay"),
        ("exponential-delay", "exponential-delay"),
        ("ExponentialDelay", "exponential-delay"),
    ],
)
def test_a_strategy_has_flinks_spellings(family: str, spelling: str, expected: str) -> None:
    option = options.RESTART_TYPE if family.startswith("restart") else options.CLEANUP_TYPE

    actual = Configuration({family: spelling}).get(option)

    assert expected == actual


@pytest.mark.parametrize("spelling", ["failure-rate", "failurerate", "FailureRate"])
def test_the_failure_rate_has_flinks_spellings(spelling: str) -> None:
    expected = "failure-rate"

    actual = Configuration({"restart-strategy.type": spelling}).get(options.RESTART_TYPE)

    assert expected == actual


@pytest.mark.parametrize(
    "option",
    [
        options.RATE_INTERVAL,
        options.ORPHAN_TIMEOUT,
        options.HEARTBEAT_INTERVAL,
        options.CLIENT_TIMEOUT,
    ],
    ids=lambda option: option.key,
)
def test_a_period_of_nothing_would_kill_or_spin_and_is_refused(option: Option[float]) -> None:
    with pytest.raises(ValueError, match="more than nothing"):
        option.parse("0 s")


def test_of_our_own_options_only_passwords_are_taken_for_secrets() -> None:
    expected = {key for key in KEYS if key.endswith("password")}
    expected.add("high-availability.zookeeper.client.authorization")

    shown = redact(dict.fromkeys(KEYS, "shown"))
    actual = {key for key, text in shown.items() if text == REDACTED}

    assert expected == actual


# --- Flink's keys ---------------------------------------------------------------------------------


def test_a_key_has_one_fate() -> None:
    fates = [set(KEYS), set(KNOWN.successors), set(KNOWN.without_meaning)]

    actual = [one & other for one, other in combinations(fates, 2)]

    assert [set()] * 3 == actual


@pytest.mark.parametrize(("key", "successor"), list(KNOWN.successors.items()))
def test_a_successor_is_an_option(key: str, successor: str) -> None:
    assert successor in KEYS
    assert key != successor


@pytest.mark.parametrize("prefix", flink.PREFIXES_WITHOUT_MEANING)
def test_a_family_without_a_meaning_ends_in_a_dot(prefix: str) -> None:
    assert prefix.endswith(".")
    assert not prefix.startswith(options.PASSED_ON)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("heartbeat.timeout", KNOWN.without_meaning["heartbeat.timeout"]),
        ("zookeeper.sasl.disable", KNOWN.without_meaning["zookeeper.sasl.disable"]),
        ("heartbeat.timeouts", None),
        ("zookeeper", None),
    ],
)
def test_a_reason_is_given_for_what_does_nothing(key: str, expected: str | None) -> None:
    actual = KNOWN.reason_without_meaning(key)

    assert expected == actual


# --- the page -------------------------------------------------------------------------------------


def test_the_page_is_what_the_options_say() -> None:
    expected = docs.render()

    actual = PAGE.read_text(encoding="utf-8")

    assert expected == actual, "run: make docs"


def test_the_page_names_every_key() -> None:
    page = docs.render()
    keys = [*KEYS, *KNOWN.successors, *KNOWN.without_meaning]
    families = [f"{prefix}*" for prefix in flink.PREFIXES_WITHOUT_MEANING]

    actual = [key for key in [*keys, *families] if page.count(f"\n| `{key}` |") != 1]

    assert [] == actual


@pytest.mark.parametrize(
    "expected",
    [
        "| `taskmanager.spare-drivers` | Integer (0 to 1000) | `1` | Warm drivers",
        "| (unset) |",
        "| (empty) |",
        "| not there |\n",
        "| the same |\n",
        "| default 1 there |\n",
        "| `recovery.mode` | `high-availability.type` |\n",
        "| `cluster.id` | use high-availability.cluster-id and --run-id |\n",
    ],
)
def test_the_page_tells_types_defaults_and_what_differs(expected: str) -> None:
    actual = docs.render()

    assert expected in actual
