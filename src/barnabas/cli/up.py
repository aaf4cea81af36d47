"""`barnabas up`: one broker, with all that it needs, in the foreground."""

from __future__ import annotations

import os

import click


@click.command()
@click.option("--id", "broker_id", type=click.IntRange(0), metavar="N", help="The broker's number.  [default: 0]")
@click.option(
    "--zookeeper",
    metavar="HOST:PORT,.../PATH",
    help="The ZooKeeper of the cluster that it belongs to.  [default: none: it is a cluster of its own]",
)
@click.option("--host", metavar="HOST", help="The address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="The port; 0: a free one.  [default: 9092]")
@click.option("--rack", metavar="NAME", help="Where it stands: replicas are spread over racks.")
@click.option("--data", metavar="DIR", help="The folder of the log.  [default: barnabas-data]")
@click.option("--config", metavar="FILE", help="A TOML file of settings, with Kafka's names.")
def up(
    broker_id: int | None,
    zookeeper: str | None,
    host: str | None,
    port: int | None,
    rack: str | None,
    data: str | None,
    config: str | None,
) -> int:
    """Start a broker in the foreground.

    Prints `ready HOST:PORT` once it serves. Ctrl-C or SIGTERM stops it cleanly. Settings come from the file, from
    the environment (BARNABAS_NUM_PARTITIONS for num.partitions) and from these flags; the later of them win.
    """
    from barnabas.broker.main import run
    from barnabas.broker.settings.static import load_config

    flags = {
        "broker_id": broker_id,
        "zookeeper_connect": zookeeper,
        "host": host,
        "port": port,
        "rack": rack,
        "data": data,
    }
    return run(load_config(config, flags, os.environ))
