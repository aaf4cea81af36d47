"""`barnabas registry`: runs a schema registry in the foreground."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from barnabas.cli.connection import Connection
from barnabas.cli.http_options import address_option, http_security_options, login_settings
from barnabas.cli.log_output import log_format_option, log_to_stderr
from barnabas.cli.options import connection_options
from barnabas.errors import ApiError
from barnabas.extras import require_installed

if TYPE_CHECKING:
    from barnabas.log_lines import LogFormat
    from barnabas.security.http_settings import HttpSecurity

NEEDED = ("uvicorn", "httptools", "starlette", "avro", "jsonschema", "google")


def _topic_name(_context: click.Context, option: click.Parameter, given: str) -> str:
    from barnabas.broker.topic_names import check_topic_name

    try:
        check_topic_name(given)
    except ApiError as error:
        raise click.BadParameter(error.message, param=option) from None
    return given


@click.command()
@click.option("--host", metavar="HOST", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8081, show_default=True, help="Port; 0: a free port.")
@click.option("--url", metavar="URL", help="URL to print after `ready`.  [default: from --host and --port]")
@click.option(
    "--topic",
    metavar="TOPIC",
    default="_schemas",
    show_default=True,
    callback=_topic_name,
    help="Topic that stores the schemas.",
)
@click.option(
    "--group",
    metavar="GROUP",
    hidden=True,
    expose_value=False,
    help="No effect.",
)
@address_option
@http_security_options
@click.option(
    "--http-cafile",
    metavar="FILE",
    help="PEM file with the CAs of client certificates, which then authenticate clients, too.",
)
@click.option(
    "--http-principal-mapping",
    metavar="RULES",
    default="DEFAULT",
    show_default=True,
    help="Rules that map client certificates to principals, as Kafka's ssl.principal.mapping.rules.",
)
@click.option("--super-users", metavar="PRINCIPAL;...", default="", help="Principals that may do everything.")
@click.option(
    "--subject-acls/--no-subject-acls",
    default=True,
    show_default=True,
    help="Check the ACLs on subjects, if the brokers have ACLs. Apache Kafka's brokers know no subjects.",
)
@log_format_option
@connection_options
def registry(
    host: str,
    port: int,
    url: str | None,
    topic: str,
    http: str | None,
    http_security: HttpSecurity,
    http_login_profile: str | None,
    http_principal_mapping: str,
    super_users: str,
    subject_acls: bool,
    log_format: LogFormat,
    connection: Connection,
) -> int:
    """Start a schema registry in the foreground, with Confluent's REST interface.

    Print `ready URL` once it serves. Ctrl-C, SIGTERM or SIGHUP stops it. Several registries may use one topic; each
    registry answers all requests. With --http-certfile, clients authenticate as users of the brokers; the certificate
    also serves the pages of --http.
    """
    for package in NEEDED:
        require_installed(package, "registry")

    from barnabas.registry.main import RegistryConfig, run

    with log_to_stderr(log_format):
        config = RegistryConfig(
            connection.bootstrap,
            host,
            port,
            url,
            topic,
            connection.properties,
            security=http_security,
            login_settings=None if http_login_profile is None else login_settings(http_login_profile, {}),
            mapping_rules=http_principal_mapping,
            super_users=super_users,
            checks_acls=subject_acls,
        )
        return run(config, http)
