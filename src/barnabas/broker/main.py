"""Runs one broker in the foreground until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import resource
import sys
from collections.abc import Iterator

from barnabas.addresses import host_port
from barnabas.broker.broker import Broker
from barnabas.broker.environment import Environment
from barnabas.broker.settings.static import BrokerConfig
from barnabas.stop_signals import stop_on_signals

SWITCH_INTERVAL_S = 0.0005
"""How long another thread may hold the interpreter before the event loop gets it back. The loop lets go of it with each
system call; with Python's default of 5 ms, a search on another thread would delay every request by several times
that."""

GARBAGE_THRESHOLDS = (5_000, 5, 2_000)
"""The objects of a request are freed by their reference counts. The garbage collector is for cycles: a full collection
takes 0.1 s with 10,000 partitions, so it is made rare; one of young objects takes a few milliseconds."""


def run(
    config: BrokerConfig, environment: Environment | None = None, http: str | None = None, out_of_sync_max: int = 0
) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP; prints `ready HOST:PORT` when it serves. Return the exit code.

    :param environment: the environment of the broker; None: the machine's.
    :param http: the address of metrics and health (`barnabas.net.status_server`); None: they are not served.
    :param out_of_sync_max: see `Readiness`.
    :raises UnavailableError: the address cannot be listened on.
    :raises DataFolderError: the data folder cannot be used.
    :raises StorageError: the stop was not a clean one; or all data folders have failed.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _raise_open_files_limit()
    with asyncio.Runner(loop_factory=_new_event_loop) as runner:
        runner.run(_serve(config, environment, http, out_of_sync_max))
    return 0


async def _serve(config: BrokerConfig, environment: Environment | None, http: str | None, out_of_sync_max: int) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    stop_on_signals(loop, stop.set)
    # The stop is not clean then, and the command reports the reason.
    broker = Broker(
        config,
        environment,
        on_failed=lambda _reason: loop.call_soon_threadsafe(stop.set),
        with_status=http is not None,
        out_of_sync_max=out_of_sync_max,
    )
    with _serving_status(http, broker, loop):
        await _run(broker, stop)


@contextlib.contextmanager
def _serving_status(http: str | None, broker: Broker, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    if http is None:
        yield
        return
    # Most brokers of tests do without it, and start sooner.
    from barnabas.net.status_server import LoopProbe, serving_status  # noqa: PLC0415

    with serving_status(http, broker.collect, broker.not_ready, LoopProbe(loop).is_alive):
        yield


async def _run(broker: Broker, stop: asyncio.Event) -> None:
    # Nearly all objects that a start makes are kept: collecting garbage meanwhile would take a quarter of its time.
    gc.disable()
    await broker.start()
    gc.enable()
    # These objects stay for good. Looking through them for garbage would stop the broker for milliseconds each time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    sys.stdout.write(f"ready {host_port(broker.config.host, broker.port)}\n")
    sys.stdout.flush()
    try:
        await stop.wait()
    finally:
        await broker.stop()


def _raise_open_files_limit() -> None:
    """Allow this process as many open files as the system lets it have: logs and connections need them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        logging.getLogger(__name__).warning("%d files may be open, and not %d: %s", soft, hard, error)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
