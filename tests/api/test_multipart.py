"""One file in a multipart body: the same however it arrives, and nothing else is taken."""

from __future__ import annotations

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as some
from werkzeug.sansio import multipart as oracle

from understudy.api.multipart import OneFile, boundary_of
from understudy.errors import UsageError

DISPOSITION = b'Content-Disposition: form-data; name="file"; filename="etl.py"'
BOUNDARY = b"xyz"


def body(*parts: bytes, before: bytes = b"", end: bytes = b"\r\n--xyz--\r\n") -> bytes:
    """Return a body of parts, each with its head."""
    return before + b"".join(b"\r\n--xyz\r\n" + part for part in parts)[2:] + end


def part(data: bytes, head: bytes = DISPOSITION) -> bytes:
    return head + b"\r\n\r\n" + data


def taken(whole: bytes, size: int = 0) -> tuple[str | None, bytes, bool]:
    """Feed a body in pieces of a size."""
    file = OneFile(BOUNDARY)
    size = size or max(1, len(whole))
    pieces = [whole[begin : begin + size] for begin in range(0, len(whole), size)]
    found = b"".join(map(file.feed, pieces))
    return file.name, found, file.is_whole


FILES = [
    b"",
    b"x",
    b"\r\n",
    b"\r\n--xy",
    b"\r\n--xy\r\n--x\r\n-",
    b"\n--xyz",
    b"line\r\n\r\nline\r\n",
    bytes(range(256)) * 3,
]


@pytest.mark.parametrize("data", FILES)
@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 64])
def test_a_file_arrives_to_the_byte(data: bytes, size: int) -> None:
    assert ("etl.py", data, True) == taken(body(part(data)), size)


@given(some.binary(max_size=300).filter(lambda data: b"--xyz" not in data), some.integers(1, 40))
def test_any_file_arrives_to_the_byte(data: bytes, size: int) -> None:
    assert ("etl.py", data, True) == taken(body(part(data)), size)


@given(some.lists(some.sampled_from([b"\r\n", b"--", b"xyz", b"-", b"a", b" ", DISPOSITION])))
def test_whatever_arrives_is_taken_or_refused_as_by_another_reader(parts: list[bytes]) -> None:
    """What we take, werkzeug takes as the same; it also takes what we refuse."""
    whole = body(part(b"".join(parts)))
    try:
        name, data, is_whole = taken(whole, 3)
    except UsageError:
        return
    decoder = oracle.MultipartDecoder(BOUNDARY)
    decoder.receive_data(whole)
    files, received = [], b""
    while not isinstance(event := decoder.next_event(), (oracle.Epilogue, oracle.NeedData)):
        if isinstance(event, oracle.File):
            files.append(event.filename)
        if isinstance(event, oracle.Data):
            received += event.data

    assert is_whole
    assert ([name], data) == (files, received)


@pytest.mark.parametrize("data", FILES)
def test_what_httpx_sends_is_taken(data: bytes) -> None:
    request = httpx.Request("POST", "http://x", files={"jarfile": ("etl.py", data)})
    file = OneFile(boundary_of(request.headers["content-type"]))
    found = file.feed(request.read())

    assert ("etl.py", data, True) == (file.name, found, file.is_whole)


@pytest.mark.parametrize(
    "head",
    [
        b'content-disposition:form-data;filename="etl.py"',
        b"Content-Disposition: form-data; name=file; filename=etl.py",
        b"Content-Type: text/plain\r\n" + DISPOSITION,
        b'Content-Disposition: FORM-DATA; FileName="etl.py"; name="a"',
    ],
)
def test_heads_are_read_as_others_write_them(head: bytes) -> None:
    assert ("etl.py", b"x", True) == taken(body(part(b"x", head)))


def test_white_space_and_a_preamble_are_skipped() -> None:
    spaced = b"hello\r\n--xyz \t\r\n" + part(b"x") + b"\r\n--xyz--bye"

    assert ("etl.py", b"x", True) == taken(spaced)


@pytest.mark.parametrize(
    ("whole", "why"),
    [
        (body(part(b"x", b'Content-Disposition: form-data; name="a"')), "no file name"),
        (body(part(b"x", b'Content-Disposition: attachment; filename="a"')), "no file name"),
        (body(part(b"x", b"Content-Type: text/plain")), "no file name"),
        (body(part(b"x"), part(b"y")), "more than one part"),
        (b"--xyz--", "holds no file"),
        (b"--xyzz\r\n" + part(b"x"), "does not end its line"),
        (body(part(b"x", DISPOSITION + b"\r\nX: " + b"y" * 9_000)), "more than 8,192 bytes"),
        (body(part(b"--xyz")), "begins with the boundary"),
        (b"x" * 9_000, "beside the file"),
        (body(part(b"x")) + b"x" * 9_000, "beside the file"),
        (b"--xyz" + b" " * 9_000, "does not end its line"),
    ],
)
@pytest.mark.parametrize("size", [0, 1])
def test_anything_else_is_refused(whole: bytes, why: str, size: int) -> None:
    with pytest.raises(UsageError, match=why):
        taken(whole, size)


@pytest.mark.parametrize("cut", range(1, 14))
def test_a_body_that_is_cut_is_not_whole(cut: int) -> None:
    assert not taken(body(part(b"x" * 20), end=b"\r\n--xyz--")[:-cut])[2]


def test_little_is_kept_of_a_file() -> None:
    file = OneFile(BOUNDARY)
    file.feed(b"--xyz\r\n" + part(b""))
    for _ in range(100):
        file.feed(b"\r\n--xy" * 10_000)

        assert len(file._rest) < 16


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("multipart/form-data; boundary=xyz", b"xyz"),
        ('Multipart/Form-Data; charset=utf-8; BOUNDARY="x y"', b"x y"),
        ("multipart/form-data;boundary=xyz;charset=utf-8", b"xyz"),
    ],
)
def test_the_boundary_is_read(kind: str, expected: bytes) -> None:
    assert expected == boundary_of(kind)


@pytest.mark.parametrize(
    "kind",
    [
        "",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        f"multipart/form-data; boundary={'x' * 71}",
        "multipart/mixed; boundary=xyz",
        "text/plain; boundary=xyz",
        "multipart/form-data; boundary=\xe9",
    ],
)
def test_a_type_without_a_boundary_is_refused(kind: str) -> None:
    with pytest.raises(UsageError, match=r"multipart/form-data: send one file"):
        boundary_of(kind)
