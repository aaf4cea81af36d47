"""Exit codes of processes in words."""

from __future__ import annotations

import signal


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
