"""Storage says which register knows the data in it; nobody else runs or removes it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.kubernetes.fake import kubeconfig
from understudy.cli.launch.compose import coordination_of
from understudy.config import Configuration
from understudy.errors import ForeignDataError
from understudy.ha import coordination
from understudy.ha.coordination import Coordination
from understudy.ha.storage import LocalStorage, Storage

ZK = Coordination("zookeeper", "c", ("zk1:2181", "zk2:2181"), "/understudy")
FILES = Coordination("filesystem", "c")


def refuse(root: Path, mine: Coordination) -> None:
    asyncio.run(coordination.refuse_others(Storage(LocalStorage(root)), "c", mine))


def note(root: Path, mine: Coordination) -> None:
    asyncio.run(coordination.note(Storage(LocalStorage(root)), "c", mine))


OTHERS = {
    "in storage": FILES,
    "of another ensemble": Coordination("zookeeper", "c", ("zk8:2181", "zk9:2181"), "/understudy"),
    "of another root": Coordination("zookeeper", "c", ZK.servers, "/elsewhere"),
    "of another type": Coordination("etcd", "c"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_data_of_one_register_is_refused_to_another(tmp_path: Path, other: str) -> None:
    note(tmp_path, ZK)
    with pytest.raises(ForeignDataError, match=r"type zookeeper at zk1:2181,zk2:2181/understudy"):
        refuse(tmp_path, OTHERS[other])


@pytest.mark.parametrize(
    "servers", [("zk1:2181", "zk2:2181"), ("zk2:2181",), ("zk2:2181", "zk3:2181")]
)
def test_an_ensemble_is_known_by_any_of_its_servers(
    tmp_path: Path, servers: tuple[str, ...]
) -> None:
    note(tmp_path, ZK)
    refuse(tmp_path, Coordination("zookeeper", "c", servers, "/understudy"))


def test_data_with_a_register_in_storage_is_refused_to_every_other(tmp_path: Path) -> None:
    (tmp_path / "c/register").mkdir(parents=True)
    refuse(tmp_path, FILES)
    with pytest.raises(ForeignDataError, match=r"belongs to high-availability.type filesystem"):
        refuse(tmp_path, ZK)


def test_data_from_before_the_notes_stays_usable(tmp_path: Path) -> None:
    (tmp_path / "c/applications").mkdir(parents=True)
    for mine in (ZK, FILES):
        refuse(tmp_path, mine)


def test_a_note_that_is_damaged_is_no_leave_to_remove(tmp_path: Path) -> None:
    note(tmp_path, ZK)
    (tmp_path / "c/coordination.json").write_text("{")
    with pytest.raises(ForeignDataError, match="nobody can say"):
        refuse(tmp_path, FILES)


def test_a_note_holds_no_secrets() -> None:
    said = Configuration(
        {
            "high-availability.type": "zookeeper",
            "high-availability.zookeeper.quorum": "zk2:2181,zk1:2181",
            "high-availability.zookeeper.client.authorization": "digest:me:hunter22",
        }
    )
    mine = coordination_of(said, "c")

    assert Coordination("zookeeper", "c", ("zk1:2181", "zk2:2181"), "/understudy") == mine
    assert b"hunter22" not in coordination.notes.dump(mine)


def test_an_api_server_is_known_by_address_and_namespace(tmp_path: Path) -> None:
    def of(url: str, namespace: str) -> Coordination:
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(kubeconfig(url, namespace=namespace)))
        settings = {
            "high-availability.type": "kubernetes",
            "kubernetes.config.file": str(path),
        }
        found = coordination_of(Configuration(settings), "c")
        assert found is not None
        return found

    note(tmp_path, of("https://one:6443", "flights"))

    refuse(tmp_path, of("https://one:6443", "flights"))
    for other in (of("https://two:6443", "flights"), of("https://one:6443", "orders")):
        with pytest.raises(ForeignDataError, match="type kubernetes at one:6443/flights"):
            refuse(tmp_path, other)
