"""`barnabas acl`: allows and denies operations, lists and removes the rules, and explains decisions."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from barnabas.cli.acl_words import (
    CONSUMER,
    PRODUCER,
    bindings_of,
    checked_operation,
    exact_filter,
    filters_of,
    name_of,
    parse_entries,
    parse_host,
    parse_operations,
    parse_principal,
    parse_resource,
    parse_selection,
    resource_text,
)
from barnabas.cli.connection import Connection
from barnabas.cli.name_completion import complete_acl_words
from barnabas.cli.options import confirm, connect, connection_options, json_option, yes_option
from barnabas.cli.table_output import Row, show_json, show_table
from barnabas.cli.terminal_text import escaped
from barnabas.security.acls import (
    EVERYONE,
    WILDCARD,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    acl_as_fields,
)
from barnabas.security.authorizer import SUPER_USERS, Acls, Authorizer, Decision, authorizer_of_broker
from barnabas.security.principal import Principal

if TYPE_CHECKING:
    from barnabas import Admin

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


@click.group()
def acl() -> None:
    """Allow and deny operations of users on topics, groups and other resources.

    \b
    RESOURCE   topic:NAME, topic:PREFIX*, topic:* for all; group:, subject:, transactional-id: likewise; cluster
    OPERATION  read, write, create, delete, alter, describe, describe-configs, alter-configs, all ...
    PRINCIPAL  User:NAME; User:* for all users

    READ, WRITE, DELETE and ALTER include DESCRIBE. A rule that denies precedes all rules that allow.
    """


def _host_option(function: Decorated) -> Decorated:
    return click.option(
        "--host",
        "hosts",
        metavar="ADDRESS",
        multiple=True,
        help="Address, or network such as 10.0.0.0/8, from which the client connects; repeatable.  [default: all]",
    )(function)


def _words_argument(metavar: str, *, required: bool = True) -> Callable[[Decorated], Decorated]:
    return click.argument("words", nargs=-1, required=required, metavar=metavar, shell_complete=complete_acl_words)


@acl.command()
@click.argument("principal")
@_words_argument("[OPERATION,...] RESOURCE...")
@click.option("--producer", is_flag=True, help="A producer's operations: write, describe and create on the topics.")
@click.option("--consumer", "group", metavar="GROUP", help="A consumer's operations: read on the topics and on GROUP.")
@_host_option
@connection_options
def allow(
    principal: str,
    words: tuple[str, ...],
    producer: bool,
    group: str | None,
    hosts: tuple[str, ...],
    connection: Connection,
) -> None:
    """Allow operations to PRINCIPAL. The rules are in force at all brokers within a second.

    \b
    barnabas acl allow User:alice read topic:clicks group:ctr
    barnabas acl allow User:alice write,describe topic:'logs-*' --host 10.0.0.0/8
    barnabas acl allow User:alice topic:clicks --producer
    barnabas acl allow User:alice topic:clicks --consumer ctr
    barnabas acl allow User:alice read,write subject:clicks-value
    barnabas acl allow User:monitor describe cluster
    """
    who, (operations, resources), where = parse_principal(principal), parse_entries(words), _hosts(hosts)
    bindings = bindings_of(who, operations, resources, where, Permission.ALLOW)
    if producer or group is not None:
        bindings += _of_clients(who, resources, where, producer=producer, group=group)
    _create(bindings, connection)


def _of_clients(
    principal: str, resources: list[ResourcePattern], hosts: tuple[str, ...], *, producer: bool, group: str | None
) -> list[AclBinding]:
    topics = [each for each in resources if each.type is ResourceType.TOPIC]
    if not topics:
        raise click.UsageError("--producer and --consumer need a topic: topic:NAME")
    found = []
    if producer:
        found += bindings_of(principal, PRODUCER, topics, hosts, Permission.ALLOW)
    if group is not None:
        of_group = [parse_resource(f"group:{group}")]
        found += bindings_of(principal, CONSUMER, topics, hosts, Permission.ALLOW)
        found += bindings_of(principal, (Operation.READ,), of_group, hosts, Permission.ALLOW)
    return found


@acl.command()
@click.argument("principal")
@_words_argument("OPERATION[,...] RESOURCE...")
@_host_option
@connection_options
def deny(principal: str, words: tuple[str, ...], hosts: tuple[str, ...], connection: Connection) -> None:
    """Deny operations to PRINCIPAL, even if other rules allow them. Nobody can deny operations to super users.

    \b
    barnabas acl deny User:bob all topic:salaries
    barnabas acl deny 'User:*' write topic:clicks --host 192.168.0.0/16
    """
    operations, resources = parse_entries(words)
    bindings = bindings_of(parse_principal(principal), operations, resources, _hosts(hosts), Permission.DENY)
    _create(bindings, connection)


def _create(bindings: list[AclBinding], connection: Connection) -> None:
    unique = list(dict.fromkeys(bindings))
    if not unique:
        raise click.UsageError("name an operation and a resource, such as: read topic:clicks")
    with connect(connection) as admin:
        admin.create_acls(unique)
    for each in unique:
        click.echo(escaped(_line(each)))


def _line(binding: AclBinding) -> str:
    pattern, entry = binding
    origin = "" if entry.host == WILDCARD else f" from {entry.host}"
    effect = {Permission.ALLOW: "may", Permission.DENY: "may not"}.get(entry.permission, "?")
    return f"{entry.principal} {effect} {name_of(entry.operation)} {resource_text(pattern)}{origin}"


def _permission_option(function: Decorated) -> Decorated:
    return click.option(
        "--permission", type=click.Choice(["allow", "deny"]), help="Only the rules that allow, or that deny."
    )(function)


@acl.command(name="list")
@_words_argument("[PRINCIPAL] [OPERATION,...] [RESOURCE...]", required=False)
@_host_option
@_permission_option
@json_option
@connection_options
def list_(
    words: tuple[str, ...], hosts: tuple[str, ...], permission: str | None, as_json: bool, connection: Connection
) -> None:
    """List rules: all, or those of a principal, an operation or a resource.

    A resource with a full name lists all rules that concern it: by its name, by prefixes and by `*`.

    \b
    barnabas acl list
    barnabas acl list User:alice
    barnabas acl list topic:clicks
    barnabas acl list write topic
    """
    filters = filters_of(parse_selection(words), _hosts(hosts), _permission(permission), matching=True)
    with connect(connection) as admin:
        found = _find(admin, filters)
    if as_json:
        show_json([acl_as_fields(each) for each in found])
        return
    if not found:
        none = "no rules" if not (words or hosts or permission) else "no such rules"
        click.echo(f"{none}; create one with: barnabas acl allow User:NAME read topic:NAME", err=True)
        return
    _show(found)


def _show(found: Iterable[AclBinding]) -> None:
    rows: list[Row] = [
        [
            each.entry.principal,
            name_of(each.entry.permission),
            name_of(each.entry.operation),
            resource_text(each.pattern),
            each.entry.host,
        ]
        for each in found
    ]
    show_table(["principal", "permission", "operation", "resource", "host"], rows)


@acl.command()
@_words_argument("[PRINCIPAL] [OPERATION,...] [RESOURCE...]")
@_host_option
@_permission_option
@yes_option
@connection_options
def remove(
    words: tuple[str, ...], hosts: tuple[str, ...], permission: str | None, yes: bool, connection: Connection
) -> None:
    """Remove the rules of a principal, an operation or a resource, after confirmation.

    A resource removes the rules with this name or prefix only. The type of a resource stands for all its resources.

    \b
    barnabas acl remove User:alice read topic:clicks
    barnabas acl remove User:alice
    barnabas acl remove topic:'logs-*' --permission deny
    """
    filters = filters_of(parse_selection(words), _hosts(hosts), _permission(permission), matching=False)
    with connect(connection) as admin:
        found = _find(admin, filters)
        if not found:
            raise click.ClickException("no such rules; see: barnabas acl list")
        _show(found)
        confirm(f"Remove {len(found)} rule{'s' * (len(found) > 1)}?", yes=yes, otherwise="nothing was removed")
        removed = sum(map(len, admin.delete_acls([exact_filter(each) for each in found]).values()))
    click.echo(f"removed {removed} rule{'s' * (removed != 1)}", err=True)


def _find(admin: Admin, filters: Iterable[AclFilter]) -> list[AclBinding]:
    return sorted({each for acl_filter in filters for each in admin.describe_acls(acl_filter)})


@acl.command()
@click.argument("principal")
@click.argument("operation", shell_complete=complete_acl_words)
@click.argument("resource", shell_complete=complete_acl_words)
@click.option("--host", metavar="ADDRESS", help="Address of the client. Without it, rules for addresses do not count.")
@json_option
@connection_options
def why(principal: str, operation: str, resource: str, host: str | None, as_json: bool, connection: Connection) -> None:
    """Explain the decision about PRINCIPAL, OPERATION and RESOURCE: name the rule that allows or denies it.

    \b
    barnabas acl why User:alice read topic:clicks
    barnabas acl why User:alice read topic:clicks --host 10.1.2.3
    """
    client = Principal.parse(parse_principal(principal))
    [wanted, *others] = parse_operations(operation)
    pattern = parse_resource(resource)
    if others or pattern.pattern_type is not PatternType.LITERAL or pattern.name == WILDCARD:
        raise click.UsageError("why explains one operation on one resource, such as: read topic:clicks")
    if host is not None and "/" in parse_host(host):
        raise click.UsageError(f"{host} is a network; give one address")
    checked_operation(wanted, pattern.type)
    with connect(connection) as admin:
        acls = Acls(_find(admin, (AclFilter(), AclFilter(ResourceType.SUBJECT))))
        authorizer = _authorizer(admin, acls, pattern.type)
    decision = authorizer.decide(client, host or WILDCARD, wanted, pattern.type, pattern.name)
    left_out = [] if host else _rules_for_addresses(acls, client, wanted, pattern)
    if as_json:
        show_json(
            {
                "allowed": decision.is_allowed,
                "reason": decision.reason,
                "rule": None if decision.rule is None else acl_as_fields(decision.rule),
                "rules_for_addresses": [acl_as_fields(each) for each in left_out],
            }
        )
        return
    click.echo(escaped(explanation(decision, client, wanted, pattern)))
    if left_out:
        click.echo("other decisions are possible for some addresses; give one with --host:", err=True)
        for each in left_out:
            click.echo(escaped(f"  {_line(each)}"), err=True)


def explanation(decision: Decision, client: Principal, operation: Operation, pattern: ResourcePattern) -> str:
    """Return a decision in words, with the next step if it is a refusal without a rule."""
    reason = decision.reason if decision.rule is None else f"rule: {_line(decision.rule)}"
    if decision.is_allowed:
        return f"allowed: {reason}"
    if decision.rule is not None:
        return f"denied: {reason}"
    return f"denied: {reason}; allow it with: {allow_command(str(client), operation, pattern.type, pattern.name)}"


def allow_command(principal: str, operation: Operation, kind: ResourceType, name: str) -> str:
    """Return the command that allows an operation.

    >>> allow_command("User:alice", Operation.READ, ResourceType.TOPIC, "clicks")
    'barnabas acl allow User:alice read topic:clicks'
    """
    words = (principal, name_of(operation), resource_text(ResourcePattern(kind, name)))
    return f"barnabas acl allow {shlex.join(words)}"


def _authorizer(admin: Admin, acls: Acls, kind: ResourceType) -> Authorizer:
    """Return an authorizer with the settings of a broker. Registries do not use these settings for subjects."""
    if kind is ResourceType.SUBJECT:
        return authorizer_of_broker(acls, kind, {})
    settings = admin.describe_config(broker=admin.brokers()[0].id)
    given = {name: setting.value for name, setting in settings.items()}
    if SUPER_USERS not in given:  # Kafka's brokers describe only the settings that they know without an authorizer
        click.echo(f"the broker does not show {SUPER_USERS}; a super user may do everything", err=True)
    return authorizer_of_broker(acls, kind, given)


def _rules_for_addresses(
    acls: Acls, client: Principal, operation: Operation, pattern: ResourcePattern
) -> list[AclBinding]:
    """Return the rules that decide for some addresses only."""
    return [
        each
        for each in acls.concerning(pattern.type, pattern.name)
        if each.entry.host != WILDCARD
        and each.entry.principal in (str(client), EVERYONE)
        and _decides(each, client, operation, pattern)
    ]


def _decides(rule: AclBinding, client: Principal, operation: Operation, pattern: ResourcePattern) -> bool:
    everywhere = AclBinding(rule.pattern, rule.entry._replace(host=WILDCARD))
    decision = Authorizer(Acls([everywhere])).decide(client, WILDCARD, operation, pattern.type, pattern.name)
    return decision.rule is not None


def _hosts(given: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(parse_host(each) for each in given)


def _permission(name: str | None) -> Permission:
    return Permission.ANY if name is None else Permission[name.upper()]
