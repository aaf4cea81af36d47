"""`barnabas profile`: creates, lists, shows and deletes profiles, the client settings for clusters."""

from __future__ import annotations

import os
from pathlib import Path

import click

from barnabas.cli.options import client_properties_option, confirm, json_option, yes_option
from barnabas.cli.profiles import (
    check_profile,
    profile_folder,
    profile_names,
    profile_path,
    profile_text,
    read_profile,
    write_private_file,
)
from barnabas.cli.table_output import Row, show_json, show_table
from barnabas.cli.terminal_text import escaped
from barnabas.errors import ConfigurationError
from barnabas.security.protocols import SASL_MECHANISMS, SecurityProtocol
from barnabas.security.secrets import HIDDEN


@click.group()
def profile() -> None:
    """Create, list, show and delete profiles: client settings for clusters."""


@profile.command()
@click.argument("name")
@click.option("-b", "--bootstrap", metavar="HOST:PORT[,...]", required=True, help="Addresses of brokers.")
@click.option(
    "--security-protocol",
    type=click.Choice([each.value for each in SecurityProtocol], case_sensitive=False),
    help="Protocol of the connections.  [default: PLAINTEXT]",
)
@click.option("--sasl-mechanism", type=click.Choice(SASL_MECHANISMS, case_sensitive=False), help="SASL mechanism.")
@click.option("--sasl-username", metavar="NAME", help="User name.")
@click.option("--sasl-password-file", metavar="FILE", help="File with the password.")
@click.option("--sasl-password-env", metavar="NAME", help="Environment variable with the password.")
@click.option("--sasl-password-command", metavar="COMMAND", help="Command that prints the password.")
@click.option("--sasl-token-file", metavar="FILE", help="File with the token for OAUTHBEARER.")
@click.option("--sasl-token-command", metavar="COMMAND", help="Command that prints the token for OAUTHBEARER.")
@click.option("--ssl-cafile", metavar="FILE", help="PEM file with the CA certificates to trust.")
@click.option("--ssl-certfile", metavar="FILE", help="PEM file with the client's certificate, and maybe its key.")
@click.option("--ssl-keyfile", metavar="FILE", help="PEM file with the client's private key.")
@client_properties_option
@click.option("--replace", is_flag=True, help="Replace an existing profile.")
def create(
    name: str,
    bootstrap: str,
    security_protocol: str | None,
    sasl_mechanism: str | None,
    sasl_username: str | None,
    sasl_password_file: str | None,
    sasl_password_env: str | None,
    sasl_password_command: str | None,
    sasl_token_file: str | None,
    sasl_token_command: str | None,
    ssl_cafile: str | None,
    ssl_certfile: str | None,
    ssl_keyfile: str | None,
    properties: dict[str, str],
    replace: bool,
) -> None:
    """Create the profile NAME, for `--profile NAME` and BARNABAS_PROFILE.

    The profile contains the sources of secrets. The command reads a secret from its source for each authentication.

    \b
    barnabas profile create prod -b a.example.com:9092 --security-protocol SASL_SSL --ssl-cafile ca.pem \\
      --sasl-mechanism SCRAM-SHA-512 --sasl-username alice --sasl-password-file ~/.alice-password
    """
    password = _source("--sasl-password", file=sasl_password_file, env=sasl_password_env, command=sasl_password_command)
    token = _source("--sasl-token", file=sasl_token_file, env=None, command=sasl_token_command)
    given = {
        "bootstrap.servers": bootstrap,
        "security.protocol": security_protocol,
        "ssl.cafile": _absolute(ssl_cafile),
        "ssl.certfile": _absolute(ssl_certfile),
        "ssl.keyfile": _absolute(ssl_keyfile),
        "sasl.mechanism": sasl_mechanism,
        "sasl.username": sasl_username,
        "sasl.password": password,
        "sasl.oauth.token": token,
        **properties,
    }
    settings = {each: value for each, value in given.items() if value is not None}
    check_profile(settings)
    path = profile_path(name, os.environ)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        write_private_file(path, profile_text(settings), replace=replace)
    except FileExistsError:
        raise click.ClickException(f"profile {name!r} exists already ({path}); replace it with --replace") from None
    click.echo(f"created {path}; use it with: barnabas --profile {name} ...", err=True)


def _source(option: str, *, file: str | None, env: str | None, command: str | None) -> str | None:
    """Return the text that names the source of a secret.

    :raises click.UsageError: several sources are given.
    """
    given = {"file": _absolute(file), "env": env, "command": command}
    sources = [f"${{{kind}:{what}}}" for kind, what in given.items() if what is not None]
    if len(sources) > 1:
        raise click.UsageError(f"give only one of {option}-file, {option}-env and {option}-command")
    if sources and "}" in sources[0][:-1]:
        raise click.UsageError(f"{option}: the name of a source cannot contain }}")
    return sources[0] if sources else None


def _absolute(file: str | None) -> str | None:
    return None if file is None else str(Path(file).expanduser().absolute())


@profile.command(name="list")
@json_option
def list_(as_json: bool) -> None:
    """List the profiles with their brokers."""
    rows: list[Row] = []
    for name in profile_names(os.environ):
        try:
            settings = read_profile(name, os.environ)
        except ConfigurationError as error:
            click.echo(f"barnabas: {escaped(str(error))}", err=True)
            continue
        rows.append([name, settings.get("bootstrap.servers", ""), settings.get("security.protocol", "PLAINTEXT")])
    columns = ["profile", "bootstrap", "protocol"]
    if as_json:
        show_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif rows:
        show_table(columns, rows)
    else:
        click.echo(f"no profiles in {profile_folder(os.environ)}; see: barnabas profile create --help", err=True)


@profile.command()
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:
    """Show the settings of the profile NAME, without secrets."""
    from barnabas.client.config import contains_secret

    settings = {
        each: HIDDEN if contains_secret(each, value) else value
        for each, value in read_profile(name, os.environ).items()
    }
    if as_json:
        show_json(settings)
    else:
        show_table(["setting", "value"], [[each, value] for each, value in settings.items()])


@profile.command()
@click.argument("name")
@yes_option
def delete(name: str, yes: bool) -> None:
    """Delete the profile NAME. The files that it names remain."""
    path = profile_path(name, os.environ)
    if not path.is_file():
        raise click.ClickException(f"no profile {name!r} ({path}); see: barnabas profile list")
    confirm(f"Delete {path}?", yes=yes)
    path.unlink()
    click.echo(f"deleted {path}", err=True)
