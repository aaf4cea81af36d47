"""`barnabas up`: runs one broker in the foreground."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from barnabas.cli.http_options import broker_http_option
from barnabas.cli.log_output import log_format_option, log_to_stderr
from barnabas.cli.options import allow_anonymous_option, broker_properties_option

if TYPE_CHECKING:
    from barnabas.broker.environment import Environment
    from barnabas.log_lines import LogFormat
    from barnabas.security.http_settings import HttpAddress

BROKERS_MAX = 64


@click.command()
@click.option("--id", "broker_id", type=click.IntRange(0), metavar="N", help="Broker id.  [default: 0]")
@click.option(
    "--zookeeper",
    metavar="HOST:PORT,.../PATH",
    help="ZooKeeper of the broker's cluster.  [default: none, for a cluster of one broker]",
)
@click.option(
    "--zookeeper-listener",
    metavar="[HOST:]PORT",
    help="Address to serve the metadata store in ZooKeeper's protocol, for consumers that coordinate through it."
    "  [default: off]",
)
@click.option("--host", metavar="HOST", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port; 0: a free port.  [default: 9092]")
@allow_anonymous_option
@click.option("--rack", metavar="NAME", help="Rack of the broker; replicas are spread over racks.")
@click.option(
    "--data",
    metavar="DIR",
    multiple=True,
    help="Log directory; repeatable, for several disks.  [default: barnabas-data]",
)
@click.option(
    "--brokers-here",
    metavar="N",
    type=click.IntRange(1, BROKERS_MAX),
    default=1,
    show_default=True,
    help="Number of brokers, for a machine with several cores: consecutive ids and ports, one directory for each.",
)
@click.option("--config", metavar="FILE", help="File with settings under Kafka's names: TOML, or *.properties.")
@broker_properties_option
@broker_http_option
@click.option(
    "--ready-out-of-sync",
    metavar="N",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Maximum number of this broker's out-of-sync replicas for /readyz to report ready.",
)
@log_format_option
@click.pass_obj
def up(
    environment: Environment | None,
    broker_id: int | None,
    zookeeper: str | None,
    zookeeper_listener: str | None,
    host: str | None,
    port: int | None,
    allow_anonymous: bool,
    rack: str | None,
    data: tuple[str, ...],
    brokers_here: int,
    config: str | None,
    properties: dict[str, str],
    http: HttpAddress | None,
    ready_out_of_sync: int,
    log_format: LogFormat,
) -> int:
    """Start a broker in the foreground.

    Print `ready HOST:PORT` once it serves. Ctrl-C, SIGTERM or SIGHUP stops it cleanly. Settings come from the file,
    from the environment (BARNABAS_NUM_PARTITIONS for num.partitions) and from these options. The options precede the
    environment, and the environment precedes the file.
    """
    from barnabas.broker.main import run
    from barnabas.broker.settings.loading import load_config

    flags = {
        "broker_id": broker_id,
        "zookeeper_connect": zookeeper,
        "zookeeper_listener": zookeeper_listener,
        "host": host,
        "port": port,
        "allow_anonymous": allow_anonymous or None,
        "rack": rack,
        **_data_flags(data),
        **properties,
    }
    with log_to_stderr(log_format) as lines:
        settings = load_config(config, flags, os.environ)
        if brokers_here > 1:
            from barnabas.cli.brokers_here import run_brokers

            return run_brokers(click.get_current_context(), settings, brokers_here, log_format)
        lines.broker = settings.broker_id
        return run(settings, environment, http, ready_out_of_sync)


def _data_flags(folders: tuple[str, ...]) -> dict[str, str]:
    if len(folders) < 2:
        return {"data": folders[0]} if folders else {}
    if with_comma := next((each for each in folders if "," in each), None):
        raise click.BadParameter(f"{with_comma!r}: with several log directories, no name may contain a comma")
    return {"log_dirs": ",".join(folders)}
