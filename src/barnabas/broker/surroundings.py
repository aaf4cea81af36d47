"""All that a broker has of the world around it: time, files, network, threads, chance. A simulation gives it others.

Whatever the broker's parts need of these they are given; none of them asks the operating system. (The watch on the
event loop is a process's own, and a simulation leaves it out.)
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.broker.boot_id import read_boot_id
from barnabas.broker.chance import Chance
from barnabas.broker.cleaner_process import AnyCleaner, CleanerProcess
from barnabas.broker.disk_work import BrokerThreads
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.tree_opening import open_tree
from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.coordination.tree import Tree
from barnabas.net.dialer import Connection, dial
from barnabas.net.limits import Limits
from barnabas.net.listener import Listener
from barnabas.storage.filesystem import FileSystem, OsFileSystem


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The machine's, unless others are given.

    :param threads: makes what runs work that may wait.
    :param new_threads: makes so many threads, of this name: for logs that are loaded or closed side by side, and to
        wait for cleaners.
    :param new_cleaner: makes what compacts logs; it is given what tells monotonic seconds.
    :param listen: makes a listener, with limits for clients.
    :param dial: connects to a host and port, as `barnabas.net.dialer.dial` does.
    :param open_tree: opens a session with the tree that the settings name.
    :param boot_id: names the present boot of the machine.
    :param process_id: what the lock of the data folder says of who has it.
    :param watches_loop: whether a thread looks how long the event loop stands still.
    """

    clock: Clock = SYSTEM_CLOCK
    filesystem: FileSystem = field(default_factory=OsFileSystem)
    threads: Callable[[], BrokerThreads] = BrokerThreads
    new_threads: Callable[[int, str], Executor] = ThreadPoolExecutor
    new_cleaner: Callable[[Callable[[], float]], AnyCleaner] = CleanerProcess
    listen: Callable[[Limits], Listener] = Listener
    dial: Callable[..., Awaitable[Connection]] = dial
    open_tree: Callable[[BrokerConfig, Path, Clock], Tree] = open_tree
    chance: Chance = field(default_factory=Chance)
    boot_id: Callable[[], str] = read_boot_id
    process_id: Callable[[], int] = os.getpid
    watches_loop: bool = True
