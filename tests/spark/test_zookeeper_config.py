"""What is read from a ``zoo.cfg``: where it is asked, which member it is, what clients get."""

from __future__ import annotations

from pathlib import Path

import pytest

from understudy.errors import ConfigurationError
from understudy.spark import zookeeper_config
from understudy.spark.zookeeper_config import ServerConfig, read_config

THREE = (
    "server.1=one:2888:3888\nserver.2=two:2888:3888:participant\n"
    "server.3=[fd00::3]:2888:3888|three:2889:3889:observer\n"
)


def read(place: Path, text: str, my_id: int | None = None) -> ServerConfig:
    file = place / "zoo.cfg"
    file.write_text(text)
    return read_config(file, my_id)


@pytest.mark.parametrize(
    ("lines", "asked"),
    [
        ("clientPort=2181", "127.0.0.1:2181"),
        ("  clientPort : 2181  \n# clientPort=1\n! clientPort=2", "127.0.0.1:2181"),
        ("clientPort 2181", "127.0.0.1:2181"),
        ("clientPort=2\\\n   181", "127.0.0.1:2181"),
        ("clientPort=2181\nclientPortAddress=0.0.0.0", "127.0.0.1:2181"),
        ("clientPort=2181\nclientPortAddress=10.0.0.7", "10.0.0.7:2181"),
        ("clientPort=2181\nclientPortAddress=[fd00::7]", "[fd00::7]:2181"),
        ("clientPort=2181\nsecureClientPort=2281", "127.0.0.1:2181"),
        ("secureClientPort=2281\nsecureClientPortAddress=10.0.0.7", "10.0.0.7:2281"),
    ],
)
def test_a_server_is_asked_where_its_clients_connect(
    tmp_path: Path, lines: str, asked: str
) -> None:
    found = read(tmp_path, f"dataDir=data\n{lines}\n")

    assert asked == str(found.address) == found.quorum
    assert not found.has_quorum


def test_paths_are_counted_from_the_file(tmp_path: Path) -> None:
    assert tmp_path / "data" == read(tmp_path, "dataDir=data\nclientPort=1").data_dir
    assert Path("/data") == read(tmp_path, "dataDir=/data\nclientPort=1").data_dir


@pytest.mark.parametrize(
    ("lines", "quorum"),
    [
        (f"clientPort=2181\n{THREE}", "one:2181,two:2181,[fd00::3]:2181"),
        (
            "server.1=one:2888:3888;2181\nserver.2=two:2888:3888;10.0.0.2:2182\n"
            "server.3=three:2888:3888;0.0.0.0:2183\n",
            "one:2181,10.0.0.2:2182,three:2183",
        ),
        (
            # On one host the others' ports are in their own files: only ours is known.
            "clientPort=2181\nserver.1=one:2888:3888\nserver.2=one:2889:3889\n",
            "one:2181",
        ),
        ("clientPort=2181\nserver.1=one:2888:3888\n", "127.0.0.1:2181"),
    ],
)
def test_clients_get_all_members_that_the_file_tells(
    tmp_path: Path, lines: str, quorum: str
) -> None:
    my_id = 1 if "server.2" in lines else None

    assert quorum == read(tmp_path, f"dataDir=data\n{lines}", my_id).quorum


def test_members_may_stand_in_the_dynamic_file(tmp_path: Path) -> None:
    (tmp_path / "zoo.cfg.dynamic").write_text(
        "server.1=one:2888:3888;2181\nserver.2=two:2888:3888;2182\n"
    )
    found = read(tmp_path, "dataDir=data\ndynamicConfigFile=zoo.cfg.dynamic", 2)

    assert "one:2181,two:2182" == found.quorum
    assert "127.0.0.1:2182" == str(found.address)


@pytest.mark.parametrize(
    ("written", "wanted", "found"),
    [(None, 2, 2), ("2\n", None, 2), (" 2 ", 2, 2)],
)
def test_a_member_is_named_by_its_file_or_the_command(
    tmp_path: Path, written: str | None, wanted: int | None, found: int
) -> None:
    put_my_id(tmp_path, written)

    assert found == read(tmp_path, f"dataDir=data\nclientPort=2181\n{THREE}", wanted).my_id


def test_a_member_that_nobody_names_is_the_only_one_on_its_host(tmp_path: Path) -> None:
    file = tmp_path / "zoo.cfg"
    file.write_text(f"dataDir=data\nclientPort=2181\n{THREE}")
    hosts = [member.host for member in read_config(file, 1).members.values()]

    found = [read_config(file, is_here=here.__eq__) for here in hosts]

    assert [1, 2, 3] == [one.my_id for one in found]
    with pytest.raises(ConfigurationError, match="2 of them on this host"):
        read_config(file, is_here=lambda host: host != hosts[0])
    assert 3 == read_config(file, 3, lambda host: host == hosts[0]).my_id


@pytest.mark.parametrize(
    ("written", "wanted", "said"),
    [
        (None, None, "0 of them on this host, and .*data/myid is missing"),
        (None, 7, "member 7 has no line in"),
        ("7", None, "member 7 has no line in"),
        ("2", 3, "says that this is member 2"),
        ("two", None, "the member's number is 'two': expected a number up to 255"),
        ("256", None, "the member's number is '256'"),
    ],
)
def test_a_member_that_is_not_named_or_named_twice_is_refused(
    tmp_path: Path, written: str | None, wanted: int | None, said: str
) -> None:
    put_my_id(tmp_path, written)

    with pytest.raises(ConfigurationError, match=said):
        read(tmp_path, f"dataDir=data\nclientPort=2181\n{THREE}", wanted)


@pytest.mark.parametrize(
    ("text", "wanted", "said"),
    [
        ("dataDir=data\nclientPort=70000", None, "clientPort is '70000': expected a number up to"),
        ("dataDir=data\nclientPort=2181", 1, "--myid 1: .* names no members"),
        ("dataDir=data\nclientPort=1\nserver.x=one:1:2", None, "a member's number is 'x'"),
        ("dataDir=data\nclientPort=1\ndynamicConfigFile=none", None, "none: cannot be read: No su"),
        ("dataDir=data\nclientPort=1\n4lw.commands.whitelist=ruok, mntr", None, "must name srvr"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(
    tmp_path: Path, text: str, wanted: int | None, said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        read(tmp_path, text, wanted)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")

    for name, why in (("none", "No such file"), (".", "Is a directory"), ("binary", "not text")):
        with pytest.raises(ConfigurationError, match=why):
            read_config(tmp_path / name)


def test_what_is_written_for_those_who_have_none_can_be_read(tmp_path: Path) -> None:
    found = read(tmp_path, zookeeper_config.default_config(tmp_path))

    assert zookeeper_config.default_server(tmp_path) == found
    assert "127.0.0.1:2181" == found.quorum
    assert tmp_path / "data" == found.data_dir


def put_my_id(place: Path, text: str | None) -> None:
    (place / "data").mkdir()
    if text is not None:
        (place / "data" / "myid").write_text(text)
