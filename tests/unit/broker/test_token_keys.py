"""The key set of OAUTHBEARER: from a file, over the network, replaced, damaged and unreachable."""

from __future__ import annotations

import http.client
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwk

from barnabas.broker import token_keys
from barnabas.broker.token_keys import TokenChecks, TokenKeys
from barnabas.clock import ManualClock
from barnabas.errors import ConfigurationError
from barnabas.security.jwt import KEY_SET_BYTES_MAX

CHECKS = TokenChecks("https://issuer.example", ("kafka",), 30, "sub")
KEYS = json.dumps({"keys": [jwk.ECKey.generate_key("P-256", {"kid": "a"}).as_dict(private=False)]}).encode()


class Source:
    """Stands for the network: returns bytes, or raises an error, in place of each fetch."""

    def __init__(self) -> None:
        self.next: bytes | Exception = KEYS
        self.count = 0

    def open(self, _url: str, timeout: float) -> Any:
        assert timeout
        self.count += 1
        if isinstance(self.next, Exception):
            raise self.next
        return io.BytesIO(self.next)


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Source:
    made = Source()
    monkeypatch.setattr(token_keys, "_OPENER", made)
    return made


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def keys(source: Source, clock: ManualClock) -> Iterator[TokenKeys]:
    made = TokenKeys("https://keys.example/jwks", 3_600, clock.monotonic, CHECKS)
    yield made
    made.stop()


FAILURES = [
    OSError("no route to host"),
    TimeoutError("timed out"),
    http.client.IncompleteRead(b"{"),
    http.client.BadStatusLine("220 smtp.example"),
    http.client.LineTooLong("header line"),
    http.client.InvalidURL("a b"),
    ValueError("unknown url type"),
    UnicodeError("label too long"),
    b"",
    b"<html>",
    b'{"keys": []}',
    b'{"keys": [{"kty": "oct", "k": "AAAA"}]}',
    b"[" * 100_000,
    b" " * (KEY_SET_BYTES_MAX + 1),
]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: repr(failure)[:30])
def test_last_keys_remain_in_use_while_the_source_fails(
    source: Source, keys: TokenKeys, failure: bytes | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    keys._fetch()
    before = keys.validator
    assert before is not None
    source.next = failure
    keys._fetch()
    assert keys.validator is before
    assert "the last keys remain in use" in caplog.text
    source.next = KEYS
    keys._fetch()
    assert keys.validator is not before


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: repr(failure)[:30])
def test_start_without_keys_refuses_tokens(
    source: Source, keys: TokenKeys, failure: bytes | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    source.next = failure
    keys._fetch()
    assert keys.validator is None
    assert "tokens are refused until then" in caplog.text


def test_unknown_keys_cause_one_read_in_ten_seconds(keys: TokenKeys, clock: ManualClock) -> None:
    keys._fetch()
    keys.note_unknown_key()
    assert not keys._due.is_set()
    clock.advance(token_keys.UNKNOWN_KEY_PAUSE_S)
    keys.note_unknown_key()
    assert keys._due.is_set()


def test_keys_come_from_a_file(tmp_path: Path, clock: ManualClock) -> None:
    file = tmp_path / "keys with spaces.json"
    file.write_bytes(KEYS)
    keys = TokenKeys(file.as_uri(), 3_600, clock.monotonic, CHECKS)
    keys._fetch()
    assert keys.validator is not None
    file.unlink()
    keys._fetch()
    assert keys.validator is not None


@pytest.mark.parametrize(
    "url", ["", "http://keys.example/", "ftp://keys.example/", "/etc/keys.json", "file://host/keys", "data:,x"]
)
def test_other_urls_stop_the_start(url: str, clock: ManualClock) -> None:
    with pytest.raises(ConfigurationError, match=r"https:// or a file://"):
        TokenKeys(url, 3_600, clock.monotonic, CHECKS)


@pytest.mark.parametrize("checks", [CHECKS._replace(issuer=""), CHECKS._replace(audiences=())])
def test_missing_check_stops_the_start(checks: TokenChecks, clock: ManualClock) -> None:
    with pytest.raises(ConfigurationError, match="tokens for other services"):
        TokenKeys("https://keys.example/", 3_600, clock.monotonic, checks)


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(code: int) -> None:
    """A redirect could lead to plain HTTP or to another host."""
    handler = token_keys._NoRedirects()
    assert handler.redirect_request(None, None, code, "", {}, "http://elsewhere/") is None
