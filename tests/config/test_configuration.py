"""Settings become a configuration: what is taken, what wins, what is refused and how."""

from __future__ import annotations

from pathlib import Path

import pytest

from understudy.config import Configuration, flink, options
from understudy.config.configuration import load_configuration
from understudy.config.known import known_with
from understudy.errors import ConfigurationError

KNOWN = known_with({})


def refusal(settings: dict[str, str]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        Configuration(settings)
    return str(caught.value)


# --- values ---------------------------------------------------------------------------------------


def test_a_setting_is_read_as_its_type() -> None:
    expected = 7

    actual = Configuration({"taskmanager.numberOfTaskSlots": " 7 "}).get(options.SLOTS)

    assert expected == actual


def test_what_is_unset_and_has_no_default_is_found_as_none() -> None:
    actual = Configuration().find(options.CLUSTER_ID)

    assert actual is None


def test_what_has_no_default_must_be_looked_for() -> None:
    with pytest.raises(AssertionError, match=r"cluster-id has no default"):
        Configuration().get(options.CLUSTER_ID)


@pytest.mark.parametrize("text", ["true", "false"])
def test_unset_differs_from_false(text: str) -> None:
    option = options.TERMINATE_ON_JOB_FAILURE
    expected = text == "true"

    actual = Configuration({option.key: text}).find(option)

    assert expected is actual
    assert Configuration().find(option) is None


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"heartbeat.interval": "soon"},
            "heartbeat.interval is 'soon': expected a duration such as '20 s', '1 min' or '500 ms'",
        ),
        (
            {"taskmanager.numberOfTaskSlots": "0"},
            "taskmanager.numberOfTaskSlots is '0': expected a whole number from 1 to 1000",
        ),
        (
            {"restart-strategy.type": "sometimes"},
            "restart-strategy.type is 'sometimes': expected one of none, fixed-delay, "
            "failure-rate, exponential-delay",
        ),
        (
            {"restart-strategy": "sometimes"},
            "restart-strategy is 'sometimes': expected one of none, fixed-delay, failure-rate, "
            "exponential-delay",
        ),
        (
            {"restart-strategy": "none", "restart-strategy.type": "sometimes"},
            "restart-strategy.type is 'sometimes': expected one of none, fixed-delay, "
            "failure-rate, exponential-delay",
        ),
        (
            {"job.result.max-size": "much"},
            "job.result.max-size is 'much': expected a size such as '256 kb' or '1 gb'",
        ),
    ],
)
def test_a_bad_value_is_refused_with_key_value_and_way_out(
    settings: dict[str, str], expected: str
) -> None:
    actual = refusal(settings)

    assert expected == actual


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (
            "taskmanager.numberOfTaskSlot",
            "unknown option 'taskmanager.numberOfTaskSlot'; "
            "did you mean 'taskmanager.numberOfTaskSlots'?",
        ),
        ("restart-strateg", "unknown option 'restart-strateg'; did you mean 'restart-strategy'?"),
        ("heartbeat", "unknown option 'heartbeat'; did you mean 'heartbeat.interval'?"),
        ("xyz", "unknown option 'xyz'; docs/configuration.md lists all options"),
        ("", "unknown option ''; docs/configuration.md lists all options"),
        ("sparkling.water", "unknown option 'sparkling.water'"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(key: str, expected: str) -> None:
    actual = refusal({key: "1"})

    assert actual.startswith(expected)


def test_what_is_spark_s_is_passed_on_as_it_is() -> None:
    settings = {"spark.sql.shuffle.partitions": " 7", "spark.x": "", "env.log.max": "3"}
    expected = {"spark.sql.shuffle.partitions": " 7", "spark.x": ""}

    configuration = Configuration(settings)

    assert expected == configuration.passed_on("spark.")
    assert {"spark.x": ""} == configuration.passed_on("spark.x")
    assert [] == configuration.warnings


def test_settings_are_added_or_replaced_in_a_new_configuration() -> None:
    before = Configuration({"env.log.max": "3", "taskmanager.spare-drivers": "0"})

    after = before.with_settings({"env.log.max": "4", "io.tmp.dirs": "/scratch"})

    assert (3, 4) == (before.get(options.LOG_MAX), after.get(options.LOG_MAX))
    assert (0, "/scratch") == (after.get(options.SPARES), after.find(options.TMP_DIRS))
    assert before.find(options.TMP_DIRS) is None


# --- Flink's keys ---------------------------------------------------------------------------------


FITTING = {
    "timeout": "5 s",
    "retry-wait": "5 s",
    "max-retry-attempts": "5",
    "port": "9000",
    "delete-on-commit": "false",
    "quorum": "zk1:2181",
    "path.root": "/here",
    "num-retained": "3",
    "ignore-unclaimed-state": "true",
    "claim-mode": "CLAIM",
}
"""Values that options take whose keys end so."""


@pytest.mark.parametrize(("key", "successor"), list(KNOWN.successors.items()))
def test_a_deprecated_key_acts_as_its_successor_and_is_warned_of(key: str, successor: str) -> None:
    text = next((text for end, text in FITTING.items() if successor.endswith(end)), "none")
    needed = {"high-availability.type": "zookeeper"} if successor.endswith("quorum") else {}

    actual = Configuration({key: text, **needed})

    assert {successor: text, **needed} == actual.settings
    assert [f"{key} is deprecated: use {successor}"] == actual.warnings


@pytest.mark.parametrize("first", ["restart-strategy", "restart-strategy.type"])
def test_the_successor_wins_in_any_order(first: str) -> None:
    settings = {"restart-strategy": "none", "restart-strategy.type": "fixed-delay"}
    ordered = {first: settings[first], **settings}

    actual = Configuration(ordered)

    assert {"restart-strategy.type": "fixed-delay"} == actual.settings
    assert [
        "restart-strategy is deprecated: use restart-strategy.type, which is set too and wins"
    ] == actual.warnings


def test_of_two_deprecated_keys_the_first_wins() -> None:
    expected = {"high-availability.type": "filesystem"}

    actual = Configuration({"high-availability": "filesystem", "recovery.mode": "zookeeper"})

    assert expected == actual.settings
    assert len(actual.warnings) == 2


def test_a_bad_value_beside_its_successor_is_not_even_read() -> None:
    expected = {"restart-strategy.type": "none"}

    actual = Configuration({"restart-strategy": "sometimes", **expected})

    assert expected == actual.settings


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        *KNOWN.without_meaning.items(),
        *((f"{prefix}x", why) for prefix, why in flink.PREFIXES_WITHOUT_MEANING.items()),
    ],
)
def test_a_key_without_a_meaning_does_nothing_and_says_why(key: str, reason: str) -> None:
    actual = Configuration({key: "anything"})

    assert {} == actual.settings
    assert [f"{key} does nothing here: {reason}"] == actual.warnings


