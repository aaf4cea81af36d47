"""`barnabas registry`: runs a schema registry in the foreground."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from barnabas.cli.connection import Connection
from barnabas.cli.log_output import log_format_option, log_to_stderr
from barnabas.cli.options import connection_options, http_option
from barnabas.extras import require_installed

if TYPE_CHECKING:
    from barnabas.log_lines import LogFormat

NEEDED = ("uvicorn", "httptools", "starlette", "avro", "jsonschema", "google")


@click.command()
@click.option("--host", metavar="HOST", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8081, show_default=True, help="Port; 0: a free port.")
@click.option("--url", metavar="URL", help="URL to print after `ready`.  [default: http://HOST:PORT]")
@click.option("--topic", metavar="TOPIC", default="_schemas", show_default=True, help="Topic that stores the schemas.")
@click.option(
    "--group",
    metavar="GROUP",
    hidden=True,
    expose_value=False,
    help="No effect.",
)
@http_option
@log_format_option
@connection_options
def registry(
    host: str,
    port: int,
    url: str | None,
    topic: str,
    http: str | None,
    log_format: LogFormat,
    connection: Connection,
) -> int:
    """Start a schema registry in the foreground, with Confluent's REST interface.

    Print `ready URL` once it serves. Ctrl-C, SIGTERM or SIGHUP stops it. Several registries may use one topic; each
    registry answers all requests.
    """
    for package in NEEDED:
        require_installed(package, "registry")

    from barnabas.registry.main import RegistryConfig, run

    with log_to_stderr(log_format):
        return run(RegistryConfig(connection.bootstrap, host, port, url, topic, connection.properties), http)
