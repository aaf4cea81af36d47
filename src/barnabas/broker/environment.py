"""The environment of a broker: time, files, network, threads and random numbers. A simulation passes its own.

The parts of a broker do not call the operating system for these; their constructors take them. The watch of the event
loop is the exception, and a simulation disables it.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.broker.cleaner_process import AnyCleaner, CleanerProcess
from barnabas.broker.disk_work import BrokerThreads
from barnabas.broker.metadata_store_access import open_metadata_store
from barnabas.broker.random_source import RandomSource
from barnabas.broker.settings.static import BrokerConfig
from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.coordination.metadata_store import MetadataStore
from barnabas.metrics import otlp
from barnabas.net.client_connection import ClientConnection, dial
from barnabas.net.listener import Listener
from barnabas.net.server_connection import Limits
from barnabas.storage.filesystem import FileSystem, MeasuredFileSystem

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def read_boot_id() -> str:
    """Return the id of the machine's current boot; an empty string if the operating system has none."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class Environment:
    """The interfaces to the operating system, the real ones by default.

    :param threads: creates the broker's threads for work that may wait.
    :param new_threads: creates a pool with a number of threads and a name, to load or close logs in parallel and to
        wait for cleaners.
    :param new_cleaner: creates the object that compacts logs; its argument returns monotonic seconds.
    :param listen: creates a listener with limits for clients.
    :param dial: connects to a host and port, as `barnabas.net.client_connection.dial` does.
    :param open_metadata_store: opens a session with the metadata store in the settings.
    :param boot_id: returns the id of the machine's current boot.
    :param process_id: returns the process id for the lock of the data directory.
    :param watches_loop: True if a thread measures pauses of the event loop.
    :param decodes_otlp: returns whether the package that decodes clients' metrics is installed.
    :param load_otlp: imports that package; called on a thread.
    """

    clock: Clock = SYSTEM_CLOCK
    filesystem: FileSystem = field(default_factory=lambda: MeasuredFileSystem(SYSTEM_CLOCK.monotonic))
    threads: Callable[[], BrokerThreads] = BrokerThreads
    new_threads: Callable[[int, str], Executor] = ThreadPoolExecutor
    new_cleaner: Callable[[Callable[[], float]], AnyCleaner] = CleanerProcess
    listen: Callable[[Limits], Listener] = Listener
    dial: Callable[..., Awaitable[ClientConnection]] = dial
    open_metadata_store: Callable[[BrokerConfig, Path, Clock], MetadataStore] = open_metadata_store
    random_source: RandomSource = field(default_factory=RandomSource)
    boot_id: Callable[[], str] = read_boot_id
    process_id: Callable[[], int] = os.getpid
    watches_loop: bool = True
    decodes_otlp: Callable[[], bool] = otlp.is_installed
    load_otlp: Callable[[], None] = otlp.load
