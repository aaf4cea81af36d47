"""`barnabas cluster`: starts a cluster on this machine; shows, restarts and balances any cluster."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.cli.cluster_moves import balance, drain, replace
from barnabas.cli.connection import Connection
from barnabas.cli.log_dirs import log_dirs
from barnabas.cli.log_output import ClusterLog, log_format_option, log_to_stderr
from barnabas.cli.options import (
    allow_anonymous_option,
    broker_properties_option,
    connect,
    connection_of,
    connection_options,
    json_option,
)
from barnabas.cli.signals import interrupt_on_stop_signals

if TYPE_CHECKING:
    from barnabas.log_lines import LogFormat

NO_BROKER_LEFT = 1
NOT_HEALTHY = 1


CONNECTED_S = 30.0
"""The maximum time in seconds until each broker of a new cluster has all brokers in its metadata."""
LOOK_S = 0.05
OLD_SESSIONS_S = 60.0
"""The time in seconds within which the broker registrations in a restored backup must expire, together with their
ZooKeeper sessions."""


@click.group()
def cluster() -> None:
    """Start a cluster on this machine; show, restart and balance a cluster."""


@cluster.command()
@click.option("--brokers", type=click.IntRange(1, 100), metavar="N", help="Number of brokers.  [default: 3]")
@click.option("--data", metavar="DIR", default="barnabas-data", show_default=True, help="Directory for all data.")
@click.option("--host", metavar="HOST", help="Address to listen on.  [default: 127.0.0.1]")
@click.option(
    "--port",
    type=click.IntRange(0, 65_436),
    metavar="FIRST",
    help="Port of the first broker; the others use the following ports. 0: free ports.  [default: 9092, or free ports]",
)
@allow_anonymous_option
@click.option("--zookeeper-servers", type=click.Choice(["1", "3"]), help="Number of ZooKeeper servers.  [default: 1]")
@click.option("--zookeeper", metavar="HOST:PORT,.../PATH", help="Use this running ZooKeeper instead.")
@click.option("--restart", is_flag=True, help="Restart processes that end, after 1 s, 2 s, 4 s ... 30 s.")
@click.option("--config", metavar="FILE", help="File with broker settings under Kafka's names: TOML, or *.properties.")
@broker_properties_option
@log_format_option
def up(
    brokers: int | None,
    data: str,
    host: str | None,
    port: int | None,
    allow_anonymous: bool,
    zookeeper_servers: str | None,
    zookeeper: str | None,
    restart: bool,
    config: str | None,
    properties: dict[str, str],
    log_format: LogFormat,
) -> int:
    """Start a cluster on this machine: ZooKeeper and brokers, as processes.

    Print `ready HOST:PORT,HOST:PORT,...` once all brokers serve. Write their logs to standard error. Ctrl-C, SIGTERM
    or SIGHUP stops the processes in order. A second start with the same directory uses the same brokers and ports.
    """
    if zookeeper and zookeeper_servers:
        raise click.UsageError("--zookeeper names running servers; leave out --zookeeper-servers")

    import logging

    from barnabas.cli.local_cluster import ClusterSpec, LocalCluster
    from barnabas.clock import SYSTEM_CLOCK

    wanted = ClusterSpec(
        data=Path(data),
        brokers=brokers,
        zookeeper_servers=int(zookeeper_servers) if zookeeper_servers else None,
        zookeeper=zookeeper,
        host=host,
        first_port=port,
        config=config,
        properties={**properties, **({"allow.anonymous": "true"} if allow_anonymous else {})},
        restart=restart,
        log_format=log_format,
    )
    lines = ClusterLog(log_format)
    interrupt_on_stop_signals()
    try:
        # The ZooKeeper client logs expected connection failures while ZooKeeper starts. The processes themselves report
        # real errors.
        with (
            log_to_stderr(log_format, logging.CRITICAL),
            LocalCluster(wanted, os.environ, clock=SYSTEM_CLOCK, say=lines.say, on_line=lines.pass_on) as running,
        ):
            _wait_until_connected(running.addresses, connection_of(click.get_current_context().find_root()))
            click.echo(f"ready {','.join(running.addresses)}")
            running.keep()
    except KeyboardInterrupt:
        return 0
    lines.say("all brokers have ended")
    return NO_BROKER_LEFT


@cluster.command()
@json_option
@connection_options
def status(as_json: bool, connection: Connection) -> int:
    """Show the state of a cluster: brokers, leaders, coordinators, and unhealthy partitions.

    Exit code 0: every replica is in sync, every partition has a leader, and every broker responds. Exit code 1
    otherwise.
    """
    from barnabas.cli.cluster_status import ANSWER_TIMEOUT_MS, ask_for_health, show_health, show_health_as_json

    with connect(connection, quiet=True, timeout_ms=ANSWER_TIMEOUT_MS) as admin:
        health = ask_for_health(admin)
    (show_health_as_json if as_json else show_health)(health)
    return 0 if health.is_healthy else NOT_HEALTHY


@cluster.command()
@click.option("--rolling", is_flag=True, required=True, help="Restart one broker at a time (required).")
@click.option("--data", metavar="DIR", help="Directory of a cluster on this machine.  [default: barnabas-data]")
@click.option("--by-hand", is_flag=True, help="For any cluster: print the broker to restart, and wait for the restart.")
@click.option("--force", is_flag=True, help="Start even if the cluster is unhealthy.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for a broker to restart, and then for its replicas to catch up.",
)
@connection_options
def restart(
    rolling: bool, data: str | None, by_hand: bool, force: bool, timeout: float, connection: Connection
) -> None:
    """Restart the brokers of a cluster one at a time, without interrupting its clients.

    Each broker shuts down in order and starts again. The next broker follows when every replica is in sync again. The
    command refuses to start if the cluster is unhealthy.

    \b
    barnabas cluster restart --rolling                           a cluster started with barnabas cluster up
    barnabas cluster restart --rolling --by-hand -b HOST:PORT    brokers under another supervisor
    """
    if by_hand and data:
        raise click.UsageError("--data is for clusters started with barnabas cluster up; leave it out with --by-hand")

    from barnabas.cli.cluster_file import ClusterFile
    from barnabas.cli.cluster_status import ANSWER_TIMEOUT_MS, ask_for_health
    from barnabas.cli.restart_request import LocalRestart, runs_in
    from barnabas.cli.rolling_restart import ManualRestart, RollingRestart
    from barnabas.clock import SYSTEM_CLOCK

    now_s, sleep = SYSTEM_CLOCK.monotonic, SYSTEM_CLOCK.sleep
    folder = Path(data or "barnabas-data")
    if not by_hand:
        if not runs_in(folder):
            hint = "give its directory with --data, or use --by-hand for brokers under another supervisor"
            raise click.ClickException(f"no cluster runs in {folder}; {hint}")
        connection = dataclasses.replace(connection, bootstrap=",".join(ClusterFile.read(folder).addresses))
    with connect(connection, quiet=True, timeout_ms=ANSWER_TIMEOUT_MS) as admin:
        brokers = [node.id for node in admin.brokers()] if by_hand else sorted(ClusterFile.read(folder).broker_ports)
        one = (
            ManualRestart(lambda: [node.id for node in admin.brokers()], sleep=sleep, say=click.echo)
            if by_hand
            else LocalRestart(folder, timeout, now_s=now_s, sleep=sleep)
        )
        RollingRestart(
            brokers, one, lambda: ask_for_health(admin), now_s=now_s, sleep=sleep, say=click.echo, patience_s=timeout
        ).run(force=force)
    click.echo(f"restarted all {len(brokers)} brokers")


@cluster.command()
@click.option("--zookeeper", metavar="HOST:PORT,.../PATH", help="ZooKeeper of the cluster.")
@click.option("--config", metavar="FILE", help="Settings file of a broker, for a ZooKeeper with TLS or zookeeper.auth.")
def restored(zookeeper: str | None, config: str | None) -> int:
    """Prepare the cluster's metadata in ZooKeeper after a restore from a backup, before the brokers start.

    When all replicas of a partition are registered, the replica with the most records becomes the leader.
    Replicas that were in sync at the time of the backup may lack records acknowledged later.
    """
    import logging
    import os

    from barnabas.broker.metadata_restore import prepare_restored_store
    from barnabas.broker.metadata_store_access import zookeeper_config
    from barnabas.broker.settings.loading import load_config
    from barnabas.clock import SYSTEM_CLOCK
    from barnabas.coordination import topic_metadata_store
    from barnabas.coordination.zookeeper.metadata_store import ZooKeeperMetadataStore

    logging.basicConfig(format="barnabas: %(message)s", level=logging.ERROR)
    settings = load_config(config, {"zookeeper.connect": zookeeper}, os.environ)
    if not settings.zookeeper_connect:
        raise click.UsageError("give the ZooKeeper of the cluster: --zookeeper HOST:PORT,.../PATH, or --config FILE")
    with contextlib.closing(ZooKeeperMetadataStore(zookeeper_config(settings))) as tree:
        deadline_s = SYSTEM_CLOCK.monotonic() + OLD_SESSIONS_S
        while topic_metadata_store.read_brokers(tree) and SYSTEM_CLOCK.monotonic() < deadline_s:
            SYSTEM_CLOCK.sleep(LOOK_S)
        count = prepare_restored_store(tree)
    click.echo(
        f"prepared {count} partitions: the replica with the most records leads once all replicas are registered;"
        " start the brokers now"
    )
    return 0


for _command in (drain, replace, balance, log_dirs):
    cluster.add_command(_command)


def _wait_until_connected(addresses: Sequence[str], connection: Connection) -> None:
    """Wait until the metadata of each broker contains all brokers, so that a new topic can have a replica on each
    broker."""
    from barnabas import Admin
    from barnabas.clock import SYSTEM_CLOCK
    from barnabas.errors import BarnabasError

    deadline_s = SYSTEM_CLOCK.monotonic() + CONNECTED_S
    for address in addresses:
        with contextlib.suppress(BarnabasError):  # if a broker has ended during the wait, the supervisor reports it
            while SYSTEM_CLOCK.monotonic() < deadline_s:
                with Admin(dataclasses.replace(connection, bootstrap=address).admin_settings) as admin:
                    if len(admin.brokers()) >= len(addresses):
                        break
                SYSTEM_CLOCK.sleep(LOOK_S)
