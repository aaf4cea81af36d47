"""`barnabas quota`: lists, sets and removes the quotas of users, client ids and addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from barnabas.cli.connection import Connection
from barnabas.cli.options import connect, connection_options, json_option, parse_pairs
from barnabas.cli.table_output import Row, show_json, show_table
from barnabas.cli.terminal_text import escaped

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

QUOTAS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
KINDS = {"user": "users", "client-id": "client ids", "ip": "addresses"}
"""The types of entities, and their names in the plural."""


def _entity_options(function: Decorated) -> Decorated:
    for kind, several in reversed(KINDS.items()):
        function = click.option(f"--{kind}-default", is_flag=True, help=f"All {several} without a quota of their own.")(
            function
        )
        function = click.option(f"--{kind}", metavar="NAME", help=f"Name of the {kind}.")(function)
    return function


def _entity(options: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the entity that the options name: the names by type, None for the default.

    :raises click.UsageError: a type has a name and is the default.
    """
    entity: dict[str, str | None] = {}
    for kind in KINDS:
        name, is_default = options[kind.replace("-", "_")], options[f"{kind.replace('-', '_')}_default"]
        if name is not None and is_default:
            raise click.UsageError(f"--{kind} and --{kind}-default exclude each other")
        if name is not None or is_default:
            entity[kind] = name
    if "ip" in entity and len(entity) > 1:
        raise click.UsageError("--ip cannot be combined with --user or --client-id")
    return entity


def _required_entity(options: Mapping[str, Any]) -> dict[str, str | None]:
    entity = _entity(options)
    if not entity:
        raise click.UsageError("name a user, a client id or an address: --user NAME, --client-id NAME, --ip ADDRESS")
    return entity


@click.group()
def quota() -> None:
    """List, set and remove quotas of users, client ids and addresses."""


@quota.command(name="list")
@_entity_options
@json_option
@connection_options
def list_(as_json: bool, connection: Connection, **options: Any) -> None:
    """List quotas: all, or those of a user, a client id or an address.

    \b
    barnabas quota list
    barnabas quota list --user alice
    """
    with connect(connection) as admin:
        found = admin.describe_client_quotas(_entity(options))
    if as_json:
        show_json([{"entity": dict(each.entity), "quotas": dict(each.quotas)} for each in found])
        return
    if not found:
        click.echo("no quotas; set one with: barnabas quota set --user NAME producer_byte_rate=1048576", err=True)
        return
    rows: list[Row] = [
        [*(_name(each.entity, kind) for kind in KINDS), key, f"{value:.12g}"]
        for each in found
        for key, value in each.quotas.items()
    ]
    show_table([*KINDS, "quota", "value"], rows)


def _name(entity: Mapping[str, str | None], kind: str) -> str:
    if kind not in entity:
        return ""
    name = entity[kind]
    return "(default)" if name is None else name


@quota.command(name="set")
@_entity_options
@click.argument("pairs", nargs=-1, required=True, metavar="QUOTA=VALUE...")
@connection_options
def set_(pairs: tuple[str, ...], connection: Connection, **options: Any) -> None:
    """Set quotas of a user, a client id, a user's client id, or an address.

    \b
    barnabas quota set --user alice producer_byte_rate=1048576
    barnabas quota set --user-default --client-id-default consumer_byte_rate=10485760
    barnabas quota set --ip-default connection_creation_rate=100
    """
    entity = _required_entity(options)
    quotas: dict[str, float | None] = {}
    for key, text in parse_pairs(pairs).items():
        try:
            quotas[_known(key)] = float(text)
        except ValueError:
            raise click.UsageError(f"{key} is {text!r}; it must be a number") from None
    with connect(connection) as admin:
        admin.alter_client_quotas(entity, quotas)
    for key, value in quotas.items():
        click.echo(escaped(f"{_described(entity)}: {key} = {value:.12g}"))


@quota.command()
@_entity_options
@click.argument("keys", nargs=-1, metavar="[QUOTA...]")
@connection_options
def remove(keys: tuple[str, ...], connection: Connection, **options: Any) -> None:
    """Remove quotas of a user, a client id or an address; all its quotas if none is named."""
    entity = _required_entity(options)
    wanted = [_known(key) for key in keys]
    with connect(connection) as admin:
        found = admin.describe_client_quotas(entity, strict=True)
        existing = found[0].quotas if found else {}
        for key in wanted:
            if key not in existing:
                raise click.ClickException(f"{_described(entity)} has no quota {key}; see: barnabas quota list")
        if not existing:
            raise click.ClickException(f"{_described(entity)} has no quotas; see: barnabas quota list")
        admin.alter_client_quotas(entity, dict.fromkeys(wanted or existing))
    for key in wanted or existing:
        click.echo(escaped(f"{_described(entity)}: removed {key}"))


def _known(key: str) -> str:
    if key not in QUOTAS:
        raise click.UsageError(f"unknown quota {key!r}; the quotas are {', '.join(QUOTAS)}")
    return key


def _described(entity: Mapping[str, str | None]) -> str:
    return ", ".join(f"default {kind}" if name is None else f"{kind} {name}" for kind, name in entity.items())
