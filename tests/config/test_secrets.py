"""Secrets are hidden wherever they stand in a value, a command line or a message."""

from __future__ import annotations

import logging
import time

import pytest

from understudy.config import Configuration, secrets
from understudy.config.configuration import learn_secrets, redact
from understudy.config.secrets import HIDDEN, WithoutSecrets, masked, masked_words
from understudy.errors import ConfigurationError

SECRET = "hunter22hunter22"

TEXTS = (
    f"-Xmx1g -Dpassword={SECRET} -Dfile.encoding=UTF-8",
    f"-Djavax.net.ssl.keyStorePassword={SECRET}",
    f"-Djavax.net.ssl.trustStorePassword='{SECRET} {SECRET}' -Dx=1",
    f"https://host/path?password={SECRET}&x=1",
    f"https://host/path?x=1&token={SECRET}",
    f"https://account.blob.core.windows.net/c?sv=1&sig={SECRET}%3D",
    f"https://bucket.s3.amazonaws.com/k?X-Amz-Signature={SECRET}&X-Amz-Credential={SECRET}",
    f"jdbc:postgresql://db/x?user=me&password={SECRET}",
    f"jdbc:sqlserver://db;user=me;password={SECRET};encrypt=true",
    f"jdbc:sqlserver://db;user=me;password={{a;{SECRET}}};encrypt=true",
    f"jdbc:oracle:thin:me/{SECRET}@//db:1521/x",
    f"postgresql://me:{SECRET}@db:5432/x",
    f"https://{SECRET}@github.com/me/x.git",
    f"authorization=Basic {SECRET}",
    f"could not reach https://me:{SECRET}@host/: refused",
    f"fs.s3a.secret.key={SECRET}",
    f"aws_secret_access_key = {SECRET}",
    f"{{'password': '{SECRET}', 'user': 'me'}}",
    f'{{"api_key": "{SECRET}"}}',
    f"Authorization: Bearer {SECRET}",
    f"app.py --db-password {SECRET} --year 2013",
    f"app.py --token={SECRET}",
    f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
)


@pytest.mark.parametrize("text", TEXTS)
def test_a_secret_is_hidden_wherever_it_stands(text: str) -> None:
    assert SECRET not in masked(text)
    assert SECRET not in redact({"env.java.opts.all": text})["env.java.opts.all"]


def test_an_aws_key_is_hidden() -> None:
    assert "AKIAIOSFODNN7EXAMPLE" not in masked("key AKIAIOSFODNN7EXAMPLE was refused")


@pytest.mark.parametrize(
    "text",
    [
        "security.secret-file=/etc/understudy/secret",
        "-Djavax.net.ssl.keyStore=/etc/store -Djavax.net.ssl.keyStoreType=PKCS12",
        "-Xmx2g -XX:+UseG1GC -Dfile.encoding=UTF-8",
        "abfss://container@account.dfs.core.windows.net/data",
        "s3://bucket/prefix",
        "s3://a-bucket-with-a-long-name@2/prefix",
        "https://me@host/x, and to somebody.with.a.name@this.host",
        "jdbc:oracle:thin:@//db:1521/x",
        "ValueError: 3 tokens expected, 4 found",
        "job 'count the tokens' failed",
        "zk1:2181,zk2:2181",
        "postgresql://db:5432/x",
        "the password is missing",
    ],
)
def test_what_is_no_secret_is_shown_as_it_is(text: str) -> None:
    assert text == masked(text)


def test_the_rest_of_a_value_is_shown() -> None:
    shown = redact({"spark.driver.extraJavaOptions": f"-Xmx1g -Dpassword={SECRET} -Dx=1"})

    assert "-Xmx1g -Dpassword=****** -Dx=1" == shown["spark.driver.extraJavaOptions"]


def test_an_error_about_a_value_does_not_show_the_secret_in_it() -> None:
    with pytest.raises(ConfigurationError) as told:
        Configuration({"rest.port": f"https://h/?token={SECRET}"})

    assert SECRET not in str(told.value)


def test_long_text_is_looked_through_in_time() -> None:
    began = time.monotonic()
    for text in ("password" * 100_000, "a" * 1_000_000, "http://" * 100_000, "token=" * 100_000):
        masked(text)

    assert time.monotonic() - began < 30


@pytest.fixture
def ignorant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what a test learns be forgotten after it."""
    monkeypatch.setattr(secrets, "_learnt", type(secrets._learnt)())


CONFIGURED = (
    {"fs.s3a.secret.key": SECRET},
    {"security.ssl.internal.key-password": SECRET},
    {"env.java.opts.all": f"-Xmx1g -Dpassword={SECRET} -Dx=1"},
    {"env.java.opts.all": f"-Dpassword='{SECRET}'"},
    {"spark.jdbc": f"postgresql://me:{SECRET}@db:5432/x"},
    {"spark.url": f"https://host/path?token={SECRET}&x=1"},
    {"spark.args": f"--db-password {SECRET} --year 2013"},
)


@pytest.mark.parametrize("settings", CONFIGURED)
@pytest.mark.usefixtures("ignorant")
def test_a_configured_secret_is_hidden_in_log_lines_wherever_it_stands(
    settings: dict[str, str],
) -> None:
    learn_secrets(settings, ())
    told = logging.LogRecord("x", logging.INFO, "x", 1, "the store said %r", (SECRET,), None)

    assert "the store said '******'" == WithoutSecrets("%(message)s").format(told)


@pytest.mark.usefixtures("ignorant")
def test_a_secret_in_an_exception_of_a_log_line_is_hidden() -> None:
    learn_secrets({"db.password": SECRET}, ())
    error = ValueError(f"login with {SECRET}")
    told = logging.LogRecord("x", logging.INFO, "x", 1, "it failed", (), (type(error), error, None))

    assert "ValueError: login with ******" in WithoutSecrets("%(message)s").format(told)


@pytest.mark.usefixtures("ignorant")
def test_a_secret_is_hidden_as_it_stands_in_an_address() -> None:
    learn_secrets({"db.password": "p/ss w+rd@1"}, ())

    assert "at ****** and ******" == masked("at p/ss w+rd@1 and p%2Fss%20w%2Brd%401")


@pytest.mark.usefixtures("ignorant")
def test_further_keys_and_what_is_no_secret() -> None:
    learn_secrets({"spark.pin": SECRET, "x.token.enabled": "true", "x.secret": "abc"}, ("PIN",))

    assert "true abc ******" == masked(f"true abc {SECRET}")


@pytest.mark.usefixtures("ignorant")
def test_the_words_of_a_command_are_hidden_after_their_flag() -> None:
    words = ["app.py", "--db-password", SECRET, "--token=" + SECRET, "--password", "-x", "2013"]
    hidden = ["app.py", "--db-password", "******", "--token=******", "--password", "-x", "2013"]

    assert hidden == masked_words(words)


@pytest.mark.usefixtures("ignorant")
def test_each_of_many_secrets_is_learnt_at_once_and_hidden() -> None:
    values = [f"{number:032x}" for number in range(1 << 40, (1 << 40) + 500)]
    began = time.process_time()
    for value in values:
        secrets.learn([value])
    took_s = time.process_time() - began

    assert f"a {HIDDEN}, {HIDDEN}." == secrets.masked(f"a {values[0]}, {values[-1]}.")
    assert took_s < 2, "a session learns those of each application while it leads"
