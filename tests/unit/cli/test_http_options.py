"""The options of status pages and of the registry: what they mean together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from barnabas.cli.http_options import HttpPages, broker_http_option, http_and_metrics_port_options, http_option
from barnabas.cli.options import allow_anonymous_option
from barnabas.errors import ConfigurationError
from barnabas.security.http_settings import HttpAddress, HttpSecurity


def given(option: Any, *arguments: str) -> Any:
    """Return the argument `http` of a command with these options."""
    found: list[Any] = []

    def command(http: Any) -> None:
        found.append(http)

    done = CliRunner().invoke(click.command()(option(command)), list(arguments))
    if done.exit_code:
        raise AssertionError(done.output)
    return found[0]


def test_pages_are_off_by_default_and_open_on_loopback() -> None:
    assert given(http_option) is None
    assert given(http_option, "--http", "9404") == HttpPages(HttpAddress("9404", HttpSecurity()))
    assert given(http_and_metrics_port_options, "--metrics-port", "9404") == HttpPages(HttpAddress("9404"))


@pytest.mark.parametrize(
    ("arguments", "authenticates"),
    [
        ((), False),
        (("--http-certfile", "a.pem"), True),
        (("--http-auth", "users"), True),
        (("--http-certfile", "a.pem", "--http-auth", "none"), False),
    ],
)
def test_certificate_switches_authentication_on(arguments: tuple[str, ...], authenticates: bool) -> None:
    assert given(http_option, "--http", "9404", *arguments).http.security.authenticates is authenticates
    assert given(broker_http_option, "--http", "9404", *arguments).security.authenticates is authenticates


@pytest.mark.parametrize("option", [http_option, broker_http_option])
def test_certificate_without_pages_is_an_error(option: Any) -> None:
    with pytest.raises(AssertionError, match="needs the address of the pages"):
        given(option, "--http-certfile", "a.pem")


def test_broker_keeps_its_own_option_for_anonymous_clients() -> None:
    found: list[Any] = []

    @click.command()
    @allow_anonymous_option
    @broker_http_option
    def command(http: HttpAddress, allow_anonymous: bool) -> None:
        found.append((http.security.allow_anonymous, allow_anonymous))

    CliRunner().invoke(command, ["--http", "0.0.0.0:1", "--allow-anonymous"], catch_exceptions=False)
    assert found == [(False, True)]  # the settings of the broker decide


def test_users_log_in_with_the_profile_of_a_listener(tmp_path: Path) -> None:
    profile = tmp_path / "login.toml"
    profile.write_text(
        'bootstrap_servers = "a:1"\nsecurity_protocol = "SASL_PLAINTEXT"\nsasl_mechanism = "SCRAM-SHA-256"\n'
        'sasl_username = "x"\nsasl_password = "${env:PASSWORD}"\n'
    )
    pages = given(http_option, "--http", "9404", "--http-auth", "users", "--http-login-profile", str(profile))
    assert pages.prover({"bootstrap.servers": "b:1"}) is not None
    own = given(http_option, "--http", "9404", "--http-auth", "users")
    with pytest.raises(ConfigurationError, match="users cannot log in with security_protocol PLAINTEXT"):
        own.prover({"bootstrap.servers": "b:1"})
    assert given(http_option, "--http", "9404").prover({}) is None