def test_a_key_that_is_ours_has_a_meaning_in_whatever_family() -> None:
    expected = {"high-availability.cluster-id": "c"}

    actual = Configuration({"high-availability.zookeeper.path.namespace": "c"})

    assert expected == actual.settings


# --- relations ------------------------------------------------------------------------------------

EXPONENTIAL = "restart-strategy.exponential-delay"
RATE = "restart-strategy.failure-rate"
CLEANUP = "cleanup-strategy.exponential-delay"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"jobmanager.adoption-grace": "33500 ms"},
            "jobmanager.adoption-grace (33.5 s) must be longer than 33.5 s, that is "
            "taskmanager.orphan-timeout (30 s) × 1.05 + 2 s for the kill: a leader may not "
            "restart a job while a driver may still run it",
        ),
        (
            {"taskmanager.orphan-timeout": "60 s"},
            "jobmanager.adoption-grace (40 s) must be longer than 65 s, that is "
            "taskmanager.orphan-timeout (60 s) × 1.05 + 2 s for the kill: a leader may not "
            "restart a job while a driver may still run it",
        ),
        (
            {"heartbeat.interval": "15 s"},
            "heartbeat.interval (15 s) must be shorter than half of taskmanager.orphan-timeout "
            "(30 s), or one late answer kills the drivers",
        ),
        (
            {f"{EXPONENTIAL}.initial-backoff": "61 s"},
            f"{EXPONENTIAL}.initial-backoff (61 s) must not be longer than "
            f"{EXPONENTIAL}.max-backoff (60 s)",
        ),
        (
            {f"{CLEANUP}.max-backoff": "999 ms"},
            f"{CLEANUP}.initial-backoff (1 s) must not be longer than {CLEANUP}.max-backoff "
            "(0.999 s)",
        ),
        (
            {f"{EXPONENTIAL}.backoff-multiplier": "0.99"},
            f"{EXPONENTIAL}.backoff-multiplier is 0.99: it must be at least 1, or pauses would "
            "become shorter",
        ),
        (
            {f"{RATE}.delay": "20 s", f"{RATE}.max-failures-per-interval": "3"},
            f"{RATE}.failure-rate-interval (60 s) must be longer than 60 s, that is {RATE}.delay "
            f"(20 s) × {RATE}.max-failures-per-interval (3), or failures would be too far apart "
            "for the job ever to be declared failed",
        ),
        (
            {f"{RATE}.max-failures-per-interval": "101", f"{RATE}.delay": "0 s"},
            f"{RATE}.max-failures-per-interval is 101: it must be at most 100, as each failure is "
            "kept in the register",
        ),
        (
            {f"{EXPONENTIAL}.jitter-factor": "1.01"},
            f"{EXPONENTIAL}.jitter-factor is 1.01: it must be at most 1, or pauses would be "
            "negative",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused_with_a_sentence(
    settings: dict[str, str], expected: str
) -> None:
    actual = refusal(settings)

    assert expected == actual


@pytest.mark.parametrize(
    "settings",
    [
        {"jobmanager.adoption-grace": "33501 ms"},
        {"heartbeat.interval": "14999 ms"},
        {"taskmanager.orphan-timeout": "60 s", "jobmanager.adoption-grace": "66 s"},
        {f"{EXPONENTIAL}.initial-backoff": "60 s"},
        {f"{CLEANUP}.max-backoff": "1 s"},
        {f"{EXPONENTIAL}.backoff-multiplier": "1"},
        {f"{RATE}.delay": "19999 ms", f"{RATE}.max-failures-per-interval": "3"},
        {f"{RATE}.max-failures-per-interval": "100", f"{RATE}.delay": "0 s"},
        {f"{EXPONENTIAL}.jitter-factor": "1"},
        {f"{EXPONENTIAL}.jitter-factor": "0"},
    ],
)
def test_settings_that_just_fit_are_taken(settings: dict[str, str]) -> None:
    actual = Configuration(settings)

    assert settings == actual.settings


# --- the file, and -D -----------------------------------------------------------------------------

NESTED = """
high-availability:
  type: filesystem
  cluster-id: flights
  leader-election: {lease-duration: 20 s}
taskmanager.numberOfTaskSlots: 4
taskmanager:
  spare-drivers: 0
spark:
  sql.shuffle.partitions: 7
  ui:
    enabled: false
security.redaction.additional-keys: [pin, puk]
io.tmp.dirs: ""
"""
FLAT = {
    "high-availability.type": "filesystem",
    "high-availability.cluster-id": "flights",
    "high-availability.leader-election.lease-duration": "20 s",
    "taskmanager.numberOfTaskSlots": "4",
    "taskmanager.spare-drivers": "0",
    "spark.sql.shuffle.partitions": "7",
    "spark.ui.enabled": "false",
    "security.redaction.additional-keys": "pin,puk",
    "io.tmp.dirs": "",
}


def written(directory: Path, text: str) -> Path:
    (directory / "config.yaml").write_text(text, encoding="utf-8")
    return directory


def loaded(directory: Path, text: str, *overrides: str) -> dict[str, str]:
    return load_configuration(written(directory, text), overrides).settings


@pytest.mark.parametrize(
    "text", [NESTED, "".join(f"{key}: '{value}'\n" for key, value in FLAT.items())]
)
def test_keys_are_nested_or_dotted(tmp_path: Path, text: str) -> None:
    expected = FLAT

    actual = loaded(tmp_path, text)

    assert expected == actual


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "{}"])
def test_an_empty_file_sets_nothing(tmp_path: Path, text: str) -> None:
    expected: dict[str, str] = {}

    actual = loaded(tmp_path, text)

    assert expected == actual


