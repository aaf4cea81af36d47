"""The guard of processes: kills a process group and removes a folder when its parent process has ended.

    python -I -S guard.py [FOLDER]

The guard is the leader of a new process group, to which its parent adds processes (`subprocess.Popen(process_group=)`).
The parent keeps standard input open. At its end, the guard kills the group with SIGKILL, which also ends paused
processes, and removes the folder. So nothing is left if the parent is killed, too.

This file imports only what it needs, because it runs beside each broker of a test.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading

PAUSE_S = 0.02
END_PAUSES = 100
"""The maximum number of pauses until all processes of the group have ended."""


def main() -> None:
    """Wait for the end of standard input, then clean up."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    while os.read(0, 4096):
        continue  # the parent sends nothing
    group = os.getpgid(0)
    if os.fork():
        signal.pause()  # the child kills the whole group, which this process belongs to
        return
    os.setpgid(0, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
        for _ in range(END_PAUSES):
            os.killpg(group, 0)
            threading.Event().wait(PAUSE_S)
    for folder in sys.argv[1:]:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
