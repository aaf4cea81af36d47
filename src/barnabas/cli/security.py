"""`barnabas security`: creates and renews the certificates and settings of a small secured installation."""

from __future__ import annotations

import datetime
import os
import secrets
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeVar

import click

from barnabas.cli.installation import (
    BROKER_SETTINGS,
    CA_CERTIFICATE,
    CA_KEY,
    DESCRIPTION,
    PROFILE,
    SERVER_CERTIFICATE,
    Choices,
    authority_of,
    client_certificate,
    parse_description,
    parse_hosts,
    plan,
    server_certificate,
)
from barnabas.cli.profiles import write_private_file
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import ConfigurationError
from barnabas.security.authority import CERTIFICATE_DAYS
from barnabas.security.nonces import new_salt

if TYPE_CHECKING:
    from barnabas.security.authority import Authority

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

PASSWORD_BYTES = 24
DAYS_MAX = 3_650
FILE_BYTES_MAX = 1024 * 1024
"""The maximum size of a file of an installation that a command reads."""
REFUSED_NODES_SHOWN = 3


@click.group()
def security() -> None:
    """Secure brokers: create a CA, certificates, broker settings and the first administrator."""


def _days_option(function: Decorated) -> Decorated:
    return click.option(
        "--days",
        type=click.IntRange(1, DAYS_MAX),
        default=CERTIFICATE_DAYS,
        show_default=True,
        metavar="N",
        help="Validity of the new certificates in days.",
    )(function)


@security.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--host",
    "hosts",
    metavar="NAME[,NAME...]",
    multiple=True,
    required=True,
    help="Host name or IP address of a broker, and further names of the same broker; repeat it for several brokers.",
)
@click.option("--port", type=click.IntRange(1, 65535), default=9092, show_default=True, help="Port for clients.")
@click.option(
    "--inter-broker-port",
    type=click.IntRange(1, 65535),
    default=9094,
    show_default=True,
    help="Port for other brokers.",
)
@click.option(
    "--zookeeper", metavar="HOST:PORT,.../PATH", help="ZooKeeper of the cluster; required for several brokers."
)
@click.option(
    "--installed-at",
    metavar="PATH",
    type=click.Path(path_type=PurePath),
    help="Directory of the files on the machines of the brokers.  [default: the created directories]",
)
@_days_option
def init(
    folder: Path,
    hosts: tuple[str, ...],
    port: int,
    inter_broker_port: int,
    zookeeper: str | None,
    installed_at: PurePath | None,
    days: int,
) -> None:
    """Create in DIR all files for brokers with TLS and SCRAM, and for their first administrator.

    With several --host options, DIR contains one directory for each broker. The brokers then authenticate each other
    with certificates. Only users with ACLs may use topics and groups; the administrator may do everything. The command
    never overwrites a file.

    \b
    barnabas security init secured --host localhost
    barnabas security init secured --host a --host b --host c --zookeeper z1:2181,z2:2181,z3:2181/barnabas \\
      --installed-at /etc/barnabas
    """
    brokers = parse_hosts(hosts)
    if len(brokers) > 1 and zookeeper is None:
        raise click.UsageError("several brokers need a ZooKeeper: --zookeeper HOST:PORT,.../PATH")
    if len(brokers) == 1 and zookeeper is not None:
        raise click.UsageError("--zookeeper is for several brokers; repeat --host")
    if installed_at is not None and not installed_at.is_absolute():
        raise click.UsageError(f"--installed-at {installed_at} must be an absolute path")
    folder = folder.absolute()
    if "}" in str(folder):
        raise click.UsageError(f"{folder} cannot contain }}")
    choices = Choices(port, inter_broker_port, zookeeper or "", installed_at, days)
    files = plan(folder, brokers, choices, _now(), secrets.token_urlsafe(PASSWORD_BYTES), new_salt)
    _write_new(folder, files)
    for each in brokers:
        where = f"on {each.hosts[0]}: " if len(brokers) > 1 else ""
        click.echo(f"{where}barnabas up --config {(installed_at or folder / each.folder) / BROKER_SETTINGS}")
    administrator = f"barnabas --profile {shlex.quote(str(folder / PROFILE))}"
    click.echo(f"{administrator} user create NAME")
    click.echo(f"{administrator} acl allow User:NAME read,write topic:TOPIC")