@pytest.mark.parametrize("text", ["off", "007", "1:30", "1e3", "2024-01-01", "yes", "True", "1.50"])
def test_a_value_is_the_text_that_stands_there(tmp_path: Path, text: str) -> None:
    expected = {"spark.x": text, "spark.y": text}

    actual = loaded(tmp_path, f"spark.x: {text}\nspark.y: '{text}'")

    assert expected == actual


def test_flinks_off_is_understood_in_a_file(tmp_path: Path) -> None:
    expected = "none"

    configuration = load_configuration(written(tmp_path, "restart-strategy.type: off"), [])
    actual = configuration.get(options.RESTART_TYPE)

    assert expected == actual


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- a\n- b\n", "expected keys and values, found list"),
        ("word", "expected keys and values, found str"),
        ("io.tmp.dirs:\n", "io.tmp.dirs has no value"),
        ("io: {tmp: {dirs: null}}", "io.tmp.dirs has no value"),
        ("io.tmp.dirs: /a\nio: {tmp.dirs: /b}", "io.tmp.dirs is there twice"),
        ("rest.bind-port: [{a: b}]", "rest.bind-port must be a list of plain values"),
        ("rest.bind-port: [~]", "rest.bind-port must be a list of plain values"),
    ],
)
def test_a_file_that_says_something_else_is_refused(
    tmp_path: Path, text: str, expected: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        loaded(tmp_path, text)

    assert f"{tmp_path}/config.yaml: {expected}" == str(caught.value)


@pytest.mark.parametrize(
    "data", [b"a: [", b"a: b: c", b"\xff\xfe", b"a: !!python/object:os.system x"]
)
def test_a_file_that_is_no_yaml_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "config.yaml").write_bytes(data)

    with pytest.raises(ConfigurationError) as caught:
        load_configuration(tmp_path, [])

    assert str(caught.value).startswith(f"{tmp_path}/config.yaml: not valid YAML: ")


