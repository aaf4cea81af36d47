"""`barnabas up --brokers-here N`: several brokers on one machine, with one command, one configuration and one
supervisor.

A broker uses one core. To use more cores of a machine, run several brokers. They have consecutive broker ids and ports,
and a directory for each in each log directory. All have the same `machine` label, so that no two of them hold replicas
of the same partition. A broker that ends is restarted.
"""

from __future__ import annotations

import os
import platform
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from barnabas.addresses import PORT_MAX, host_port, split_listener
from barnabas.broker.settings.listeners import check_protection, listeners_of, parse_endpoints
from barnabas.broker.settings.static import BrokerConfig
from barnabas.cli.log_output import ClusterLog
from barnabas.cli.signals import interrupt_on_stop_signals
from barnabas.cli.supervision import Restarts, Supervised, Supervisor
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import ConfigurationError

if TYPE_CHECKING:
    from barnabas.log_lines import LogFormat

OF_ONE_BROKER = frozenset({"brokers_here", "broker_id", "port", "data", "http", "host"})
"""The parameters of `barnabas up` that differ between the brokers, by name."""


def run_brokers(context: click.Context, config: BrokerConfig, count: int, log_format: LogFormat) -> int:
    """Run brokers until SIGTERM, SIGINT or SIGHUP. Print `ready HOST:PORT,HOST:PORT,...` once all brokers serve.

    :param context: the context of `barnabas up`. All brokers get its parameters, except those in `OF_ONE_BROKER`.
    :param config: the settings of the first broker.
    :returns: the exit code.
    :raises ConfigurationError: the settings do not permit several brokers, or a broker rejects its settings.
    :raises BarnabasError: a broker did not start.
    """
    http = context.params.get("http")
    overrides = [_overrides(config, http, number) for number in range(count)]
    check_ports(config, http, count)
    check_protection(config, listeners_of(config))
    lines = ClusterLog(log_format)
    common = list(given_arguments(context))

    def command(broker: int, _port: int) -> list[str]:
        # -P prevents imports from the current directory.
        return [sys.executable, "-P", "-m", "barnabas.cli.main", "up", *common, *overrides[broker - config.broker_id]]

    brokers = [
        Supervised(broker, 0, partial(command, broker), Restarts(SYSTEM_CLOCK.monotonic))
        for broker in range(config.broker_id, config.broker_id + count)
    ]
    supervisor = Supervisor(
        brokers,
        environment=os.environ,
        clock=SYSTEM_CLOCK,
        restart=True,
        say=lines.say,
        on_line=lines.pass_on,
        on_change=_nothing,
    )
    interrupt_on_stop_signals()
    try:
        try:
            supervisor.start()
            click.echo(f"ready {','.join(each.address for each in brokers if each.address is not None)}")
            supervisor.keep()
        finally:
            supervisor.stop_together()
    except KeyboardInterrupt:
        return 0
    return 1


def given_arguments(context: click.Context) -> Iterator[str]:
    """Yield the arguments of the command line, except those that differ between the brokers."""
    for each in context.command.params:
        name, value = each.name or "", context.params.get(each.name or "")
        if name in OF_ONE_BROKER or context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        option = max(each.opts, key=len)
        if isinstance(value, dict):
            for key, text in value.items():
                yield from (option, f"{key}={text}")
        elif value is True:
            yield option
        else:
            yield from (option, str(value))


def check_ports(config: BrokerConfig, http: str | None, count: int) -> None:
    """Check that no two listeners of the brokers get the same port.

    :param http: the address of the first broker's status pages, or None.
    :raises ConfigurationError: two listeners get the same port, or a port is too high.
    """
    firsts = [each.port for each in listeners_of(config) if each.port]
    if http is not None and (port := split_listener(http)[1]):
        firsts.append(port)
    used = Counter(first + number for first in firsts for number in range(count))
    if used and max(used) > PORT_MAX:
        raise ConfigurationError(f"{count} brokers need ports up to {max(used)}; the highest port is {PORT_MAX}")
    if twice := [port for port, times in used.items() if times > 1]:
        raise ConfigurationError(
            f"{count} brokers would use port {min(twice)} twice: each broker adds one to all ports of the first,"
            f" {', '.join(map(str, sorted(firsts)))}; leave {count} ports or more between them"
        )


def _overrides(config: BrokerConfig, http: str | None, number: int) -> list[str]:
    """Return the arguments of one broker.

    :param number: the number of the broker, from 0.
    """
    if not config.zookeeper_connect:
        raise ConfigurationError(
            "--brokers-here needs --zookeeper, because the brokers share a metadata store;"
            " `barnabas cluster up` starts ZooKeeper, too"
        )
    broker_id = config.broker_id + number
    folders = ",".join(f"{each}/broker-{broker_id}" for each in config.folders)
    settings = {"broker.id": broker_id, "log.dirs": folders, "machine": config.machine or platform.node()}
    settings |= dict(_addresses(config, number))
    found = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
    if http is not None:
        host, port = split_listener(http)
        found += ["--http", host_port(host, _shifted(port, number)) if host else str(_shifted(port, number))]
    return found


def _addresses(config: BrokerConfig, number: int) -> Iterator[tuple[str, object]]:
    """Yield the settings with the addresses of a broker: one port higher for each broker."""
    for name, value in (("listeners", config.listeners), ("advertised.listeners", config.advertised_listeners)):
        if value:
            endpoints = parse_endpoints(name, value)
            moved = [(each.name, host_port(each.host, _shifted(each.port, number))) for each in endpoints]
            yield name, ",".join(f"{listener}://{address}" for listener, address in moved)
    if not config.listeners:
        yield "host", config.host
        yield "port", _shifted(config.port, number)
    for name, port in (("advertised.port", config.advertised_port), ("inter.broker.port", config.inter_broker_port)):
        if port:
            yield name, _shifted(port, number)


def _shifted(port: int, number: int) -> int:
    return port + number if port else 0


def _nothing() -> None:
    """Do nothing: no file describes these brokers."""
