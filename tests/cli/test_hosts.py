"""conf/masters and conf/workers: what each line asks for, or why it is refused."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from understudy.cli.launch.hosts import (
    Member,
    check_host,
    is_this_host,
    reachable_as,
    read_masters,
    read_workers,
    shown_as,
)
from understudy.config import Configuration
from understudy.config.security import is_loopback
from understudy.errors import UsageError


def test_a_line_is_a_host_with_its_port_and_comments_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "masters").write_text(
        "# the first one brings the application\n\n"
        "one.example:8081\n"
        "  two.example   # of another rack\n"
        "two.example:9000\r\n"
        "10.0.0.3\n"
        "[2001:db8::1]:8081\n"
        "2001:DB8::2\n"
        "[2001:db8::2]\n"
    )
    expected = [
        Member("jobmanager", "one.example", 1, 8081),
        Member("jobmanager", "two.example", 1),
        Member("jobmanager", "two.example", 2, 9000),
        Member("jobmanager", "10.0.0.3", 1),
        Member("jobmanager", "2001:db8::1", 1, 8081),
        Member("jobmanager", "2001:db8::2", 1),
        Member("jobmanager", "2001:db8::2", 2),
    ]

    assert expected == read_masters(tmp_path)


def test_a_worker_that_is_repeated_has_several_taskmanagers(tmp_path: Path) -> None:
    (tmp_path / "workers").write_text("one\ntwo\none\n")
    expected = [
        Member("taskmanager", "one", 1),
        Member("taskmanager", "two", 1),
        Member("taskmanager", "one", 2),
    ]

    assert expected == read_workers(tmp_path)


def test_without_files_there_is_one_process_of_each_kind_here(tmp_path: Path) -> None:
    assert [Member("jobmanager", "localhost", 1)] == read_masters(tmp_path) == read_masters(None)
    assert [Member("taskmanager", "localhost", 1)] == read_workers(tmp_path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("one\ntwo:0\n", "masters: line 2: 'two:0': expected host or host:port, port 1 to 65535"),
        ("two:80a\n", "line 1: 'two:80a'"),
        ("two:\n", "line 1: 'two:'"),
        ("two:99999999999999999999\n", "port 1 to 65535"),
        ("one 3\n", "line 1: 'one 3': expected the name or the address of a host; for several"),
        ("-oProxyCommand=x\n", "line 1: '-oProxyCommand=x': expected the name"),
        ("one;reboot\n", "expected the name"),
        ("$(reboot)\n", "expected the name"),
        ("user@one\n", "'user@one': expected the name or the address of a host; name the user"),
        ("0.0.0.0\n", "masters: line 1: '0.0.0.0': this is every address of a host, not one that"),
        ("one\n[::]:8081\n", "line 2: '[::]': this is every address of a host, not one that"),
        ("[one]:8081\n", "expected the name"),
        ("é\n", "expected the name"),
        (f"{'x' * 300}\n", "(300 characters): expected the name"),
        ("one:8081\none:8081\n", "line 2: one:8081 is there twice"),
        ("# nobody\n\n", "masters: names no host"),
        ("one\n" * 1_001, "line 1001: more than 1,000 hosts"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_line(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "masters").write_text(text)
    with pytest.raises(UsageError) as caught:
        read_masters(tmp_path)

    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "masters").mkdir()
    (tmp_path / "workers").write_bytes(b"\xff\n")
    with pytest.raises(UsageError, match="masters: cannot be read: Is a directory"):
        read_masters(tmp_path)
    with pytest.raises(UsageError, match="workers: not text in UTF-8"):
        read_workers(tmp_path)


def test_names_and_addresses_of_this_host_are_told_from_those_of_others() -> None:
    ours = ["localhost", "127.0.0.1", "127.0.0.2", "::1", socket.gethostname()]
    others = ["192.0.2.1", "2001:db8::1", "no-such-host.invalid"]

    assert [True] * 5 == [is_this_host(name) for name in ours]
    assert [False] * 3 == [is_this_host(name) for name in others]
    assert [True, False] == [is_loopback("LOCALHOST"), is_loopback("localhost.example")]


def test_addresses_follow_from_the_host_unless_they_were_said() -> None:
    expected = {
        "jobmanager.rpc.address": "one",
        "rest.address": "one",
        "rest.bind-address": "one",
        "rest.bind-port": "9000",
    }

    actual = reachable_as("one", 9000, ["jobmanager.bind-host=0.0.0.0", "rest.port=1"])

    assert expected == actual
    assert {"rest.bind-port": "9000"} == reachable_as(None, 9000, None)
    assert {} == reachable_as(None, None, ["rest.bind-port=1"])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "[::]", "0:0:0:0:0:0:0:0", "::ffff:0.0.0.0"])
def test_all_addresses_are_no_host_that_others_could_reach(host: str) -> None:
    with pytest.raises(ValueError, match=r"and taskmanager\.bind-host take it"):
        check_host(host)


@pytest.mark.parametrize("host", ["tm-1", "10.0.0.3", "2001:db8::3"])
def test_a_taskmanager_on_another_host_is_scraped_there_where_there_is_a_secret(host: str) -> None:
    secret = Configuration({"security.secret-file": "/secret"})
    called = {"taskmanager.host": host}
    elsewhere = Configuration({**secret.settings, "taskmanager.bind-host": "127.0.0.1"})

    assert {**called, "taskmanager.bind-host": host} == shown_as(host, secret, None)
    assert called == shown_as(host, elsewhere, ["taskmanager.bind-host=127.0.0.1"])
    assert called == shown_as(host, Configuration({}), None)
    assert {"taskmanager.bind-host": host} == shown_as(host, secret, ["taskmanager.host=rack 3"])


def test_a_taskmanager_of_this_host_alone_stays_on_loopback() -> None:
    secret = Configuration({"security.secret-file": "/secret"})

    assert {"taskmanager.host": "localhost"} == shown_as("localhost", secret, None)
    assert {} == shown_as(None, secret, None)
