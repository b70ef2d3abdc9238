"""What is asked of the options of ZooKeeper, beyond each value by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from understudy.config import Configuration
from understudy.config.configuration import load_configuration
from understudy.errors import ConfigurationError
from understudy.ha.backends.zookeeper import options as zk

CHOSEN = {"high-availability.type": "zookeeper", "high-availability.zookeeper.quorum": "one,two"}
CLIENT = "high-availability.zookeeper.client"


def given(tmp_path: Path, written: str) -> Configuration:
    (tmp_path / "config.yaml").write_text(written)
    return load_configuration(tmp_path, [f"{key}={text}" for key, text in CHOSEN.items()])


@pytest.mark.parametrize(
    "written",
    [
        f"{CLIENT}.authorization: digest:me:secret",
        f"{CLIENT}.authorization: [digest:me:secret]",
        f"{CLIENT}.authorization:\n  digest: me:secret",
        f"{CLIENT}:\n  authorization:\n    digest: me:secret",
    ],
)
def test_who_we_are_is_a_text_a_list_or_a_mapping_as_in_flink(tmp_path: Path, written: str) -> None:
    found = given(tmp_path, written)

    assert ("digest:me:secret",) == found.find(zk.ZK_AUTHORIZATION)


def test_a_path_behind_the_servers_is_refused_with_where_it_goes() -> None:
    with pytest.raises(ConfigurationError, match=r"zookeeper\.path\.root"):
        Configuration({**CHOSEN, "high-availability.zookeeper.quorum": "one:2181,two:2181/chroot"})


@pytest.mark.parametrize(
    "identity",
    [
        {"authorization": "digest:me:secret"},
        {"ssl.enabled": "true", "ssl.certificate": "me.pem"},
    ],
)
def test_a_creator_is_known_by_what_a_connection_shows(identity: dict[str, str]) -> None:
    settings = {f"{CLIENT}.{key}": text for key, text in identity.items()}
    Configuration({**CHOSEN, f"{CLIENT}.acl": "creator", **settings})

    with pytest.raises(ConfigurationError, match="nothing says who the creator is"):
        Configuration({**CHOSEN, f"{CLIENT}.acl": "creator"})
