"""The main function of a broker process, which runs in the foreground until a signal stops it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import logging
import sys
from collections.abc import Iterator

from barnabas.addresses import host_port
from barnabas.broker.broker import Broker
from barnabas.broker.environment import Environment
from barnabas.broker.settings.static import BrokerConfig
from barnabas.portable import raise_open_files_limit
from barnabas.security.http_settings import HttpAddress
from barnabas.stop_signals import stop_on_signals

SWITCH_INTERVAL_S = 0.0005
"""The time in seconds after which another thread must release the interpreter lock to the event loop.

The event loop releases the lock in each system call. With Python's default of 5 ms, a search on another thread would
delay each request by several times 5 ms.
"""

GARBAGE_THRESHOLDS = (5_000, 5, 2_000)
"""The thresholds of the garbage collector, which is needed only for reference cycles.

Reference counts free the objects of requests. With 10,000 partitions, a full collection takes 0.1 s, so it must be
rare. A collection of young objects takes a few milliseconds.
"""


def run(
    config: BrokerConfig,
    environment: Environment | None = None,
    http: HttpAddress | None = None,
    out_of_sync_max: int = 0,
) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP; print `ready HOST:PORT` after the start. Return the exit code.

    :param environment: the environment of the broker, or None for the real operating system.
    :param http: the address of the metrics and health pages (`barnabas.net.status_server`), or None if there are no
        such pages.
    :param out_of_sync_max: see `Readiness`.
    :raises UnavailableError: the address cannot be bound.
    :raises DataFolderError: a log directory cannot be used.
    :raises StorageError: the shutdown was not clean, or all log directories have failed.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _raise_open_files_limit()
    with asyncio.Runner(loop_factory=_new_event_loop) as runner:
        runner.run(_serve(config, environment, http, out_of_sync_max))
    return 0


async def _serve(
    config: BrokerConfig, environment: Environment | None, http: HttpAddress | None, out_of_sync_max: int
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    stop_on_signals(loop, stop.set)
    # If all log directories fail, `stop` raises an error with the reason.
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
def _serving_status(http: HttpAddress | None, broker: Broker, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    if http is None:
        yield
        return
    # Import this module only here: most brokers in tests have no status page, and start faster without the import.
    from barnabas.net.status_server import LoopProbe, serving_status  # noqa: PLC0415

    security = dataclasses.replace(http.security, allow_anonymous=broker.config.allow_anonymous)
    pages = HttpAddress(http.address, security)
    is_alive = LoopProbe(loop).is_alive
    with serving_status(pages, broker.collect, broker.not_ready, is_alive, broker.prove, broker.may_see_metrics):
        yield


async def _run(broker: Broker, stop: asyncio.Event) -> None:
    # Disable garbage collection during startup. Nearly all new objects stay in use, and collections would take a
    # quarter of the startup time.
    gc.disable()
    await broker.start()
    gc.enable()
    # Exclude these objects from later collections. Otherwise, each collection would pause the broker for milliseconds.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    sys.stdout.write(f"ready {host_port(broker.host, broker.port)}\n")
    sys.stdout.flush()
    try:
        await stop.wait()
    finally:
        await broker.stop()


def _raise_open_files_limit() -> None:
    """Raise the limit of open files, because logs and connections need file descriptors."""
    try:
        raise_open_files_limit()
    except OSError as error:
        logging.getLogger(__name__).warning("%s", error)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # noqa: PLC0415 - uvloop is not available on every platform
    except ImportError:
        return asyncio.SelectorEventLoop()  # Windows' default loop watches no sockets
    return uvloop.new_event_loop()
