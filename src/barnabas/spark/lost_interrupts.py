"""Recovery of a Ctrl-C that PySpark has replaced with another error.

On a Ctrl-C during a call of the JVM, Py4J closes the connection. PySpark's cleanup then fails, and its error replaces
the KeyboardInterrupt.
"""

from __future__ import annotations


def interrupt_behind(error: BaseException | None) -> BaseException | None:
    """Return the KeyboardInterrupt or SystemExit in the context of an error; None if there is none."""
    while error is not None and not isinstance(error, KeyboardInterrupt | SystemExit):
        error = error.__context__
    return error


def raise_lost_interrupt(error: BaseException) -> None:
    """Raise the interrupt in the context of an error again; do nothing if there is none."""
    interrupt = interrupt_behind(error)
    if interrupt is not None:
        raise type(interrupt)(*interrupt.args) from None
