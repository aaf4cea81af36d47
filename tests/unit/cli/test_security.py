"""`barnabas security`."""

from __future__ import annotations

import stat

import pytest

from barnabas.cli.commands import run
from barnabas.cli.security import FILE_BYTES_MAX


@pytest.fixture
def folder(tmp_path, capsys):
    assert run(["security", "init", str(tmp_path / "s"), "--host", "a", "--host", "b", "--zookeeper", "z:1"]) == 0
    capsys.readouterr()
    return tmp_path / "s"


def test_only_the_owner_can_read_the_files(folder) -> None:
    found = list(folder.rglob("*"))
    assert {stat.S_IMODE(each.stat().st_mode) for each in found if each.is_file()} == {0o600}
    assert {stat.S_IMODE(each.stat().st_mode) for each in [folder, *found] if each.is_dir()} == {0o700}


def test_init_prints_the_commands_and_never_overwrites(folder, capsys) -> None:
    key = (folder / "ca-key.pem").read_text()
    assert run(["security", "init", str(folder), "--host", "a"]) == 2
    assert "not an empty directory" in capsys.readouterr().err
    assert (folder / "ca-key.pem").read_text() == key
    assert run(["security", "init", str(folder / "x"), "--host", "a"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed == [
        f"barnabas up --config {folder / 'x' / 'broker.toml'}",
        f"barnabas --profile {folder / 'x' / 'admin.toml'} user create NAME",
        f"barnabas --profile {folder / 'x' / 'admin.toml'} acl allow User:NAME read,write topic:TOPIC",
    ]


@pytest.mark.parametrize(
    "options",
    [
        ["--host", "a", "--host", "b"],
        ["--host", "a", "--zookeeper", "z:1"],
        ["--host", "a", "--installed-at", "etc"],
        ["--host", "a b"],
        [],
    ],
)
def test_contradicting_options_are_refused_before_a_file_is_written(tmp_path, options) -> None:
    assert run(["security", "init", str(tmp_path / "new"), *options]) == 2
    assert not (tmp_path / "new").exists()


def test_certificates_are_renewed_in_place(folder) -> None:
    before = {each: (folder / each / "server.pem").read_text() for each in "ab"}
    assert run(["security", "renew", str(folder)]) == 0
    assert all((folder / each / "server.pem").read_text() != text for each, text in before.items())
    assert run(["security", "renew", str(folder / "nowhere")]) == 2


def test_client_certificate_never_overwrites_a_file(folder, tmp_path) -> None:
    create = ["security", "certificate", str(folder), "alice", "-o", str(tmp_path / "alice.pem")]
    assert run(create) == 0
    assert stat.S_IMODE((tmp_path / "alice.pem").stat().st_mode) == 0o600
    assert run(create) == 1
    assert run(["security", "certificate", str(folder), "broker-1", "-o", str(tmp_path / "b.pem")]) == 2


@pytest.mark.parametrize("name", ["ca.pem", "ca-key.pem", "installation.json"])
@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe", b"[" * 100_000, b"x" * (FILE_BYTES_MAX + 1)],
    ids=["not UTF-8", "nested deeply", "too large"],
)
def test_damaged_file_of_an_installation_is_named(folder, capsys, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    assert run(["security", "renew", str(folder)]) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert str(folder / name) in error or "CA" in error
