"""Where the liveness locks of a host lie."""

from __future__ import annotations

from pathlib import Path

from understudy.cli.launch.compose import locks_directory
from understudy.config import Configuration


def locks(place: Path, storage: str, cluster_id: str = "flights") -> Path:
    settings = {
        "high-availability.type": "zookeeper",
        "high-availability.zookeeper.quorum": "localhost:2181",
        "high-availability.storageDir": str(place / storage),
        "io.tmp.dirs": str(place / "tmp"),
    }
    found = locks_directory(Configuration(settings), cluster_id)
    assert found is not None
    return found


def test_clusters_of_one_id_in_two_storages_share_no_locks(tmp_path: Path) -> None:
    one, other = locks(tmp_path, "one"), locks(tmp_path, "other")

    assert locks(tmp_path, "one") == one
    assert len({one.parent, other.parent, locks(tmp_path, "one", "trains").parent}) == 3
    assert one.is_relative_to(tmp_path / "tmp")
