"""Secrets from files, environment variables and commands; and errors that do not contain them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from barnabas.errors import ConfigurationError
from barnabas.security.secret_sources import SECRET_BYTES_MAX, read_secret
from barnabas.security.secrets import Secret

PLANTED = "planted-secret"


def read(text: str) -> str:
    return read_secret("sasl_password", Secret(text))


def failure(text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read(text)
    error = str(caught.value)
    assert error.startswith("sasl_password: ")
    assert PLANTED not in error
    assert caught.value.__cause__ is None
    return error


def command(program: str) -> str:
    return f"${{command:{sys.executable} -c {shlex.quote(program)}}}"


@pytest.mark.parametrize("text", [PLANTED, "$" + PLANTED, "${other:x}", "${file:}", "a${env:HOME}", ""])
def test_text_that_names_no_source_is_the_secret(text: str) -> None:
    assert read(text) == text


@pytest.mark.parametrize("content", ["pass word", "pass word\n", "pass word\r\n"])
def test_secret_of_a_file_is_without_the_line_break(tmp_path: Path, content: str) -> None:
    file = tmp_path / "a file"
    file.write_text(content)
    assert read(f"${{file:{file}}}") == "pass word"
    file.write_text("another")
    assert read(f"${{file:{file}}}") == "another"


def test_secret_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED", "pass word")
    assert read("${env:PLANTED}") == "pass word"
    monkeypatch.delenv("PLANTED")
    assert "PLANTED is not set" in failure("${env:PLANTED}")


def test_secret_of_a_command_runs_without_a_shell() -> None:
    assert read(command("print('pass word')")) == "pass word"
    assert read("${command:echo $HOME `id`}") == "$HOME `id`"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("${command:/does/not/exist}", "No such file"),
        ("${command:false}", "exit code 1"),
        ("${command:echo 'open}", "No closing quotation"),
        (command("import sys; sys.stdout.buffer.write(bytes([255]))"), "not UTF-8"),
        (command(f"print('x' * {SECRET_BYTES_MAX + 1})"), "more than"),
        (command("pass"), "contains nothing"),
        (command(f"raise SystemExit('{PLANTED}'[:0] or 3)"), "exit code 3"),
    ],
)
def test_failed_command_is_explained_without_its_output(text: str, reason: str) -> None:
    assert reason in failure(text)


@pytest.mark.parametrize("blank", ["${command: }", "${file: }", "${env: }"])
def test_blank_source_is_refused(blank: str) -> None:
    failure(blank)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "contains nothing"), (b"\n", "contains nothing"), (b"\xff", "not UTF-8"), (b"x" * 70_000, "more than")],
)
def test_unusable_file_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    assert reason in failure(f"${{file:{file}}}")


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    assert "No such file" in failure(f"${{file:{tmp_path / 'missing'}}}")
    assert "directory" in failure(f"${{file:{tmp_path}}}")


def test_arguments_of_a_command_are_not_in_errors() -> None:
    failure(f"${{command:false --token {PLANTED}}}")
    failure(f"${{command:/does/not/exist --token {PLANTED}}}")
    failure(f"${{command:echo '{PLANTED}}}")


def test_file_name_with_a_null_byte_is_refused() -> None:
    failure("${file:a\0b}")
    failure("${command:a\0b}")
    failure("${env:a\0b}")
    failure("${env:a=b}")
