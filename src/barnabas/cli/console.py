"""`barnabas console`: web pages about a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from barnabas.cli.connection import Connection
from barnabas.cli.log_output import log_format_option, log_to_stderr
from barnabas.cli.options import allow_anonymous_option, check_registry_url, connection_options, named_connection
from barnabas.cli.warehouse_options import maybe_place_options
from barnabas.extras import require_installed
from barnabas.security.http_settings import HttpSecurity

if TYPE_CHECKING:
    from barnabas.log_lines import LogFormat
    from barnabas.spark.table_place import TablePlace
    from barnabas.spark.topic_tables import TopicTables

NEEDED = ("uvicorn", "httptools", "starlette", "jinja2", "python_multipart")


@click.command()
@click.option("--host", metavar="HOST", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8082, show_default=True, help="Port; 0: a free port.")
@click.option(
    "--registry",
    metavar="URL",
    envvar="BARNABAS_REGISTRY",
    show_envvar=True,
    callback=check_registry_url,
    help="URL of a schema registry.  [default: from the profile]",
)
@maybe_place_options
@click.option(
    "--source",
    metavar="HOST:PORT[,...]",
    help="Also compare mirrored topics with this cluster, from which they are mirrored.",
)
@click.option("--source-profile", metavar="NAME", help="Profile with the client settings for that cluster.")
@click.option("--allow-changes", is_flag=True, help="Allow pages that change the cluster, such as a reset of offsets.")
@click.option(
    "--allowed-host",
    metavar="NAME[:PORT]",
    multiple=True,
    help="A further name under which browsers reach the console, for example behind a proxy. Repeatable.",
)
@click.option("--http-certfile", metavar="FILE", help="PEM file with the certificate chain for HTTPS.")
@click.option("--http-keyfile", metavar="FILE", help="PEM file with the private key.  [default: in --http-certfile]")
@allow_anonymous_option
@log_format_option
@connection_options
def console(
    host: str,
    port: int,
    registry: str | None,
    place: TablePlace | None,
    source: str | None,
    source_profile: str | None,
    allow_changes: bool,
    allowed_host: tuple[str, ...],
    http_certfile: str | None,
    http_keyfile: str | None,
    allow_anonymous: bool,
    log_format: LogFormat,
    connection: Connection,
) -> int:
    """Show web pages about a cluster: topics, groups and brokers.

    Print `ready URL` once it serves. The cluster may be one of Barnabas or of Apache Kafka. With SASL, users sign in
    with their own names and passwords, and see what they may see. With --warehouse, the pages of completeness compare
    the logs of topics with their tables; with --source, mirrored topics with their origin. Ctrl-C, SIGTERM or SIGHUP
    stops the console.
    """
    for package in NEEDED:
        require_installed(package, "console")

    from barnabas.console.config import ConsoleConfig
    from barnabas.console.main import run

    settings = {name: str(value) for name, value in connection.properties.items()}
    signs_in = settings.get("security.protocol", "").upper().startswith("SASL")
    security = HttpSecurity(
        certfile=http_certfile, keyfile=http_keyfile, users=signs_in, allow_anonymous=allow_anonymous
    )
    origin = None
    if source is not None or source_profile is not None:
        origin = named_connection(source_profile, source, {})
    with log_to_stderr(log_format):
        config = ConsoleConfig(
            connection.bootstrap,
            host,
            port,
            settings,
            allow_changes,
            security,
            allowed_host,
            registry or connection.registry.get("url"),
            connection.registry_options,
            None if place is None else _tables(place),
            None if origin is None else origin.admin_settings,
        )
        return run(config)


def _tables(place: TablePlace) -> TopicTables:
    from barnabas.cli.without_pandas import hide_pandas
    from barnabas.console.memory import use_little_memory
    from barnabas.spark.topic_tables import TopicTables

    use_little_memory()
    hide_pandas()
    return TopicTables(place)
