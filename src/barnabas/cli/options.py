"""Options that several subcommands share, and helpers to connect to a cluster."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from barnabas.cli.connection import DEFAULT_BOOTSTRAP, Connection
from barnabas.cli.error_messages import unknown_topic
from barnabas.errors import RetriableError
from barnabas.model import TopicPartition

if TYPE_CHECKING:
    from barnabas import Admin
    from barnabas.client.admin.topics import TopicDescription

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

CONNECT_TIMEOUT_MS = 3_000
REGISTRY_PREFIX = "schema.registry."
"""The prefix of the settings of the schema registry in profiles and `-X`."""


def connection_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--bootstrap`, `--profile` and `-X`; the command gets their values as the argument `connection`."""

    @functools.wraps(function)
    def connected(bootstrap: str | None, profile: str | None, properties: dict[str, str], **others: Any) -> Any:
        return function(connection=connection_of(click.get_current_context()), **others)

    return _options("")(connected)


def global_connection_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the connection options before the subcommand; all subcommands that have these options use their values."""

    @functools.wraps(function)
    def without_options(bootstrap: str | None, profile: str | None, properties: dict[str, str]) -> Any:
        return function()

    return _options("; also accepted after the subcommand")(without_options)


def client_properties_option(function: Decorated) -> Decorated:
    """Add `-X NAME=VALUE` for any client setting, with Kafka's name."""
    return click.option(
        "-X",
        "properties",
        metavar="NAME=VALUE",
        multiple=True,
        callback=lambda _context, _option, pairs: _client_properties(pairs),
        help="Client setting by Kafka's name, for example -X linger.ms=50; schema.registry.NAME for the registry.",
    )(function)


