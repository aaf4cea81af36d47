"""The environment of a broker: time, files, network, threads and random numbers.

A simulation passes its own environment.

The components of a broker receive these interfaces as constructor arguments, and do not call the operating system
directly. The exception is the event loop watch, which a simulation disables.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.broker.cleaner_process import AnyCleaner, CleanerProcess
from barnabas.broker.disk_work import BrokerThreads
from barnabas.broker.metadata_store_access import open_metadata_store
from barnabas.broker.pipeline.chain import Stage
from barnabas.broker.random_source import RandomSource
from barnabas.broker.settings.static import BrokerConfig
from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.coordination.metadata_store import MetadataStore
from barnabas.metrics import otlp
from barnabas.net.client_connection import ClientConnection, dial
from barnabas.net.listener import Listener
from barnabas.storage.filesystem import FileSystem, MeasuredFileSystem

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def read_boot_id() -> str:
    """Return the boot id of the machine, or an empty string if the operating system has none."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class Environment:
    """The broker's interfaces to the operating system. The defaults use the real operating system.

    :param threads: creates the broker's threads for work that may block.
    :param new_threads: creates a thread pool with a number of threads and a name. The broker uses these pools to load
        and close logs in parallel, to wait for cleaners, and for TLS handshakes and passwords.
    :param new_cleaner: creates the object that compacts logs. Its argument is a function that returns monotonic
        seconds.
    :param listen: creates a listener. The arguments are those of `Listener`.
    :param dial: connects to a host and port, as `barnabas.net.client_connection.dial` does.
    :param open_metadata_store: opens a session with the metadata store in the settings.
    :param boot_id: returns the id of the machine's current boot.
    :param process_id: returns the process id for the lock of the data directory.
    :param watches_loop: True if the broker starts a thread that measures how long the event loop is blocked.
    :param decodes_otlp: returns whether the package that decodes client metrics is installed.
    :param stages: further stages of the requests of clients, behind the broker's own. Only brokers for tests have some.
    :param load_otlp: imports the package that decodes client metrics. It is called on a separate thread.
    """

    clock: Clock = SYSTEM_CLOCK
    filesystem: FileSystem = field(default_factory=lambda: MeasuredFileSystem(SYSTEM_CLOCK.monotonic))
    threads: Callable[[], BrokerThreads] = BrokerThreads
    new_threads: Callable[[int, str], Executor] = ThreadPoolExecutor
    new_cleaner: Callable[[Callable[[], float]], AnyCleaner] = CleanerProcess
    listen: Callable[..., Listener] = Listener
    dial: Callable[..., Awaitable[ClientConnection]] = dial
    open_metadata_store: Callable[[BrokerConfig, Path, Clock], MetadataStore] = open_metadata_store
    random_source: RandomSource = field(default_factory=RandomSource)
    boot_id: Callable[[], str] = read_boot_id
    process_id: Callable[[], int] = os.getpid
    watches_loop: bool = True
    decodes_otlp: Callable[[], bool] = otlp.is_installed
    load_otlp: Callable[[], None] = otlp.load
    stages: Sequence[Stage] = ()
