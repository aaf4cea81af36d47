"""`barnabas cluster`: a whole cluster on this machine, and how any cluster is; where its partitions are."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from barnabas.cli.cluster_moves import balance, drain, replace
from barnabas.cli.log_dirs import log_dirs
from barnabas.cli.log_output import ClusterLog, log_format_option, log_to_stderr
from barnabas.cli.options import bootstrap_option, broker_properties_option, connect, json_option
from barnabas.stop_signals import stop_signals

if TYPE_CHECKING:
    from barnabas.log_lines import LogFormat

NO_BROKER_LEFT = 1
NOT_HEALTHY = 1


ACQUAINTED_S = 30.0
"""So long a cluster that has started waits for its brokers to know each other."""
LOOK_S = 0.05
OLD_SESSIONS_S = 60.0
"""So long brokers may be registered in a tree from a backup that do not live any more: as long as their sessions."""


@click.group()
def cluster() -> None:
    """Start a cluster on this machine; show how one is; restart it while it serves; move its partitions."""


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
@click.option("--config", metavar="FILE", help="Settings for all brokers, with Kafka's names: TOML, or *.properties.")
@broker_properties_option
@log_format_option
def up(
    brokers: int | None,
    data: str,
    host: str | None,
    port: int | None,
    zookeeper_servers: str | None,
    zookeeper: str | None,
    restart: bool,
    config: str | None,
    properties: dict[str, str],
    log_format: LogFormat,
) -> int:
    """Start a cluster on this machine: ZooKeeper and brokers, as processes.

    Prints `ready HOST:PORT,HOST:PORT,...` once all brokers serve; what they log goes to standard error. Ctrl-C,
    SIGTERM or SIGHUP stops all of them, one after the other. A second start on the same folder goes on with the
    same brokers and ports.
    """
    if zookeeper and zookeeper_servers:
        raise click.UsageError("--zookeeper names servers that run already: none are started, so leave the number out")

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
        properties=properties,
        restart=restart,
        log_format=log_format,
    )
    lines = ClusterLog(log_format)
    for number in stop_signals():
        signal.signal(number, _interrupt)
    try:
        # What matters is raised, or told by the processes. While ZooKeeper starts, its client logs what is in vain.
        with (
            log_to_stderr(log_format, logging.CRITICAL),
            LocalCluster(wanted, os.environ, clock=SYSTEM_CLOCK, say=lines.say, on_line=lines.pass_on) as running,
        ):
            _wait_until_acquainted(running.addresses)
            click.echo(f"ready {','.join(running.addresses)}")
            running.keep()
    except KeyboardInterrupt:
        return 0
    lines.say("no broker is left")
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


@cluster.command()
@click.option("--rolling", is_flag=True, required=True, help="One broker after the other: the one way that there is.")
@click.option("--data", metavar="DIR", help="The folder of a cluster on this machine.  [default: barnabas-data]")
@click.option("--by-hand", is_flag=True, help="Say which broker is to be restarted, and wait for it: any cluster.")
@click.option("--force", is_flag=True, help="Begin also where something is wrong.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a broker may take to come back, and then to catch up.",
)
@bootstrap_option
def restart(rolling: bool, data: str | None, by_hand: bool, force: bool, timeout: float, bootstrap: str) -> None:
    """Restart the brokers of a cluster, one after the other, while it serves.

    Each stops in order and starts again; the next one follows when every replica is in sync again. Nothing is done
    where not all is well before.

    \b
    barnabas cluster restart --rolling                      the cluster that barnabas cluster up keeps
    barnabas cluster restart --rolling --by-hand -b HOST:PORT    brokers of another supervisor
    """
    if by_hand and data:
        raise click.UsageError("--data is for a cluster that barnabas cluster up keeps; leave it out with --by-hand")

    from barnabas.cli.cluster_file import ClusterFile
    from barnabas.cli.cluster_status import ANSWER_TIMEOUT_MS, ask_for_health
    from barnabas.cli.restart_request import LocalRestart, runs_in
    from barnabas.cli.rolling_restart import ManualRestart, RollingRestart
    from barnabas.clock import SYSTEM_CLOCK

    now_s, sleep = SYSTEM_CLOCK.monotonic, SYSTEM_CLOCK.sleep
    folder = Path(data or "barnabas-data")
    if not by_hand:
        if not runs_in(folder):
            hint = "name its folder with --data, or restart brokers of another supervisor with --by-hand"
            raise click.ClickException(f"no cluster runs in {folder}; {hint}")
        bootstrap = ",".join(ClusterFile.read(folder).addresses)
    with connect(bootstrap, quiet=True, timeout_ms=ANSWER_TIMEOUT_MS) as admin:
        brokers = [node.id for node in admin.brokers()] if by_hand else sorted(ClusterFile.read(folder).broker_ports)
        one = (
            ManualRestart(lambda: [node.id for node in admin.brokers()], sleep=sleep, say=click.echo)
            if by_hand
            else LocalRestart(folder, timeout, now_s=now_s, sleep=sleep)
        )
        RollingRestart(
            brokers, one, lambda: ask_for_health(admin), now_s=now_s, sleep=sleep, say=click.echo, patience_s=timeout
        ).run(force=force)
    click.echo(f"all {len(brokers)} brokers were restarted")


@cluster.command()
@click.option("--zookeeper", metavar="HOST:PORT,.../PATH", required=True, help="The ZooKeeper of the cluster.")
def restored(zookeeper: str) -> int:
    """Say that the cluster's tree in ZooKeeper was brought back from a backup, before the brokers start.

    The replica with the most records leads each partition then, once all its replicas are there: who was in sync when
    the backup was made may lack what was acknowledged since.
    """
    import logging

    from barnabas.broker.metadata_restore import prepare_restored_store
    from barnabas.clock import SYSTEM_CLOCK
    from barnabas.coordination import topic_metadata_store
    from barnabas.coordination.zookeeper.config import ZooKeeperConfig
    from barnabas.coordination.zookeeper.metadata_store import ZooKeeperMetadataStore

    logging.basicConfig(format="barnabas: %(message)s", level=logging.ERROR)
    with contextlib.closing(ZooKeeperMetadataStore(ZooKeeperConfig(zookeeper))) as tree:
        deadline_s = SYSTEM_CLOCK.monotonic() + OLD_SESSIONS_S
        while topic_metadata_store.read_brokers(tree) and SYSTEM_CLOCK.monotonic() < deadline_s:
            SYSTEM_CLOCK.sleep(LOOK_S)
        count = prepare_restored_store(tree)
    click.echo(f"{count} partitions: who has the most will lead, once all replicas are there; now start the brokers")
    return 0


for _command in (drain, replace, balance, log_dirs):
    cluster.add_command(_command)


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
