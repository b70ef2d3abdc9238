"""``--archives``: what Spark unpacks for executors and drivers, checked before anything starts."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from understudy.cli.launch.spark_submit import spark_conf
from understudy.errors import UsageError


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    put_zip(tmp_path / "model.zip", "model/weights.txt")
    put_tar(tmp_path / "model.tar.gz", "model/weights.txt")
    return tmp_path


def put_zip(path: Path, *names: str) -> None:
    with zipfile.ZipFile(path, "w") as file:
        for name in names:
            file.writestr(name, "1")


def put_tar(path: Path, *names: str) -> None:
    """Put files, and links where a name says ``name -> target``."""
    with tarfile.open(path, "w:gz" if path.suffix in {".gz", ".tgz"} else "w") as file:
        for name in names:
            own, _, target = name.partition(" -> ")
            info = tarfile.TarInfo(own)
            if target:
                info.type, info.linkname = tarfile.SYMTYPE, target
                file.addfile(info)
            else:
                info.size = 1
                file.addfile(info, io.BytesIO(b"1"))


def test_archives_are_handed_to_spark_under_their_aliases(place: Path) -> None:
    given = {"archives": "model.zip#m,model.tar.gz,hdfs://there/other.zip#o"}
    expected = f"{place}/model.zip#m,{place}/model.tar.gz,hdfs://there/other.zip#o"

    actual = spark_conf(given, (), None)

    assert {"spark.archives": expected} == actual


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("nowhere.zip#m", "--archives nowhere.zip: no such file"),
        ("model.rar", "--archives model.rar: expected .zip, .tar.gz, .tgz, .tar or .jar"),
        ("model.zip#../up", "'../up' is no name"),
        ("broken.zip", "is no archive that can be read"),
        ("broken.tgz", "is no archive that can be read"),
        ("slip.zip", "would be unpacked outside its place"),
        ("slip.tar", "would be unpacked outside its place"),
        ("link.tar", "would be unpacked outside its place"),
    ],
)
def test_an_archive_that_cannot_be_used_is_refused(place: Path, given: str, said: str) -> None:
    for name in ("model.rar", "broken.zip", "broken.tgz"):
        (place / name).write_bytes(b"nothing of the kind")
    put_zip(place / "slip.zip", "../out.txt")
    put_tar(place / "slip.tar", "../out.txt")
    put_tar(place / "link.tar", "out -> /etc", "out/passwd")

    with pytest.raises(UsageError) as refused:
        spark_conf({"archives": given}, (), None)

    assert said in str(refused.value)


def test_an_environment_may_hold_links_as_long_as_nothing_is_written_through_them(
    place: Path,
) -> None:
    put_tar(place / "env.tgz", "bin/python -> /usr/bin/python3", "lib64 -> lib", "lib64/a.py")

    assert {"spark.archives": f"{place}/env.tgz"} == spark_conf({"archives": "env.tgz"}, (), None)


@pytest.mark.parametrize("form", ["{}", "{}#x", "file://{}"])
def test_an_archive_that_a_setting_names_is_looked_at_like_that_of_the_flag(
    place: Path, form: str
) -> None:
    put_zip(place / "slip.zip", "../out.txt")
    with pytest.raises(UsageError, match="outside its place"):
        spark_conf({}, [f"spark.archives={form.format(place / 'slip.zip')}"], None)
