"""`barnabas up`: one broker, with all that it needs, in the foreground."""

from __future__ import annotations

import os

import click


@click.command()
@click.option("--host", metavar="HOST", help="The address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="The port; 0: a free one.  [default: 9092]")
@click.option("--data", metavar="DIR", help="The folder of the log.  [default: barnabas-data]")
@click.option("--config", metavar="FILE", help="A TOML file of settings, with Kafka's names.")
def up(host: str | None, port: int | None, data: str | None, config: str | None) -> int:
    """Start a broker in the foreground.

    Prints `ready HOST:PORT` once it serves. Ctrl-C or SIGTERM stops it cleanly. Settings come from the file, from
    the environment (BARNABAS_NUM_PARTITIONS for num.partitions) and from these flags; the later of them win.
    """
    from barnabas.broker.main import run
    from barnabas.broker.settings.static import load_config

    return run(load_config(config, {"host": host, "port": port, "data": data}, os.environ))
