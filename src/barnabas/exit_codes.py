"""Exit codes of the command, and those of any process in words."""

from __future__ import annotations

import signal

EXIT_FAILED = 1
EXIT_WRONG_SETTINGS = 2
"""As wrong usage has. A supervisor does not start the command again: the result would be the same."""
EXIT_TOO_MANY_BAD_RECORDS = 6
"""A load has more bad records than `--max-bad-records` allows."""


def how_it_ended(code: int) -> str:
    """Return the words for an exit code, as `subprocess` has it: the negative number of a signal that ended it.

    >>> how_it_ended(1), how_it_ended(-9)
    ('ended with exit code 1', 'was ended by SIGKILL')
    """
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
