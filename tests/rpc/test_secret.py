"""The file of the secret: what is taken, and what is refused with a way out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from understudy.errors import ConfigurationError
from understudy.rpc.secret import SECRET_BYTES_MAX, is_private, read_secret

GOOD = b"sixteen bytes, ++"


def written(place: Path, content: bytes, mode: int = 0o600) -> str:
    path = place / "secret"
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


def refused(path: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read_secret(path)
    return str(caught.value)


@pytest.mark.parametrize("content", [GOOD, GOOD + b"\n", b"\n " + GOOD + b"\r\n"])
@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_white_space_around_a_secret_does_not_count(
    tmp_path: Path, content: bytes, mode: int
) -> None:
    assert GOOD == read_secret(written(tmp_path, content, mode))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is empty: make one with `(umask 077; head -c 32 /dev/urandom | base64 > "),
        (b" \n", "is empty: make one with "),
        (b"fifteen bytes..", "holds 15 bytes: at least 16 are needed; make one with "),
        (b"x" * (SECRET_BYTES_MAX + 1), "has more than 65,536 bytes: no secret"),
    ],
)
def test_what_is_no_secret_is_refused_and_not_shown(
    tmp_path: Path, content: bytes, expected: str
) -> None:
    path = written(tmp_path, content)

    assert refused(path).startswith(f"security.secret-file: {path} {expected}")
    assert "fifteen" not in refused(path)


@pytest.mark.parametrize(
    ("mode", "owner", "reader", "expected"),
    [
        (0o600, 1000, 1000, True),
        (0o440, 0, 1000, True),  # As a Secret is mounted for a user that is not root.
        (0o440, 0, 0, False),
        (0o440, 1000, 1000, False),
        (0o460, 0, 1000, False),
        (0o444, 0, 1000, False),
    ],
)
def test_only_root_may_share_a_secret_with_a_group(
    mode: int, owner: int, reader: int, *, expected: bool
) -> None:
    assert expected == is_private(mode, owner, reader)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644, 0o777])
def test_a_secret_that_others_can_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path, GOOD, mode)

    said = refused(path)

    assert f"can be read or written by others than its owner (its mode is {mode:04o})" in said
    assert "chmod 600" in said


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)

    assert "is no file" in refused(str(tmp_path))
    assert "is no file" in refused(str(tmp_path / "pipe"))
    assert "does not exist: make one with " in refused(str(tmp_path / "none"))
    assert "cannot be read: " in refused(str(tmp_path / "none") + "\0")
