"""Runs `COMMAND...` as a process that the kernel kills when its parent process ends: `PARENT COMMAND...`.

This program sets the parent death signal (Linux: prctl(2), PR_SET_PDEATHSIG) and then executes the command, which keeps
the setting. On other systems the command survives a killed parent. The signal is SIGKILL, because an orderly shutdown
of a broker would wait for other brokers, which end at the same time.

The kernel regards the thread that started the program as its parent. So start the program on a thread that lives as
long as the process.
"""

from __future__ import annotations

import os
import signal
import sys

PR_SET_PDEATHSIG = 1

TYPE_CHECKING = False
if TYPE_CHECKING:  # a constant instead of `typing.TYPE_CHECKING`, whose import would delay each start
    from collections.abc import Sequence


def ending_with_this_process(command: Sequence[str]) -> list[str]:
    """Return the command line that runs `command` and ends it with the calling process."""
    # -I and -S skip imports that this file does not need.
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def main() -> None:
    """Set the parent death signal and execute the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent process ended before the parent death signal was set")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
