"""Runs a program that ends when the process that started it does, also when that is killed: `PARENT COMMAND...`.

The kernel is asked to kill it when its parent is gone, and remembers that when this file becomes the program (Linux:
prctl(2), PR_SET_PDEATHSIG; elsewhere the program outlives a parent that is killed). It is SIGKILL, so that nothing is
left whatever the program does: a broker that stops in order waits for others, which end at the same moment.

For the kernel the parent is the thread that started the program: start it on a thread that lives as long as the
process does.
"""

from __future__ import annotations

import os
import signal
import sys

PR_SET_PDEATHSIG = 1

TYPE_CHECKING = False
if TYPE_CHECKING:  # spelled so because `typing` takes its time, and this stands before each start
    from collections.abc import Sequence


def ending_with_this_process(command: Sequence[str]) -> list[str]:
    """Return the command line that runs `command` so that it ends with the process that calls this."""
    # -I and -S: nothing is loaded that the few lines below do not need.
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def main() -> None:
    """Ask the kernel, and become the program."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the process that started this was gone before the kernel was asked")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
