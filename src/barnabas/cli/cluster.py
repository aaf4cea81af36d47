"""`barnabas cluster`: a whole cluster on this machine, and how any cluster is."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import click

from barnabas.cli.options import bootstrap_option, connect, json_option

NO_BROKER_LEFT = 1
NOT_HEALTHY = 1


ACQUAINTED_S = 30.0
"""So long a cluster that has started waits for its brokers to know each other."""
LOOK_S = 0.05


@click.group()
def cluster() -> None:
    """Start a cluster on this machine; show how a cluster is."""


@cluster.command()
@click.option("--brokers", type=click.IntRange(1, 100), metavar="N", help="How many brokers.  [default: 3]")
@click.option("--data", metavar="DIR", default="barnabas-data", show_default=True, help="The folder of all of it.")
@click.option("--host", metavar="HOST", help="The address to listen on.  [default: 127.0.0.1]")
@click.option(
    "--port",
    type=click.IntRange(0, 65_436),
    metavar="FIRST",
    help="The first broker's port, the others have the next ones; 0: free ones.  [default: 9092, or free ones]",
)
@click.option("--zookeeper-servers", type=click.Choice(["1", "3"]), help="How many ZooKeeper servers.  [default: 1]")
@click.option("--zookeeper", metavar="HOST:PORT,.../PATH", help="A ZooKeeper that runs already, instead.")
@click.option("--restart", is_flag=True, help="Start again what dies, after 1 s, 2 s, 4 s ... 30 s.")
@click.option("--config", metavar="FILE", help="A TOML file of settings for all brokers, with Kafka's names.")
def up(
    brokers: int | None,
    data: str,
    host: str | None,
    port: int | None,
    zookeeper_servers: str | None,
    zookeeper: str | None,
    restart: bool,
    config: str | None,
) -> int:
    """Start a cluster on this machine: ZooKeeper and brokers, as processes.

    Prints `ready HOST:PORT,HOST:PORT,...` once all brokers serve; what they log goes to standard error. Ctrl-C or
    SIGTERM stops all of them, one after the other. A second start on the same folder goes on with the same brokers
    and ports.
    """
    if zookeeper and zookeeper_servers:
        raise click.UsageError("--zookeeper names servers that run already: none are started, so leave the number out")

    import logging

    from barnabas.cli.local_cluster import LocalCluster, Wanted
    from barnabas.clock import SYSTEM_CLOCK

    # What matters is raised, or told by the processes. While ZooKeeper starts, its client logs each attempt in vain.
    logging.basicConfig(level=logging.CRITICAL)
    wanted = Wanted(
        data=Path(data),
        brokers=brokers,
        zookeeper_servers=int(zookeeper_servers) if zookeeper_servers else None,
        zookeeper=zookeeper,
        host=host,
        first_port=port,
        config=config,
        restart=restart,
    )
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with LocalCluster(wanted, os.environ, clock=SYSTEM_CLOCK, say=_say, on_line=_pass_on) as running:
            _wait_until_acquainted(running.addresses)
            click.echo(f"ready {','.join(running.addresses)}")
            running.keep()
    except KeyboardInterrupt:
        return 0
    _say("no broker is left")
    return NO_BROKER_LEFT


@cluster.command()
@json_option
@bootstrap_option
def status(as_json: bool, bootstrap: str) -> int:
    """Show how a cluster is: brokers, who leads and coordinates what, and the partitions with which something is wrong.

    Exit code 0: every replica is in sync, every partition has a leader, every broker answers. 1: not so.
    """
    from barnabas.cli.cluster_status import ANSWER_TIMEOUT_MS, ask_for_health, show_health, show_health_as_json

    with connect(bootstrap, quiet=True, timeout_ms=ANSWER_TIMEOUT_MS) as admin:
        health = ask_for_health(admin)
    (show_health_as_json if as_json else show_health)(health)
    return 0 if health.is_healthy else NOT_HEALTHY


def _wait_until_acquainted(addresses: Sequence[str]) -> None:
    """Wait until each broker knows all of them: a topic that is made then can have a replica on each."""
    from barnabas import Admin
    from barnabas.clock import SYSTEM_CLOCK
    from barnabas.errors import BarnabasError

    deadline_s = SYSTEM_CLOCK.monotonic() + ACQUAINTED_S
    for address in addresses:
        with contextlib.suppress(BarnabasError):  # one that has died meanwhile is told of by who looks after it
            while SYSTEM_CLOCK.monotonic() < deadline_s:
                with Admin(address) as admin:
                    if len(admin.brokers()) >= len(addresses):
                        break
                SYSTEM_CLOCK.sleep(LOOK_S)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _say(text: str) -> None:
    _pass_on(f"barnabas: {text}")


def _pass_on(line: str) -> None:
    """Write a line to standard error; where nobody reads that any more, the brokers serve on."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
