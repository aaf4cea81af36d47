"""Takes away from a process what only Linux or Unix has. Python runs this file at its start if it is on PYTHONPATH.

The standard library keeps what it has bound at its import, so its modules are imported first. Under another name, for
example when pytest looks for doctests, the module takes nothing away.
"""

import asyncio.unix_events
import multiprocessing.connection  # noqa: F401
import os
import select
import shutil  # noqa: F401
import signal
import socket
import subprocess  # noqa: F401
import sys
import tempfile  # noqa: F401

_OS = (
    "O_CLOEXEC",
    "O_DIRECTORY",
    "O_NOFOLLOW",
    "fork",
    "getpgid",
    "killpg",
    "memfd_create",
    "nice",
    "posix_fadvise",
    "posix_fallocate",
    "pread",
    "preadv",
    "pwrite",
    "sched_getaffinity",
    "sendfile",
    "writev",
)
_OTHERS = (
    (os, _OS),
    (signal, ("SIGHUP", "SIGPIPE", "pthread_kill", "setitimer")),
    (select, ("poll", "epoll")),
    (socket, ("MSG_MORE", "TCP_INFO")),
)


class _Missing:
    def __get__(self, _instance: object, _owner: object = None) -> object:
        raise AttributeError("this platform has no sendmsg")


def _no_signal_handlers(*_arguments: object) -> None:
    raise NotImplementedError


def _take_away() -> None:
    for name in ("fcntl", "resource", "readline", "termios", "pwd", "grp", "uvloop"):
        sys.modules[name] = None  # type: ignore[assignment] - an import then fails
    for module, names in _OTHERS:
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    socket.socket.sendmsg = _Missing()  # type: ignore[assignment, method-assign]
    asyncio.unix_events._UnixSelectorEventLoop.add_signal_handler = _no_signal_handlers  # type: ignore[assignment]


if __name__ == "sitecustomize":
    _take_away()
