"""The environment of a broker: time, files, network, threads and random numbers. A simulation passes its own.

No part of a broker asks the operating system for these; each gets what it needs as an argument. The watch on the event
loop is the exception, and a simulation leaves it out.
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
    """Return what names the present boot, another one each time the machine starts; empty where nobody says it."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class Environment:
    """The machine's, unless others are given.

    :param threads: makes the threads that run work which may wait.
    :param new_threads: makes a pool of so many threads with a name: for logs that are loaded or closed in parallel, and
        to wait for cleaners.
    :param new_cleaner: makes the object that compacts logs; its argument returns monotonic seconds.
    :param listen: makes a listener, with limits for clients.
    :param dial: connects to a host and port, as `barnabas.net.client_connection.dial` does.
    :param open_metadata_store: opens a session with the metadata tree that the settings name.
    :param boot_id: names the present boot of the machine.
    :param process_id: identifies the process in the lock of the data folder.
    :param watches_loop: whether a thread measures how long the event loop stands still.
    :param decodes_otlp: returns whether the package that decodes metrics of clients is installed.
    :param load_otlp: imports that package, on a thread.
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
