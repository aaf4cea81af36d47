"""Secrets in texts that leave the machine."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from barnabas.cli.redaction import Redactor, is_secret_name

KEY = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIE\nplanted\n-----END ENCRYPTED PRIVATE KEY-----"


@pytest.mark.parametrize(
    "text",
    [
        "sasl.password=planted",
        'sasl_password = "planted words of a sentence"',
        "'password': 'planted words'",
        '{"sasl.password": "planted \\" words"}',
        r'{"message": "{\"password\": \"planted\"}"}',
        "BARNABAS_SASL_PASSWORD=planted",
        "SCRAM-SHA-512=[iterations=8192,password=planted]",
        'org.apache.kafka...ScramLoginModule required username="a" password="planted";',
        "https://alice:planted@host:8081/subjects",
        "GET /x HTTP/1.1\r\nAuthorization: Basic cGxhbnRlZA==planted\r\n",
        "authorization: Bearer planted.planted-planted",
        f"before\n{KEY}\nafter",
        "-----BEGIN RSA PRIVATE KEY-----\nplanted (cut off",
        "s3.secret-access-key: planted",
        "AWS_SECRET_ACCESS_KEY=planted",
        "token eyJhbGciOiJub25lIn0.planted.planted",
        "--sasl-password=planted",
        "ssl.key.password : planted",
        "keystore_key=planted",
        "schema.registry.basic.auth.user.info=alice:planted",
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str) -> None:
    shown = Redactor().text(text)
    assert "planted" not in shown
    assert "[hidden]" in shown


@pytest.mark.parametrize(
    "text",
    [
        "sasl.password=${file:/run/password}",
        "ssl.key.file=/etc/barnabas/key.pem",
        "INFO clicks-3: deleted segments by retention; the log start offset is now 4711",
        "https://host:8081/path@2",
        "kafka_brokers 3",
        "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
        "sasl.mechanism=SCRAM-SHA-512",
    ],
)
def test_other_text_stays(text: str) -> None:
    assert Redactor().text(text) == text


def test_known_secrets_are_hidden_everywhere_in_each_form() -> None:
    redactor = Redactor()
    redactor.settings({"sasl.password": 'pl"ant/ed ż'})
    basic = base64.b64encode('pl"ant/ed ż'.encode()).decode()
    for text in ('failed with pl"ant/ed ż.', "pl%22ant%2Fed%20%C5%BC", '{"m": "pl\\"ant/ed \\u017c"}', f"x {basic}"):
        assert "[hidden]" in redactor.text(text), text
        assert "ed" not in redactor.text(text).replace("failed", "").replace("[hidden]", "")


def test_secrets_of_named_sources_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password").write_text("of-a-file\n")
    monkeypatch.setenv("PLANTED", "of-a-variable")
    redactor = Redactor()
    given = {
        "sasl.password": f"${{file:{tmp_path}/password}}",
        "ssl.key.password": "${env:PLANTED}",
        "sasl.oauth.token": "${command:touch /tmp/never}",
        "token": "${file:/none}",
        "num.partitions": 3,
        "ssl.cafile": "ca.pem",
    }
    assert redactor.settings(given) == given
    assert redactor.text("a of-a-file b of-a-variable c") == "a [hidden] b [hidden] c"


def test_short_secrets_do_not_hide_parts_of_words() -> None:
    redactor = Redactor()
    assert redactor.settings({"sasl.password": "ab"}) == {"sasl.password": "[hidden]"}
    assert redactor.text("about sasl.password=ab") == "about sasl.password=[hidden]"


def test_long_text_is_searched_in_linear_time() -> None:
    for text in ("a." * 300_000, "password" * 60_000, '\\"' * 300_000, "://" + "x" * 600_000, "eyJ" * 200_000):
        assert len(Redactor().text(text)) > 0


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sasl.password", True),
        ("ssl.key.password", True),
        ("GITHUB_TOKEN", True),
        ("sasl.jaas.config", True),
        ("ssl.keystore.key", True),
        ("ssl.key.file", False),
        ("sasl.password.file", False),
        ("password.encoder.iterations", False),
        ("sasl.oauthbearer.token.endpoint.url", False),
        ("delegation.token.max.lifetime.ms", False),
        ("num.partitions", False),
    ],
)
def test_names_of_secrets(name: str, expected: bool) -> None:
    assert is_secret_name(name) is expected
