"""`barnabas profile`."""

from __future__ import annotations

import json
import stat

import pytest

from barnabas.cli.commands import run
from barnabas.cli.options import named_connection

SCRAM = ["--security-protocol", "sasl_ssl", "--sasl-mechanism", "SCRAM-SHA-512", "--sasl-username", "alice"]


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "barnabas" / "profiles"


def test_profile_is_created_listed_shown_and_deleted(folder, capsys) -> None:
    create = ["profile", "create", "prod", "-b", "a:1", *SCRAM, "--sasl-password-file", "pw", "--ssl-cafile", "ca.pem"]
    assert run(create) == 0
    assert stat.S_IMODE((folder / "prod.toml").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert run(create) == 1
    assert "--replace" in capsys.readouterr().err
    assert run([*create, "--replace"]) == 0
    assert run(["profile", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"profile": "prod", "bootstrap": "a:1", "protocol": "SASL_SSL"}]
    assert run(["profile", "show", "prod", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["sasl.password"] == f"${{file:{folder.parent.parent / 'pw'}}}"
    assert shown["ssl.cafile"] == str(folder.parent.parent / "ca.pem")
    assert run(["profile", "delete", "prod"]) == 2
    assert run(["profile", "delete", "prod", "-y"]) == 0
    assert run(["profile", "delete", "prod", "-y"]) == 1


def test_secrets_are_hidden(folder, capsys) -> None:
    folder.mkdir(parents=True)
    (folder / "prod.toml").write_text('sasl_password = "planted"\nzookeeper_auth = "ctr:planted"\n')
    (folder / "prod.toml").chmod(0o600)
    assert run(["profile", "show", "prod"]) == 0
    shown = capsys.readouterr().out
    assert "[hidden]" in shown
    assert "planted" not in shown


@pytest.mark.parametrize(
    "options",
    [
        [*SCRAM],
        ["--sasl-username", "alice"],
        ["--security-protocol", "SASL_SSL", "--sasl-mechanism", "OAUTHBEARER"],
        [*SCRAM, "--sasl-password-file", "pw", "--sasl-password-env", "PW"],
        [*SCRAM, "--sasl-password-command", "echo ${HOME}"],
        ["-X", "sasl.password=planted"],
        ["-X", "no.such.setting=1"],
        ["-X", "schema.registry.password=planted"],
        ["-X", "schema.registry.url=https://alice:planted@registry"],
        ["-X", "schema.registry.username=alice"],
        ["-X", "schema.registry.no.such.setting=1"],
    ],
)
def test_profiles_that_no_client_would_accept_are_not_written(folder, capsys, options) -> None:
    assert run(["profile", "create", "prod", "-b", "a:1", *options]) == 2
    assert not (folder / "prod.toml").exists()
    assert "planted" not in capsys.readouterr().err


def test_token_comes_from_a_file_or_a_command(folder) -> None:
    token = ["--security-protocol", "SASL_SSL", "--sasl-mechanism", "OAUTHBEARER", "--sasl-token-command", "get token"]
    assert run(["profile", "create", "prod", "-b", "a:1", *token]) == 0
    assert 'sasl_oauth_token = "${command:get token}"' in (folder / "prod.toml").read_text()


def test_profile_contains_the_settings_of_the_registry(folder, capsys) -> None:
    own = {
        "schema.registry.url": "https://registry:8081",
        "schema.registry.username": "alice",
        "schema.registry.password": "${file:pw}",
        "schema.registry.ssl.cafile": "ca.pem",
    }
    given = [word for name, value in own.items() for word in ("-X", f"{name}={value}")]
    assert run(["profile", "create", "prod", "-b", "a:1", *given]) == 0
    assert run(["profile", "show", "prod", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"bootstrap.servers": "a:1", **own}
    connection = named_connection("prod", None, {"schema.registry.username": "bob"})
    assert (connection.bootstrap, connection.properties) == ("a:1", {})
    target = connection.registry_target(None)
    assert (target.url, target.username, target.ssl_cafile) == ("https://registry:8081", "bob", "ca.pem")
    assert connection.registry_target("https://other").url == "https://other"
    assert "pw" not in repr(connection)


def test_secrets_of_the_registry_are_hidden(folder, capsys) -> None:
    folder.mkdir(parents=True)
    (folder / "prod.toml").write_text('schema_registry_token = "planted"\nschema_registry_url = "http://a:planted@b"\n')
    assert run(["profile", "show", "prod"]) == 2
    assert "chmod 600" in capsys.readouterr().err
    (folder / "prod.toml").chmod(0o600)
    assert run(["profile", "show", "prod"]) == 0
    assert "planted" not in capsys.readouterr().out
