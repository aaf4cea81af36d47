"""`python -m bench.compare`: the command is in `command.py`."""

import sys

EXIT_INTERRUPTED = 130

try:
    from bench.compare.command import main

    code = main()
except KeyboardInterrupt:  # raised before the command handles Ctrl-C, or after it has finished
    code = EXIT_INTERRUPTED
sys.exit(code)
