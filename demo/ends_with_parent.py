"""Runs a module that ends when the demo does, also when the demo is killed: `PARENT MODULE ARGUMENTS...`.

The kernel is asked to send SIGTERM when the parent is gone (Linux only; elsewhere a killed demo leaves its
broker running).
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask the kernel, and become the module."""
    parent, module = int(sys.argv[1]), sys.argv[2]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit("the demo was gone before the kernel was asked")
    sys.argv = sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