def _write_new(folder: Path, files: Mapping[str, str]) -> None:
    """Write the files into a new folder.

    :raises ConfigurationError: the folder contains files.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(f"{folder} exists and is not an empty directory; choose another one")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_private_file(path, text)


@security.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@_days_option
def renew(folder: Path, days: int) -> None:
    """Replace the certificates of all brokers of DIR by new ones of the same CA.

    A running broker reads a changed server.pem without a restart. Copy the file to the machine of each broker.
    """
    authority = _authority(folder)
    description = folder / DESCRIPTION
    for each in parse_description(_read(description), description):
        path = folder / each.folder / SERVER_CERTIFICATE
        write_private_file(path, server_certificate(authority, each, _now(), days), replace=True)
        click.echo(f"renewed {path}")


@security.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.argument("name", metavar="NAME")
@click.option("-o", "--output", metavar="FILE", type=click.Path(path_type=Path), required=True, help="File to create.")
@click.option(
    "--host",
    "hosts",
    metavar="NAME[,NAME...]",
    default="",
    help="Host names and IP addresses of a server with this certificate, such as a registry.",
)
@_days_option
def certificate(folder: Path, name: str, output: Path, hosts: str, days: int) -> None:
    """Create a client certificate with the principal `User:CN=NAME`, signed by the CA of DIR.

    A listener with ssl.client.auth=required accepts it. FILE contains the private key, too. With --host, servers can
    use the certificate, such as a registry or the pages of --http.
    """
    names = parse_hosts((hosts,))[0].hosts if hosts else ()
    text = client_certificate(_authority(folder), name, _now(), days, names)
    try:
        write_private_file(output, text)
    except FileExistsError:
        raise click.ClickException(f"{output} exists already; choose another file") from None
    click.echo(f"created {output}")


@security.command(name="zookeeper-acls")
@click.option(
    "--config",
    metavar="FILE",
    required=True,
    help="Settings of a broker, with zookeeper.connect and zookeeper.auth.",
)
@click.option("--dry-run", is_flag=True, help="Only show the number of nodes that would change.")
def zookeeper_acls(config: str, dry_run: bool) -> None:
    """Set the ACLs of all existing nodes of the brokers in ZooKeeper.

    Afterwards, only clients with the credentials of the brokers can change these nodes, or read nodes with secrets. New
    nodes get these ACLs when a broker creates them. The nodes of consumer groups belong to their consumers.

    \b
    barnabas security zookeeper-acls --config /etc/barnabas/broker.toml
    """
    from barnabas.broker.metadata_store_access import zookeeper_config
    from barnabas.broker.settings.loading import load_config
    from barnabas.coordination.zookeeper.acl_change import secure_nodes

    settings = load_config(config, None, os.environ)
    if not settings.zookeeper_connect:
        raise click.ClickException(f"{config} has no zookeeper.connect")
    session = zookeeper_config(settings)
    if not session.set_acl:
        raise click.ClickException(f"{config} has no zookeeper.auth, so it does not protect nodes; set it first")
    change = secure_nodes(session, dry_run=dry_run)
    click.echo(
        f"{'would set' if dry_run else 'set'} the ACLs of {len(change.secured)} nodes;"
        f" {change.unchanged} nodes had the right ACL already"
    )
    if change.exposed:
        click.echo(
            f"all clients of ZooKeeper could read {len(change.exposed)} nodes with secrets; change the passwords of all"
            " users",
            err=True,
        )
    if change.refused:
        shown = ", ".join(change.refused[:REFUSED_NODES_SHOWN])
        raise click.ClickException(
            f"{len(change.refused)} nodes belong to other credentials ({shown}); repeat the command with these"
            " credentials"
        )


def _authority(folder: Path) -> Authority:
    return authority_of(_read(folder / CA_CERTIFICATE), _read(folder / CA_KEY))


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise ConfigurationError(f"{path} does not exist; create it with: barnabas security init") from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigurationError(f"{path} has more than {FILE_BYTES_MAX} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not a text in UTF-8") from None


def _now() -> datetime.datetime:
    return datetime.datetime.fromtimestamp(SYSTEM_CLOCK.time_ms() / 1000, datetime.UTC)
