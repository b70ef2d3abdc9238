"""Links in TLS, and what is said of files that cannot be used for it."""

from __future__ import annotations

import datetime
import hashlib
import ssl
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from tests.rpc.ground import (
    Authority,
    between,
    connected,
    in_tls,
    leader,
    number_of,
    refusal,
    run,
    security,
)
from understudy.errors import ConfigurationError
from understudy.rpc.certificates import PemFiles
from understudy.rpc.messages import Heartbeat

LONG_AGO = datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_what_is_said_in_tls_cannot_be_read_on_the_way(authority: Authority) -> None:
    seen = bytearray()

    async def listen_in(reader: object, writer: object) -> None:
        while data := await reader.read(65536):  # type: ignore[attr-defined]
            seen.extend(data)
            writer.write(data)  # type: ignore[attr-defined]

    async def story() -> None:
        given = in_tls(authority.files())
        async with leader(given) as (address, _), between(address, listen_in) as around:
            link = await connected(around, given)
            link.send(Heartbeat(number=1))

            assert 1 == number_of(await link.receive())
            assert b"Heartbeat" not in seen
            assert len(seen) > 1000

    run(story())


def test_the_secret_is_asked_for_inside_of_tls(authority: Authority) -> None:
    async def story() -> None:
        given = in_tls(authority.files())
        async with leader(given) as (address, heard):
            said = await refusal(address, replace(given, secret=b"another secret, of sixteen"))

            assert "it refuses us: security.secret-file" in said
            assert [] == heard.links

    run(story())


@pytest.mark.parametrize("who", ["leader", "client"])
def test_a_certificate_of_strangers_is_refused_on_either_side(tmp_path: Path, who: str) -> None:
    """The secret is right: one of both knows only its own authority."""
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    for one in (ours, theirs):
        one.place.mkdir()
    mixed = replace(ours.files(), truststore=theirs.files().truststore)
    here, there = in_tls(ours.files()), in_tls(theirs.files())

    async def story() -> None:
        if who == "client":
            # It takes the leader's certificate, but shows one of its own authority.
            mine = PemFiles("x", ours.files().truststore, theirs.files().keystore)
            given = security(
                client=mine.client(verify_hostname=False, with_certificate=True),
                server=mine.server(clients_need_certificates=True),
            )
            async with leader(here) as (address, heard):
                said = await refusal(address, given)

                assert said
                assert [] == heard.links
            return
        async with leader(there) as (address, heard):
            said = await refusal(address, here)

            assert "security.ssl.internal.* must be the same" in said
            assert [] == heard.links

    assert mixed.truststore != ours.files().truststore
    run(story())


@pytest.mark.parametrize("who", ["leader", "client"])
def test_tls_on_one_side_only_comes_to_nothing_and_names_the_options(
    authority: Authority, who: str
) -> None:
    async def story() -> None:
        with_tls = in_tls(authority.files())
        async with leader(with_tls if who == "leader" else security()) as (address, heard):
            said = await refusal(address, security() if who == "leader" else with_tls)

            assert "security.ssl.internal.* must be the same" in said
            assert [] == heard.links

    run(story())


@pytest.mark.parametrize("name", ["sha1", "sha256"])
def test_a_fingerprint_admits_one_certificate_only(authority: Authority, name: str) -> None:
    pinned, other = authority.files("pinned"), authority.files("other")
    fingerprint = hashlib.new(name, pinned.prove()).hexdigest()

    async def story() -> None:
        async with leader(in_tls(pinned, fingerprint)) as (address, heard):
            assert "" == await refusal(address, in_tls(pinned, fingerprint))
            assert await refusal(address, in_tls(other))
            assert 1 == len(heard.links)
        async with leader(in_tls(other)) as (address, heard):
            said = await refusal(address, in_tls(pinned, fingerprint))

            assert "not the one of security.ssl.internal.cert.fingerprint" in said
            assert [] == heard.links

    run(story())


def test_old_versions_of_tls_are_refused(authority: Authority) -> None:
    given = authority.files()
    for context in (
        given.server(clients_need_certificates=True),
        given.client(verify_hostname=True, with_certificate=False),
    ):
        assert ssl.TLSVersion.TLSv1_2 == context.minimum_version
        assert ssl.CERT_REQUIRED == context.verify_mode


# --- files ----------------------------------------------------------------------------------------


def refused(files: PemFiles) -> str:
    with pytest.raises(ConfigurationError) as caught:
        files.prove()
    said = str(caught.value)
    assert "\n" not in said
    return said


def test_a_file_that_is_missing_or_no_pem_is_named_with_its_option(authority: Authority) -> None:
    files, place = authority.files(), authority.place
    (place / "text").write_text("no certificate")
    trust, keys = "security.ssl.internal.truststore", "security.ssl.internal.keystore"

    assert f"{trust}: {place}/none does not exist" == refused(
        replace(files, truststore=f"{place}/none")
    )
    assert f"{keys}: {place}/none does not exist" == refused(
        replace(files, keystore=f"{place}/none")
    )
    assert refused(replace(files, truststore=f"{place}/text")).startswith(
        f"{trust}: {place}/text holds no certificates as PEM ("
    )
    assert refused(replace(files, keystore=f"{place}/text")).startswith(
        f"{keys}: {place}/text holds no private key with its certificate, both as PEM ("
    )
    assert refused(replace(files, keystore=files.truststore)).startswith(
        f"{keys}: {files.truststore} holds no private key"
    )
    assert refused(replace(files, truststore=str(place))).startswith(f"{trust}: {place} ")
    assert f"{keys} is not set, but security.ssl.internal.enabled is true" in refused(
        replace(files, keystore=None)
    )


def test_a_key_of_another_certificate_is_found(authority: Authority) -> None:
    one, other = authority.own.issue_cert("a"), authority.own.issue_cert("b")
    files = authority.files()
    mixed = authority.place / "mixed.pem"
    mixed.write_bytes(one.private_key_pem.bytes() + other.cert_chain_pems[0].bytes())

    said = refused(replace(files, keystore=str(mixed)))

    assert f"{mixed} holds no private key with its certificate" in said
    assert "key values mismatch" in said


def test_an_encrypted_key_needs_its_password(authority: Authority) -> None:
    files = authority.files()
    issued = authority.own.issue_cert("127.0.0.1")
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    encrypted = authority.place / "encrypted.pem"
    encrypted.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"open sesame"),
        )
        + issued.cert_chain_pems[0].bytes()
    )
    files = replace(files, keystore=str(encrypted))
    begin = f"security.ssl.internal.keystore: {encrypted}: security.ssl.internal.key-password "

    assert f"{begin}is not set, and it is encrypted" == refused(files)
    assert f"{begin}does not open it" == refused(replace(files, key_password="hush-hush"))
    assert replace(files, key_password="open sesame").prove()


def test_a_certificate_that_has_expired_or_is_of_others_is_found(authority: Authority) -> None:
    expired = authority.files("expired", not_before=LONG_AGO, not_after=LONG_AGO)
    begin = f"security.ssl.internal.keystore: {expired.keystore} is not taken by "

    said = refused(expired)
    assert said.startswith(begin)
    assert said.endswith("certificate has expired")

    (authority.place / "other").mkdir()
    other = Authority(authority.place / "other").files()
    said = refused(replace(authority.files(), truststore=other.truststore))
    assert "unable to get local issuer certificate" in said
