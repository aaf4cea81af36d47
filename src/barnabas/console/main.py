"""Runs one console in the foreground until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Mapping
from functools import partial

import uvicorn

from barnabas.addresses import host_port
from barnabas.client.config import AdminConfig, make_config
from barnabas.client.security import connection_security
from barnabas.clock import SYSTEM_CLOCK
from barnabas.console.application import new_application
from barnabas.console.audits import AUDITS_AT_ONCE, Audits
from barnabas.console.cluster_view import ClusterView
from barnabas.console.config import ALL_ADDRESSES, ConsoleConfig
from barnabas.console.connections import CONNECTIONS_MAX, Connection
from barnabas.console.context import Console
from barnabas.console.guard import Guard, allowed_hosts
from barnabas.console.schemas import Schemas
from barnabas.console.sessions import Sessions
from barnabas.errors import UnavailableError
from barnabas.net.open_connections import OpenConnections
from barnabas.net.tls import server_context
from barnabas.stop_signals import stop_on_signals

IDLE_S = 30
CLOSE_S = 3
END_OLD_S = 60.0

log = logging.getLogger(__name__)


async def serve(config: ConsoleConfig, stop: asyncio.Event) -> None:
    """Serve the pages until `stop` is set. Print `ready URL` once the console accepts connections.

    :raises UnavailableError: the address cannot be bound.
    """

    def new_view(settings: Mapping[str, str]) -> ClusterView:
        return ClusterView(settings, SYSTEM_CLOCK)

    turns = asyncio.Semaphore(AUDITS_AT_ONCE)

    def new_audits(settings: Mapping[str, str]) -> Audits:
        return Audits(settings, config.tables, turns, SYSTEM_CLOCK, config.source)

    sessions = Sessions(new_view, new_audits, os.urandom, SYSTEM_CLOCK.monotonic)
    console = Console(config, sessions)
    listening = uvicorn.Config(
        lambda: None,
        config.host or ALL_ADDRESSES,
        config.port,
        lifespan="off",
        log_config=None,
        log_level=logging.ERROR,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        http=partial(Connection, OpenConnections(CONNECTIONS_MAX)),
        ws="none",
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=CLOSE_S,
        ssl_certfile=config.security.certfile,
        ssl_keyfile=config.security.keyfile,
    )
    try:
        sock = listening.bind_socket()
    except SystemExit:  # uvicorn has logged the reason
        raise UnavailableError(
            f"cannot listen on {host_port(config.host or ALL_ADDRESSES, config.port)}; choose another with --port"
        ) from None
    port = sock.getsockname()[1]
    hosts = allowed_hosts(config.host, port, config.hosts)
    application = Guard(new_application(console), hosts, config.security.scheme)
    listening.app = application
    server = uvicorn.Server(listening)
    serving = asyncio.create_task(server._serve([sock]))
    ending = asyncio.create_task(_end_old(sessions))
    try:
        while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn sets no event
            await asyncio.sleep(0.01)
        sys.stdout.write(f"ready {config.security.scheme}://{host_port(config.host or 'localhost', port)}/\n")
        sys.stdout.flush()
        await asyncio.wait([serving, asyncio.create_task(stop.wait())], return_when=asyncio.FIRST_COMPLETED)
    finally:
        ending.cancel()
        server.should_exit = True
        await serving
        await console.close()


async def _end_old(sessions: Sessions) -> None:
    while True:
        await asyncio.sleep(END_OLD_S)
        await sessions.end_old()


def check_settings(config: ConsoleConfig) -> None:
    """Check the settings that the console uses later, for the first page or the first user.

    :raises ConfigurationError: no cluster accepts them, or a file of TLS cannot be used.
    """
    settings = config.settings_of("user", "password") if config.signs_in else config.settings
    connection_security(make_config(AdminConfig, {**settings, "bootstrap.servers": config.bootstrap}, {}))
    if config.source is not None:
        connection_security(make_config(AdminConfig, dict(config.source), {}))
    if config.security.tls is not None:
        server_context(config.security.tls)
    if config.registry is not None:
        Schemas(config.registry, config.registry_settings, SYSTEM_CLOCK)


def run(config: ConsoleConfig) -> int:
    """Run a console until a signal stops it; return the exit code.

    :raises ConfigurationError: see `check_settings`.
    """
    check_settings(config)

    async def serve_until_stopped() -> None:
        stop = asyncio.Event()
        stop_on_signals(asyncio.get_running_loop(), stop.set)
        await serve(config, stop)

    asyncio.run(serve_until_stopped())
    return 0
