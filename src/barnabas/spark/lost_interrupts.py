"""Ctrl-C that PySpark has lost.

It comes while Java is at work. Py4J gives the connection up then, and what PySpark does on its way out fails, so that
another error arrives in place of KeyboardInterrupt.
"""

from __future__ import annotations


def interrupt_behind(error: BaseException | None) -> BaseException | None:
    """Return the interrupt (or the end that SIGTERM asks for, where that exits) in whose course an error was raised."""
    while error is not None and not isinstance(error, KeyboardInterrupt | SystemExit):
        error = error.__context__
    return error


def raise_lost_interrupt(error: BaseException) -> None:
    """Raise the interrupt behind an error again; do nothing where there is none."""
    interrupt = interrupt_behind(error)
    if interrupt is not None:
        raise type(interrupt)(*interrupt.args) from None
