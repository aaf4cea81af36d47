"""The exit codes of the command, and a description of the exit codes of any process."""

from __future__ import annotations

import signal

EXIT_FAILED = 1
EXIT_WRONG_SETTINGS = 2
"""The settings or the arguments of the command are wrong. A supervisor does not restart the command."""
EXIT_NOTHING_NEW = 3
"""A load found no new records, and `--fail-when-empty` makes that a failure."""
EXIT_CONFLICT = 4
"""Another process is writing the table. The same command may succeed later."""
EXIT_UNREACHABLE = 5
"""The brokers, the schema registry, the catalog or the storage did not answer. The same command may succeed later."""
EXIT_TOO_MANY_BAD_RECORDS = 6
"""A load has more bad records than `--max-bad-records` allows."""


def how_it_ended(code: int) -> str:
    """Return a description of an exit code of `subprocess`, in which -9 means that signal 9 ended the process.

    >>> how_it_ended(1), how_it_ended(-9)
    ('ended with exit code 1', 'was ended by SIGKILL')
    """
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