def _options(where: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in (
            client_properties_option,
            click.option("--profile", metavar="NAME", help=f"Profile with the client settings{where}."),
            click.option(
                "-b",
                "--bootstrap",
                metavar="HOST:PORT[,...]",
                help=f"Address of a broker{where}.  [env var: BARNABAS_BOOTSTRAP; default: {DEFAULT_BOOTSTRAP}]",
            ),
        ):
            function = option(function)
        return function

    return add


def connection_of(context: click.Context) -> Connection:
    """Return the connection that the options of a command describe.

    The options after the subcommand precede those before the subcommand, which precede the profile. The profile
    precedes BARNABAS_BOOTSTRAP.

    :raises ConfigurationError: the profile does not exist or is malformed.
    """
    here, before = context.params, context.find_root().params
    return named_connection(
        here.get("profile") or before.get("profile") or os.environ.get("BARNABAS_PROFILE") or None,
        here.get("bootstrap") or before.get("bootstrap"),
        {**(before.get("properties") or {}), **(here.get("properties") or {})},
    )


def named_connection(profile: str | None, bootstrap: str | None, properties: Mapping[str, str]) -> Connection:
    """Return the connection for a profile, whose settings `bootstrap` and `properties` override.

    :raises ConfigurationError: the profile does not exist or is malformed.
    """
    settings: dict[str, str] = {}
    if profile is not None:
        from barnabas.cli.profiles import read_profile

        settings = read_profile(profile, os.environ)
    settings.update(properties)
    of_settings = settings.pop("bootstrap.servers", None)
    address = bootstrap or of_settings or os.environ.get("BARNABAS_BOOTSTRAP") or DEFAULT_BOOTSTRAP
    of_registry = {name: settings.pop(name) for name in list(settings) if name.startswith(REGISTRY_PREFIX)}
    registry = {name.removeprefix(REGISTRY_PREFIX): value for name, value in of_registry.items()}
    return Connection(address, settings, registry)


def _client_properties(pairs: Iterable[str]) -> dict[str, str]:
    """Return the settings of `-X`, by Kafka's names.

    :raises click.BadParameter: a text is not NAME=VALUE, or contains a secret, which other users could see.
    """
    given = {name.replace("_", "."): value for name, value in parse_pairs(pairs).items()}
    if given:
        from barnabas.client.config import contains_secret

        for name, value in given.items():
            if contains_secret(name, value):
                raise click.BadParameter(
                    f"other users of this machine can see {name} in the list of processes; name its source:"
                    f" -X '{name}=${{file:PATH}}', or ${{env:NAME}}, or ${{command:PROGRAM}}; or use a profile"
                )
    return given


def check_registry_url(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Return the URL of a registry.

    :raises click.BadParameter: it contains a password, which other users could see in the list of processes.
    """
    from click.core import ParameterSource

    is_visible = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
    if value is not None and "@" in value and is_visible:
        raise click.BadParameter(
            "other users of this machine can see a password in the list of processes; give it with -X"
            " schema.registry.username=NAME -X 'schema.registry.password=${file:PATH}', or with a profile",
            param=option,
        )
    return value


def json_option(function: Decorated) -> Decorated:
    """Add `--json` for machine-readable output."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")(function)


def broker_properties_option(function: Decorated) -> Decorated:
    """Add `-X NAME=VALUE` for any broker setting, with Kafka's name."""
    return click.option(
        "-X",
        "properties",
        metavar="NAME=VALUE",
        multiple=True,
        callback=lambda _context, _option, pairs: parse_pairs(pairs),
        help="Broker setting by Kafka's name, for example -X num.partitions=6.",
    )(function)


def allow_anonymous_option(function: Decorated) -> Decorated:
    """Add `--allow-anonymous`, which permits listeners without authentication that other machines can reach."""
    return click.option(
        "--allow-anonymous",
        is_flag=True,
        help="Let other machines connect without authentication; otherwise such a listener is an error.",
    )(function)


def yes_option(function: Decorated) -> Decorated:
    """Add `-y`, which skips the confirmation."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask; required without a terminal.")(function)


def confirm(question: str, *, yes: bool, otherwise: str = "nothing was deleted") -> None:
    """Ask the user for confirmation unless `yes` is true.

    :param otherwise: the error message if the user declines.
    :raises click.ClickException: the user declines.
    :raises click.UsageError: standard input is not a terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Standard input is not a terminal; confirm with -y")
    if not click.confirm(question, prompt_suffix=" ", err=True):
        raise click.ClickException(otherwise)


def is_of_pipeline(topic: str) -> bool:
    """Return whether a topic stores state of the pipeline, such as the ledger of a mirror."""
    return topic.startswith(("__", "_audit", "_schemas", "_mirror"))


def confirm_by_name(topic: str) -> None:
    """Before a topic with pipeline state is deleted, ask the user to type its name.

    :raises click.ClickException: the user types another name.
    :raises click.UsageError: standard input is not a terminal.
    """
    question = f"{topic} has state of the pipeline (groups, schemas, audits or mirrors)."
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Delete it with --force")
    typed = click.prompt(f"{question} Type its name to delete it", prompt_suffix=": ", err=True)
    if typed != topic:
        raise click.ClickException("nothing was deleted")


def quiet_option(function: Decorated) -> Decorated:
    """Add `-q`, which suppresses all output on standard error except errors."""
    return click.option("-q", "--quiet", is_flag=True, help="Print only errors on standard error.")(function)


def parse_pairs(pairs: Iterable[str]) -> dict[str, str]:
    """Return NAME=VALUE texts as a dict.

    :raises click.BadParameter: a text has no `=` or no name.

    >>> parse_pairs(["retention.ms=60000"])
    {'retention.ms': '60000'}
    """
    parsed = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE")
        parsed[name] = value
    return parsed


class NoBrokerError(click.ClickException):
    """No broker responds at the addresses of the connection."""


def connect(connection: Connection, *, quiet: bool = False, timeout_ms: int | None = None) -> Admin:
    """Return an `Admin` for the cluster; the caller closes it.

    :param quiet: hide warnings of the client.
    :param timeout_ms: timeout of each call in ms; None for the client's default.
    :raises NoBrokerError: no broker responds within CONNECT_TIMEOUT_MS. Only the connection has this short
    timeout. Later calls use `timeout_ms`, because a known broker may come back.
    """
    import logging

    from barnabas import Admin

    logging.basicConfig(format="barnabas: %(message)s", level=logging.ERROR)
    settings = connection.admin_settings
    with Admin(settings, default_api_timeout_ms=CONNECT_TIMEOUT_MS) as probe:
        try:
            probe.brokers()
        except RetriableError as error:
            reason = f" ({error.reason[:1].lower()}{error.reason[1:]})" if error.reason else ""
            raise NoBrokerError(
                f"no broker responds at {connection.bootstrap}{reason}; start one with: barnabas up, or give its"
                " address with -b"
            ) from error
    if not quiet:
        logging.getLogger().setLevel(logging.WARNING)
    return Admin(settings) if timeout_ms is None else Admin(settings, default_api_timeout_ms=timeout_ms)


def require_topics(admin: Admin, names: Iterable[str]) -> None:
    """Check that the topics exist.

    :raises click.ClickException: a topic does not exist; the message suggests similar names.
    :raises ApiError: the user may not describe a topic, so lists leave it out.
    """
    from barnabas.client.admin.topics import check_visible

    known = admin.list_topics(include_internal=True)
    for name in names:
        if name not in known:
            check_visible(admin, [name])
            raise unknown_topic(name, known)


def existing_partitions(admin: Admin, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions that still exist; a group may still have partitions of a deleted topic."""
    wanted = set(partitions)
    there = _partitions(admin.describe_topics(include_internal=True))
    return sorted(wanted.intersection(there))


def partitions_of(admin: Admin, topics: Iterable[str]) -> list[TopicPartition]:
    """Return all partitions of existing topics."""
    names = sorted(topics)
    if not names:
        return []
    return _partitions(admin.describe_topics(names))


def _partitions(topics: Iterable[TopicDescription]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, each.partition) for topic in topics for each in topic.partitions]
