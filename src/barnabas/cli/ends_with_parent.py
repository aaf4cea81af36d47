"""Runs `COMMAND...` as a process that the kernel kills when its parent process ends: `PARENT COMMAND...`.

This program sets Linux's parent death signal (prctl(2), PR_SET_PDEATHSIG) and then executes the command, which inherits
the setting. On other systems the command starts directly, and keeps running after its parent is killed. The signal is
SIGKILL, because in an orderly shutdown a broker would wait for other brokers, which end at the same time.

The kernel regards the thread that started the program as its parent. So start the program on a thread that lives as
long as the process.
"""

from __future__ import annotations

import os
import signal
import sys

PR_SET_PDEATHSIG = 1

TYPE_CHECKING = False
if TYPE_CHECKING:  # this constant replaces `typing.TYPE_CHECKING`, because importing `typing` would delay each start
    from collections.abc import Sequence


def ending_with_this_process(command: Sequence[str]) -> list[str]:
    """Return a command line that runs `command` and kills it when the calling process ends."""
    if sys.platform != "linux":
        return list(command)
    # -I and -S skip imports that this file does not need.
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def main() -> None:
    """Set the parent death signal and execute the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent process ended before the parent death signal was set")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