def test_a_directory_without_the_file_is_refused(tmp_path: Path) -> None:
    expected = f"{tmp_path}/config.yaml: cannot be read: No such file or directory"

    with pytest.raises(ConfigurationError) as caught:
        load_configuration(tmp_path, [])

    assert expected == str(caught.value)


def test_without_a_directory_only_overrides_count() -> None:
    expected = {"env.log.max": "3"}

    actual = load_configuration(None, ["env.log.max=3"]).settings

    assert expected == actual


@pytest.mark.parametrize(
    ("text", "overrides", "expected"),
    [
        ("env.log.max: 3", ["env.log.max=4"], {"env.log.max": "4"}),
        ("env: {log: {max: 3}}", ["env.log.max=4"], {"env.log.max": "4"}),
        ("env.log.max: 3", ["io.tmp.dirs=/a"], {"env.log.max": "3", "io.tmp.dirs": "/a"}),
        ("", ["env.log.max=3", "env.log.max=4"], {"env.log.max": "4"}),
        ("", [" env.log.max =3"], {"env.log.max": "3"}),
        ("", ["spark.x=a=b"], {"spark.x": "a=b"}),
        ("", ["spark.x="], {"spark.x": ""}),
        (
            "restart-strategy.type: none",
            ["restart-strategy=fixed-delay"],
            {"restart-strategy.type": "fixed-delay"},
        ),
        (
            "restart-strategy: none",
            ["restart-strategy.type=fixed-delay"],
            {"restart-strategy.type": "fixed-delay"},
        ),
        (
            "recovery.mode: zookeeper",
            ["high-availability=filesystem"],
            {"high-availability.type": "filesystem"},
        ),
        (
            "",
            ["restart-strategy=none", "restart-strategy.type=fixed-delay"],
            {"restart-strategy.type": "fixed-delay"},
        ),
    ],
)
def test_an_override_wins_over_the_file(
    tmp_path: Path, text: str, overrides: list[str], expected: dict[str, str]
) -> None:
    actual = loaded(tmp_path, text, *overrides)

    assert expected == actual


@pytest.mark.parametrize("override", ["env.log.max", "=3", " =3", ""])
def test_an_override_is_a_key_and_a_value(override: str) -> None:
    expected = f"-D {override!r}: expected key=value"

    with pytest.raises(ConfigurationError) as caught:
        load_configuration(None, [override])

    assert expected == str(caught.value)
