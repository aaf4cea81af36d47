"""The sources of passwords."""

from __future__ import annotations

import io
from types import SimpleNamespace

import click
import pytest

from barnabas.cli import passwords
from barnabas.cli.passwords import read_password


@pytest.fixture
def given(monkeypatch):
    def give(data: bytes, *, is_terminal: bool = False) -> None:
        stdin = SimpleNamespace(buffer=io.BytesIO(data), isatty=lambda: is_terminal)
        monkeypatch.setattr(passwords.sys, "stdin", stdin)

    return give


def test_password_comes_from_a_file_a_variable_or_standard_input(tmp_path, monkeypatch, given) -> None:
    (tmp_path / "password").write_bytes("pässword \r\n".encode())
    assert read_password("alice", str(tmp_path / "password"), None) == "pässword "
    monkeypatch.setenv("PW", "from the environment")
    assert read_password("alice", None, "PW") == "from the environment"
    given(b"first\nsecond\n")
    assert read_password("alice", None, None) == "first"
    assert read_password("alice", "-", None) == "second"


def test_password_is_asked_twice_on_a_terminal_without_an_echo(monkeypatch, given) -> None:
    asked = {}
    given(b"", is_terminal=True)
    monkeypatch.setattr(passwords.click, "prompt", lambda text, **how: asked.update(how, text=text) or "typed")
    assert read_password("alice", None, None) == "typed"
    assert asked == {"text": "Password of alice", "hide_input": True, "confirmation_prompt": True, "err": True}


@pytest.mark.parametrize(
    ("data", "reason"), [(b"", "empty"), (b"\n", "empty"), (b"\xff\n", "UTF-8"), (b"x" * 1025, "more than 1024")]
)
def test_invalid_passwords_are_refused(given, data, reason) -> None:
    given(data)
    with pytest.raises(click.UsageError, match=reason):
        read_password("alice", None, None)


def test_two_sources_and_a_missing_variable_are_refused() -> None:
    with pytest.raises(click.UsageError, match="only one of"):
        read_password("alice", "file", "PW")
    with pytest.raises(click.UsageError, match="NOT_THERE is not set"):
        read_password("alice", None, "NOT_THERE")
