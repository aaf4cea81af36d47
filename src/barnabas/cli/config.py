"""`barnabas config`: shows, sets and unsets the settings of topics, brokers and groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.connection import Connection
from barnabas.cli.error_messages import unknown_setting
from barnabas.cli.name_completion import complete_settings, complete_topics
from barnabas.cli.options import connect, connection_options, json_option, parse_pairs, require_topics
from barnabas.cli.table_output import Row, show_json, show_table

if TYPE_CHECKING:
    from barnabas import Admin, ConfigSetting

ALL_BROKERS = "all"
"""The value that selects all brokers instead of a broker id."""

_kind = click.argument("kind", type=click.Choice(["topic", "broker", "group"]))
_name = click.argument("name", shell_complete=complete_topics)


@click.group()
def config() -> None:
    """Show, set and unset the settings of topics, brokers and groups."""


@config.command()
@_kind
@_name
@click.argument("settings", nargs=-1, metavar="[SETTING...]", shell_complete=complete_settings)
@click.option("--changed", is_flag=True, help="Show only settings that differ from their defaults.")
@json_option
@connection_options
def show(kind: str, name: str, settings: tuple[str, ...], changed: bool, as_json: bool, connection: Connection) -> None:
    """Show settings with their values, sources and documentation.

    \b
    barnabas config show topic clicks
    barnabas config show broker 0 --changed
    barnabas config show broker all            settings changed for all brokers
    """
    with connect(connection) as admin:
        found = admin.describe_config(**_resource(admin, kind, name))
    for setting in settings:
        if setting not in found:
            raise unknown_setting(setting, found, kind, name)
    chosen = [found[setting] for setting in settings] if settings else list(found.values())
    chosen = [each for each in chosen if not (changed and each.is_default)]
    if as_json:
        show_json([_as_json(each) for each in chosen])
    elif chosen:
        rows: list[Row] = [[each.name, _value(each), each.source.label, each.documentation] for each in chosen]
        show_table(["setting", "value", "source", "documentation"], rows)
    elif name == ALL_BROKERS and kind == "broker":
        click.echo(
            "no setting is changed for all brokers; for one broker see: barnabas config show broker ID", err=True
        )
    else:
        click.echo("all settings have their defaults", err=True)


def _resource(admin: Admin, kind: str, name: str) -> dict[str, Any]:
    """Return the `Admin` arguments that name the resource; check that a topic or broker exists.

    A group may have settings before it exists.
    """
    if kind == "group":
        return {"group": name}
    if kind == "topic":
        require_topics(admin, [name])
        return {"topic": name}
    ids = [node.id for node in admin.brokers()]
    if name == ALL_BROKERS:
        return {"all_brokers": True}
    if not (name.isascii() and name.isdigit() and int(name) in ids):
        known = ", ".join(map(str, ids)) or "none"
        raise click.ClickException(f"no broker {name!r}; the brokers are {known}; use `all` for all brokers")
    return {"broker": int(name)}


def _check_known(admin: Admin, resource: Mapping[str, Any], settings: Iterable[str], kind: str, name: str) -> None:
    if "all_brokers" in resource:
        return  # the broker checks the setting names when it applies the change
    known = admin.describe_config(**resource)
    for setting in settings:
        if setting not in known:
            raise unknown_setting(setting, known, kind, name)


def _value(setting: ConfigSetting) -> str | None:
    return "(not shown)" if setting.is_sensitive else setting.value


def _as_json(setting: ConfigSetting) -> dict[str, object]:
    return {
        "name": setting.name,
        "value": setting.value,
        "default": setting.default,
        "source": setting.source.label,
        "type": setting.type.name.lower(),
        "read_only": setting.is_read_only,
        "documentation": setting.documentation,
    }


@config.command(name="set")
@_kind
@_name
@click.argument("pairs", nargs=-1, required=True, metavar="SETTING=VALUE...")
@connection_options
def set_(kind: str, name: str, pairs: tuple[str, ...], connection: Connection) -> None:
    """Set settings, all or none of them.

    \b
    barnabas config set topic clicks retention.ms=86400000 retention.bytes=-1
    barnabas config set broker all log.retention.ms=86400000
    """
    to_set = parse_pairs(pairs)
    with connect(connection) as admin:
        resource = _resource(admin, kind, name)
        _check_known(admin, resource, to_set, kind, name)
        admin.alter_config(**resource, to_set=to_set)
    for setting, value in to_set.items():
        click.echo(f"{kind} {name}: {setting} = {value}")


@config.command()
@_kind
@_name
@click.argument("settings", nargs=-1, required=True, metavar="SETTING...", shell_complete=complete_settings)
@connection_options
def unset(kind: str, name: str, settings: tuple[str, ...], connection: Connection) -> None:
    """Reset settings to their defaults."""
    with connect(connection) as admin:
        resource = _resource(admin, kind, name)
        _check_known(admin, resource, settings, kind, name)
        admin.alter_config(**resource, to_unset=settings)
        found = admin.describe_config(**resource)
    for setting in settings:
        now = f"= {_value(found[setting])} ({found[setting].source.label})" if setting in found else "is unset"
        click.echo(f"{kind} {name}: {setting} {now}")
