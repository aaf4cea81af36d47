"""Options that several subcommands share, and helpers to connect to a cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from barnabas.addresses import split_listener
from barnabas.cli.error_messages import unknown_topic
from barnabas.errors import RetriableError
from barnabas.model import TopicPartition

if TYPE_CHECKING:
    from barnabas import Admin
    from barnabas.client.admin.topics import TopicDescription

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

DEFAULT_BOOTSTRAP = "localhost:9092"
GLOBAL_BOOTSTRAP = "barnabas.bootstrap"
"""The key in click's context for the value of `--bootstrap` before the subcommand."""
CONNECT_TIMEOUT_MS = 3_000


def bootstrap_option(function: Decorated) -> Decorated:
    """Add `--bootstrap`; the default is the option before the subcommand, or BARNABAS_BOOTSTRAP."""
    return click.option(
        "-b",
        "--bootstrap",
        metavar="HOST:PORT[,...]",
        envvar="BARNABAS_BOOTSTRAP",
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        show_envvar=True,
        callback=_bootstrap,
        help="Address of a broker.",
    )(function)


def _bootstrap(context: click.Context, option: click.Parameter, value: str) -> str:
    """Return the value of `--bootstrap`. The option after the subcommand precedes the option before the subcommand,
    which precedes the environment variable."""
    said_here = option.name and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
    said_before: str | None = context.meta.get(GLOBAL_BOOTSTRAP)
    return value if said_here or said_before is None else said_before


def global_bootstrap_option(function: Decorated) -> Decorated:
    """Add `--bootstrap` before the subcommand; all subcommands that have the option use its value."""

    def remember(context: click.Context, _option: click.Parameter, value: str | None) -> None:
        context.meta[GLOBAL_BOOTSTRAP] = value

    return click.option(
        "-b",
        "--bootstrap",
        metavar="HOST:PORT[,...]",
        expose_value=False,
        callback=remember,
        help="Address of a broker; also accepted after the subcommand.",
    )(function)


def json_option(function: Decorated) -> Decorated:
    """Add `--json` for machine-readable output."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")(function)


def properties_option(function: Decorated) -> Decorated:
    """Add `-X NAME=VALUE` for any client setting, with Kafka's name."""
    return click.option(
        "-X",
        "properties",
        metavar="NAME=VALUE",
        multiple=True,
        callback=lambda _context, _option, pairs: parse_pairs(pairs),
        help="Client setting by Kafka's name, for example -X linger.ms=50.",
    )(function)


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


def http_option(function: Decorated) -> Decorated:
    """Add `--http`, the address that serves metrics and health checks."""
    return click.option(
        "--http",
        metavar="[HOST:]PORT",
        callback=_http_address,
        help="Serve /metrics for Prometheus, /healthz and /readyz at this address; without HOST, only on loopback."
        "  [default: off]",
    )(function)


def http_and_metrics_port_options(function: Decorated) -> Decorated:
    """Add `--http` and its deprecated name `--metrics-port` from releases up to 0.1."""
    return http_option(
        click.option(
            "--metrics-port", metavar="PORT", type=click.IntRange(0, 65535), help="Deprecated; use --http PORT."
        )(function)
    )


def http_address(http: str | None, metrics_port: int | None) -> str | None:
    """Return the address from `--http` or `--metrics-port`.

    :raises click.UsageError: both options are given.
    """
    if http is not None and metrics_port is not None:
        raise click.UsageError("--metrics-port is the former name of --http; give only --http")
    return str(metrics_port) if metrics_port is not None else http


def _http_address(_context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        try:
            split_listener(value)
        except ValueError as error:
            raise click.BadParameter(str(error), param=option) from None
    return value


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


def settings(bootstrap: str, properties: Mapping[str, str]) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap, **properties}


def connect(bootstrap: str, *, quiet: bool = False, timeout_ms: int | None = None) -> Admin:
    """Return an `Admin` for the cluster; the caller closes it.

    :param quiet: hide warnings of the client.
    :param timeout_ms: timeout of each call in ms; None for the client's default.
    :raises click.ClickException: no broker responds within CONNECT_TIMEOUT_MS. Only the connection has this short
    timeout. Later calls use `timeout_ms`, because a known broker may come back.
    """
    import logging

    from barnabas import Admin

    logging.basicConfig(format="barnabas: %(message)s", level=logging.ERROR)
    with Admin(bootstrap, default_api_timeout_ms=CONNECT_TIMEOUT_MS) as probe:
        try:
            probe.brokers()
        except RetriableError as error:
            reason = f" ({error.reason[:1].lower()}{error.reason[1:]})" if error.reason else ""
            raise click.ClickException(
                f"no broker responds at {bootstrap}{reason}; start one with: barnabas up, or give its address with -b"
            ) from error
    if not quiet:
        logging.getLogger().setLevel(logging.WARNING)
    return Admin(bootstrap) if timeout_ms is None else Admin(bootstrap, default_api_timeout_ms=timeout_ms)


def require_topics(admin: Admin, names: Iterable[str]) -> None:
    """Check that the topics exist.

    :raises click.ClickException: a topic does not exist; the message suggests similar names.
    """
    known = admin.list_topics(include_internal=True)
    for name in names:
        if name not in known:
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
