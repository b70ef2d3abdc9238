"""Archives made to write outside of their place, or to fill it: refused before anything starts."""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from understudy.errors import UsageError
from understudy.process import archive_members as members
from understudy.process import archives

WHEEL = "gauge-1.0-py3-none-any.whl"
DATA = "gauge-1.0.data"


def wheel(path: Path, *names: str | zipfile.ZipInfo, data: bytes = b"x = 1\n") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name in names:
            file.writestr(name, data)
    return path


def with_mode(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


def files_below(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


OUTSIDE: dict[str, tuple[str, ...]] = {
    "an absolute path": ("/{outside}/f",),
    "an absolute path, past the scheme": (f"{DATA}/purelib//{{outside}}/f",),
    "an absolute path, past the other scheme": (f"{DATA}/platlib//{{outside}}/f",),
    "upwards": ("../f",),
    "upwards, past the scheme": (f"{DATA}/purelib/../../f",),
    "upwards, in the scheme's place": (f"{DATA}/purelib/gauge/../../../f",),
    "upwards, in its middle": ("gauge/../../f",),
    "upwards, with backslashes": ("gauge\\..\\..\\f",),
    "a drive": ("C:/f",),
    "a drive, past the scheme": (f"{DATA}/purelib/C:/f",),
    "a share": ("\\\\host\\share\\f",),
}


@pytest.mark.parametrize("what", OUTSIDE)
def test_no_member_of_a_wheel_comes_to_lie_elsewhere(tmp_path: Path, what: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    names = [one.format(outside=str(outside).strip("/")) for one in OUTSIDE[what]]
    given = wheel(tmp_path / WHEEL, "gauge/__init__.py", *names)
    place = tmp_path / "place/deep/wheel"
    place.mkdir(parents=True)
    before = files_below(tmp_path)
    with pytest.raises(UsageError, match="in it"):
        archives.check_wheel(given)
    with pytest.raises(UsageError, match="in it"):
        archives.unpack_wheel(given.read_bytes(), place)

    assert before == files_below(tmp_path), "nothing is written where anything is refused"


NO_FILES = {
    "a link": with_mode("gauge/link", stat.S_IFLNK | 0o777),
    "a pipe": with_mode("gauge/pipe", stat.S_IFIFO | 0o600),
    "a device": with_mode("gauge/device", stat.S_IFCHR | 0o600),
}


@pytest.mark.parametrize("what", NO_FILES)
def test_a_wheel_holds_files_and_nothing_else(tmp_path: Path, what: str) -> None:
    given = wheel(tmp_path / WHEEL, NO_FILES[what], data=b"/etc")
    with pytest.raises(UsageError, match="nothing that wheels hold"):
        archives.check_wheel(given)
    with pytest.raises(UsageError, match="nothing that wheels hold"):
        archives.unpack_wheel(given.read_bytes(), tmp_path / "place")


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    "again", ["gauge.py", "./gauge.py", f"{DATA}/purelib/gauge.py", "gauge.py/x"]
)
def test_two_members_of_a_wheel_never_share_a_file(tmp_path: Path, again: str) -> None:
    given = wheel(tmp_path / WHEEL, "gauge.py", again)
    with pytest.raises(UsageError, match=WHEEL):
        archives.unpack_wheel(given.read_bytes(), tmp_path / WHEEL.replace(".whl", "") / WHEEL)


@pytest.mark.parametrize(
    "names",
    [
        ("gauge/a.py", "gauge/a.py"),
        ("gauge/a.py", f"{DATA}/purelib/gauge/a.py"),
        ("gauge", "gauge/a.py"),
        ("gauge/a.py", f"{DATA}/platlib/gauge"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_wheel_that_cannot_be_unpacked_is_refused_before_anything_starts(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    with pytest.raises(UsageError, match="two members of it would lie in 'gauge"):
        archives.check_wheel(wheel(tmp_path / WHEEL, *names))


@pytest.mark.parametrize(
    "compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA]
)
def test_a_wheel_with_a_damaged_member_is_refused_before_anything_starts(
    tmp_path: Path, compression: int
) -> None:
    path, text = tmp_path / WHEEL, b"".join(b"x%d = %d\n" % (n, n * n) for n in range(100))
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr("gauge.py", text)
    whole = bytearray(path.read_bytes())
    for place in range(100, 140):
        whole[place] ^= 0xFF
    path.write_bytes(whole)

    with pytest.raises(UsageError, match="is no archive that can be read"):
        archives.check_wheel(path)


def test_a_member_is_written_without_its_bits_for_other_users(tmp_path: Path) -> None:
    given = wheel(tmp_path / WHEEL, with_mode("gauge.py", stat.S_IFREG | 0o4777))
    archives.unpack_wheel(given.read_bytes(), tmp_path / "place")

    assert not (tmp_path / "place/gauge.py").stat().st_mode & 0o7022


def test_a_wheel_that_is_a_bomb_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    given = wheel(tmp_path / WHEEL, "gauge/zeros", data=bytes(members.RATIO_FROM_BYTES + 1))
    with pytest.raises(UsageError, match="times its size"):
        archives.check_wheel(given)
    with pytest.raises(UsageError, match="times its size"):
        archives.unpack_wheel(given.read_bytes(), tmp_path / "place")

    assert not (tmp_path / "place").exists()


def test_a_wheel_of_too_many_members_or_too_deep_ones_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="directories deep"):
        archives.check_wheel(wheel(tmp_path / WHEEL, "a/" * members.DEPTH_MAX + "f"))
    with pytest.raises(UsageError, match="255 bytes"):
        archives.check_wheel(wheel(tmp_path / WHEEL, "é" * 128))
    monkeypatch.setattr(archives, "WHEEL_MEMBERS_MAX", 3)
    with pytest.raises(UsageError, match="more than 3 members"):
        archives.check_wheel(wheel(tmp_path / WHEEL, "a", "b", "c", "d"))


# --- what Spark unpacks ---------------------------------------------------------------------------

Put = Callable[[tarfile.TarFile], None]


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", **more: int) -> Put:
    def put(file: tarfile.TarFile) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, link
        for key, value in more.items():
            setattr(info, key, value)
        body = io.BytesIO(b"1") if kind == tarfile.REGTYPE else None
        info.size = 1 if body else 0
        file.addfile(info, body)

    return put


def link(name: str, target: str) -> Put:
    return entry(name, tarfile.SYMTYPE, target)


def hard(name: str, target: str) -> Put:
    return entry(name, tarfile.LNKTYPE, target)


TARS: dict[str, tuple[Put, ...]] = {
    "upwards": (entry("../f"),),
    "absolute": (entry("/srv/f"),),
    "below an absolute link": (link("out", "/srv"), entry("out/f")),
    "below a link upwards": (link("out", ".."), entry("out/f")),
    "below a link through a link": (link("a", "."), link("a/b", ".."), entry("b/f")),
    "nested": (link("d/a", "b"), link("d/b", "../.."), entry("d/a/f")),
    "a link below a link below a link": (
        link("x", "."), link("x/x", ".."), link("x/x/y", "srv"), entry("x/f"),
    ),
    "links that stack up": (
        entry("a/b/c/f"), link("a/b/c/l", "../.."), link("m", "a/b/c/l/.."), entry("m/../f2"),
        link("n", "a/b/c/l/../.."), entry("n/f"),
    ),
    "a link in a circle": (link("a", "b"), link("b", "a"), entry("a/f")),
    "a file over a link": (link("f", "/srv/f"), entry("f")),
    "a hard link to what lies outside": (hard("f", "/etc/passwd"),),
    "a hard link upwards": (hard("f", "../f"),),
    "a hard link through a link": (link("out", "/etc"), hard("f", "out/passwd")),
    "a hard link to a link": (link("out", "/etc/passwd"), hard("f", "out")),
    "a device": (entry("f", tarfile.CHRTYPE, devmajor=1, devminor=3),),
    "a block device": (entry("f", tarfile.BLKTYPE),),
    "a pipe": (entry("f", tarfile.FIFOTYPE),),
    "setuid": (entry("f", mode=0o4755),),
    "setgid": (entry("f", mode=0o2755),),
}  # fmt: skip


@pytest.mark.parametrize("what", TARS)
@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
def test_a_tar_file_that_reaches_out_of_its_place_is_refused(
    tmp_path: Path, what: str, suffix: str
) -> None:
    given = tmp_path / f"given{suffix}"
    with tarfile.open(given, "w:gz" if suffix == ".tar.gz" else "w") as file:
        for put in TARS[what]:
            put(file)
    with pytest.raises(UsageError, match="in it"):
        archives.check_archive("archives", given, "")


@pytest.mark.parametrize("bits", [stat.S_ISGID | 0o755, 0o755])
def test_what_archives_of_environments_hold_is_taken(tmp_path: Path, bits: int) -> None:
    given = tmp_path / "env.tar.gz"
    with tarfile.open(given, "w:gz") as file:
        for put in (
            entry("./", tarfile.DIRTYPE, mode=bits),
            entry("./lib", tarfile.DIRTYPE, mode=bits),
            link("lib64", "lib"),
            entry("lib64/a.py"),
            hard("lib/b.py", "lib/a.py"),
            link("bin/python", "/usr/bin/python3"),
            link("lib/up", "../lib/a.py"),
            entry("lib/a.py"),  # As `tar --append` does it.
        ):
            put(file)
    archives.check_archive("archives", given, "")


def test_a_zip_file_with_a_link_is_looked_through(tmp_path: Path) -> None:
    given = tmp_path / "given.zip"
    with zipfile.ZipFile(given, "w") as file:
        file.writestr(with_mode("out", stat.S_IFLNK | 0o777), "/srv")
        file.writestr("out/f", "1")
    with pytest.raises(UsageError, match="through a link"):
        archives.check_archive("archives", given, "")


def test_a_zip_file_whose_members_hold_more_than_they_declare_is_refused(tmp_path: Path) -> None:
    """What unpacks it goes on to the end of the data, whatever the directory of the file says."""
    given = wheel(tmp_path / "given.zip", "zeros", data=bytes(1 << 20))
    archives.check_archive("archives", given, "")

    body = given.read_bytes()
    honest, less = ((size).to_bytes(4, "little") for size in (1 << 20, 10))
    whole, part = (zlib.crc32(bytes(size)).to_bytes(4, "little") for size in (1 << 20, 10))
    assert 2 == body.count(honest)
    given.write_bytes(body.replace(honest, less))
    with pytest.raises(UsageError, match=r"CRC|more than it declares"):
        archives.check_archive("archives", given, "")

    given.write_bytes(body.replace(honest, less).replace(whole, part))
    with pytest.raises(UsageError, match=r"CRC|more than it declares"):
        archives.check_archive("archives", given, "")


def test_a_tar_file_that_is_a_bomb_is_refused_at_its_header(tmp_path: Path) -> None:
    """Nothing of it is unpacked to see that: a gigabyte of zeros takes no second."""
    given = tmp_path / "given.tar.gz"
    info = tarfile.TarInfo("zeros")
    info.size = 1 << 40
    given.write_bytes(gzip.compress(info.tobuf()))
    with pytest.raises(UsageError, match="more than 64 GB"):
        archives.check_archive("archives", given, "")

    info.size = members.RATIO_FROM_BYTES + 1
    given.write_bytes(gzip.compress(info.tobuf()))
    with pytest.raises(UsageError, match="times its size"):
        archives.check_archive("archives", given, "")


def test_a_header_of_any_length_is_not_read_into_memory(tmp_path: Path) -> None:
    given = tmp_path / "given.tar"
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, members.HEADER_BYTES_MAX + 1
    given.write_bytes(info.tobuf() + b"a" * 2048)
    with pytest.raises(UsageError, match="header of"):
        archives.check_archive("archives", given, "")


def three_members() -> bytes:
    """Return a tar file whose second header is at byte 1,024."""
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as file:
        for put in (entry("a"), entry("b"), entry("../c")):
            put(file)
    return body.getvalue()


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=[".tar", ".tar.gz"])
@pytest.mark.parametrize("name", ["b", "x" * 150], ids=["plain", "long"])
def test_a_tar_file_with_a_damaged_header_is_refused_and_the_place_is_named(
    tmp_path: Path, pack: Callable[[bytes], bytes], name: str
) -> None:
    """Python would end there without a word; others go on with what follows."""
    info = tarfile.TarInfo(name)
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[-512 + 150] ^= 1  # In the checksum of the last block.
    body = three_members()
    given = tmp_path / ("given.tar" if pack is bytes else "given.tar.gz")
    given.write_bytes(pack(body[:1024] + header + body[1536:]))
    with pytest.raises(UsageError, match=r"given\.tar.* (damaged|bad checksum)"):
        archives.check_archive("archives", given, "")


def test_a_tar_file_that_ends_in_the_middle_of_a_header_is_refused(tmp_path: Path) -> None:
    given = tmp_path / "given.tar"
    given.write_bytes(three_members()[: 1024 + 100])
    with pytest.raises(UsageError, match="header at byte 1,024 is damaged"):
        archives.check_archive("archives", given, "")


@pytest.mark.parametrize("tail", [b"", b"\0" * 512, b"\0" * 1024 + b"signature"])
def test_a_tar_file_ends_at_its_mark_or_with_the_file(tmp_path: Path, tail: bytes) -> None:
    given = tmp_path / "given.tar"
    given.write_bytes(three_members()[:2048] + tail)

    archives.check_archive("archives", given, "")


# --- uploads --------------------------------------------------------------------------------------


def upload(name: str, body: bytes) -> None:
    archives.check_upload(name, io.BytesIO(body), len(body))


def zipped(*names: str | zipfile.ZipInfo) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in names:
            packed.writestr(name, b"x = 1\n")
    return file.getvalue()


def tarred(*infos: tarfile.TarInfo) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as packed:
        for info in infos:
            packed.addfile(info)
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("etl.py", b"print('hello')"),
        ("modules.zip", zipped("a.py", "b/c.py")),
        (WHEEL, zipped("gauge/__init__.py", f"{DATA}/purelib/g.py")),
        ("environment.tar.gz", tarred(tarfile.TarInfo("bin/python"))),
        ("environment.tgz", tarred()),
    ],
)
def test_what_applications_bring_can_be_uploaded(name: str, body: bytes) -> None:
    upload(name, body)


@pytest.mark.parametrize(
    "name",
    [
        *("", "etl", ".py", "../etl.py", "a/etl.py", "a\\etl.py", "etl.py\n", "etl.py\0", "é.py"),
        *("a b.py", "<b>.py", "-rf.py", "etl.exe", "etl.tar", f"{'n' * 100}.py"),
    ],
)
def test_a_name_that_is_not_the_same_everywhere_is_not_taken(name: str) -> None:
    with pytest.raises(UsageError, match="is not taken: give it a name"):
        upload(name, b"")


@pytest.mark.parametrize(
    ("name", "body", "why"),
    [
        ("modules.zip", zipped("../f.py"), "outside its place"),
        ("modules.zip", zipped(with_mode("f", stat.S_IFIFO)), "device, pipe or socket"),
        ("modules.zip", b"no zip", "no archive that can be read"),
        ("modules.zip", zipped("a.py")[:-10], "no archive that can be read"),
        ("e.tar.gz", tarred(tarfile.TarInfo("/etc/f")), "outside its place"),
        ("e.tar.gz", b"no tar", "no archive that can be read"),
        ("gauge.whl", zipped("a.py"), "is not a wheel's name"),
        (WHEEL, zipped("../f.py"), "outside its place"),
        (WHEEL, b"no wheel", "no archive that can be read"),
    ],
)
def test_an_archive_that_must_not_be_unpacked_is_not_taken(
    name: str, body: bytes, why: str
) -> None:
    with pytest.raises(UsageError, match=why) as refused:
        upload(name, body)

    assert str(refused.value).startswith(name)


def test_a_bomb_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "RATIO_FROM_BYTES", 1 << 20)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("zeros", bytes(4 << 20))
    with pytest.raises(UsageError, match="times its size"):
        upload("bomb.zip", file.getvalue())
