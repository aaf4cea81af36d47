"""`python -m bench.compare`: the command is in `command.py`."""

import sys

EXIT_INTERRUPTED = 130

try:
    from bench.compare.command import main

    code = main()
except KeyboardInterrupt:  # Ctrl-C arrived before the command handles it, or after the command has finished
    code = EXIT_INTERRUPTED
sys.exit(code)
