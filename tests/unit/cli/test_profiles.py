"""The files of profiles."""

from __future__ import annotations

import stat

import pytest

from barnabas.cli.profiles import (
    check_profile,
    profile_names,
    profile_path,
    profile_text,
    read_profile,
    write_private_file,
)
from barnabas.errors import ConfigurationError

SETTINGS = {
    "bootstrap.servers": "a:9092",
    "security.protocol": "SASL_SSL",
    "sasl.username": 'al"ice\\ \n',
    "sasl.password": "${file:/etc/alice.password}",
}


@pytest.fixture
def environment(tmp_path):
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def write(environment, name, text, mode=0o600):
    path = profile_path(name, environment)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_written_profile_is_read_and_listed_by_its_name(environment) -> None:
    write(environment, "prod", profile_text(SETTINGS))
    write(environment, "dev.eu", "")
    (profile_path("prod", environment).parent / ".prod.toml.new").write_text("")
    assert read_profile("prod", environment) == SETTINGS
    assert profile_names(environment) == ["dev.eu", "prod"]


def test_profile_accepts_dotted_names_numbers_and_booleans(environment) -> None:
    write(environment, "prod", 'bootstrap.servers = "a:1"\nrequest.timeout.ms = 5\n[ssl]\nverify = true\n')
    assert read_profile("prod", environment) == {
        "bootstrap.servers": "a:1",
        "request.timeout.ms": "5",
        "ssl.verify": "true",
    }


def test_profile_is_read_from_a_path(tmp_path, environment) -> None:
    (tmp_path / "admin.toml").write_text('bootstrap_servers = "a:1"\n')
    assert read_profile(str(tmp_path / "admin.toml"), environment) == {"bootstrap.servers": "a:1"}


@pytest.mark.parametrize("name", ["", ".hidden", "a b", "a" * 65, "\n"])
def test_strange_names_are_refused(environment, name) -> None:
    with pytest.raises(ConfigurationError, match="not the name of a profile"):
        profile_path(name, environment)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("sasl_password = 'planted", "not a TOML file"), ("a = []", "must be a string"), ("#" * 70_000, "more than")],
)
def test_malformed_profiles_are_refused_without_their_content(environment, text, reason) -> None:
    write(environment, "prod", text)
    with pytest.raises(ConfigurationError, match=reason) as refused:
        read_profile("prod", environment)
    assert "planted" not in str(refused.value)


def test_missing_profile_is_refused_with_its_path(environment) -> None:
    with pytest.raises(ConfigurationError, match=r"no profile 'prod' .*barnabas profile list"):
        read_profile("prod", environment)


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_secret_that_other_users_can_read_is_refused(environment, mode) -> None:
    path = write(environment, "prod", 'sasl_password = "planted"\n', mode)
    with pytest.raises(ConfigurationError, match=f"chmod 600 {path}") as refused:
        read_profile("prod", environment)
    assert "planted" not in str(refused.value)
    path.chmod(0o600)
    assert read_profile("prod", environment) == {"sasl.password": "planted"}


def test_invalid_settings_are_refused() -> None:
    check_profile(SETTINGS)
    with pytest.raises(ConfigurationError, match="did you mean"):
        check_profile({"security.protokol": "SSL"})
    with pytest.raises(ConfigurationError, match="needs sasl_username"):
        check_profile({"security.protocol": "SASL_SSL"})


def test_private_file_is_private_and_never_overwrites_unless_it_replaces(tmp_path) -> None:
    path = tmp_path / "secret"
    write_private_file(path, "one")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        write_private_file(path, "two")
    assert path.read_text() == "one"
    path.chmod(0o644)
    write_private_file(path, "three", replace=True)
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("three", 0o600)
    assert list(tmp_path.iterdir()) == [path]
