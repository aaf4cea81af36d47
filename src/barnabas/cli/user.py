"""`barnabas user`: creates, lists and deletes users, and changes their passwords."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from barnabas.cli.connection import Connection
from barnabas.cli.options import confirm, connect, connection_options, json_option, yes_option
from barnabas.cli.passwords import password_options, read_password
from barnabas.cli.table_output import Row, show_json, show_table
from barnabas.cli.terminal_text import escaped
from barnabas.errors import ApiError, ErrorCode
from barnabas.security.protocols import SCRAM_MECHANISMS

if TYPE_CHECKING:
    from barnabas import Admin

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


@click.group()
def user() -> None:
    """Create, list and delete users, and change their passwords."""


def _mechanism_option(function: Decorated) -> Decorated:
    return click.option(
        "--mechanism",
        "mechanisms",
        type=click.Choice(SCRAM_MECHANISMS, case_sensitive=False),
        multiple=True,
        help="SASL mechanism of the credential; repeatable.  [default: both]",
    )(function)


@user.command()
@click.argument("name")
@_mechanism_option
@password_options
@connection_options
def create(
    name: str,
    mechanisms: tuple[str, ...],
    password_file: str | None,
    password_env: str | None,
    connection: Connection,
) -> None:
    """Create the user NAME with a password.

    \b
    barnabas user create alice                                 asks for the password
    barnabas user create alice --password-file alice.password
    """
    with connect(connection) as admin:
        if _exists(admin, name):
            raise click.ClickException(
                f"user {name!r} exists already; change the password with: barnabas user password {name}"
            )
        password = read_password(name, password_file, password_env)
        admin.set_user_password(name, password, mechanisms=mechanisms or SCRAM_MECHANISMS)
    click.echo(escaped(f"created user {name}"), err=True)


@user.command()
@click.argument("name")
@_mechanism_option
@password_options
@connection_options
def password(
    name: str,
    mechanisms: tuple[str, ...],
    password_file: str | None,
    password_env: str | None,
    connection: Connection,
) -> None:
    """Change the password of the user NAME.

    Connections that are open stay open. To replace a password without an interruption, set the new password for one
    mechanism, switch the clients to this mechanism, and set the new password for both.
    """
    with connect(connection) as admin:
        if not _exists(admin, name):
            raise click.ClickException(f"no user {name!r}; create it with: barnabas user create {name}")
        new = read_password(name, password_file, password_env)
        admin.set_user_password(name, new, mechanisms=mechanisms or SCRAM_MECHANISMS)
    click.echo(escaped(f"changed the password of user {name}"), err=True)


@user.command(name="list")
@json_option
@connection_options
def list_(as_json: bool, connection: Connection) -> None:
    """List the users with SCRAM credentials."""
    with connect(connection) as admin:
        users = admin.describe_users()
    if as_json:
        show_json(
            [
                {
                    "user": each.name,
                    "credentials": [
                        {"mechanism": one.mechanism, "iterations": one.iterations} for one in each.credentials
                    ],
                }
                for each in users
            ]
        )
        return
    if not users:
        click.echo("no users; create one with: barnabas user create NAME", err=True)
        return
    rows: list[Row] = [[each.name, ", ".join(one.mechanism for one in each.credentials)] for each in users]
    show_table(["user", "mechanisms"], rows)


@user.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@_mechanism_option
@yes_option
@connection_options
def delete(names: tuple[str, ...], mechanisms: tuple[str, ...], yes: bool, connection: Connection) -> None:
    """Delete the users NAME..., or their credentials for some mechanisms.

    Connections that are open stay open until their clients authenticate again (connections.max.reauth.ms).
    """
    with connect(connection) as admin:
        for name in names:
            if not _exists(admin, name):
                raise click.ClickException(f"no user {name!r}; see: barnabas user list")
        confirm(f"Delete {', '.join(names)}?", yes=yes)
        for name in names:
            admin.delete_user(name, mechanisms=mechanisms or None)
            click.echo(escaped(f"deleted user {name}"), err=True)


def _exists(admin: Admin, name: str) -> bool:
    try:
        return bool(admin.describe_users([name]))
    except ApiError as error:
        if error.code is ErrorCode.RESOURCE_NOT_FOUND:
            return False
        raise
