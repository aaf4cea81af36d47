"""What went wrong, and where: an `assert` has no message of its own where pytest does not write one.

A scenario plays in a process of its own, without pytest.
"""

from __future__ import annotations

import sys
import threading
import traceback
from types import FrameType

FRAMES = 3
"""So many of those that called are named: what waits is mostly a function for all."""


def told(error: BaseException) -> str:
    """Return an error's kind and message, and the lines where it was raised and from where that was called.

    >>> try:
    ...     assert 1 == 2
    ... except AssertionError as error:
    ...     told(error).splitlines()[0]
    'AssertionError'
    """
    what = "".join(traceback.format_exception_only(error)).rstrip()
    return "\n".join([what, *_lines(traceback.extract_tb(error.__traceback__))])


def where(thread: threading.Thread) -> str:
    """Return what a thread is doing, as `told` does."""
    frame: FrameType | None = sys._current_frames().get(thread.ident or 0)
    return "\n".join(["", *_lines(traceback.extract_stack(frame))]) if frame else "it has ended"


def _lines(stack: traceback.StackSummary) -> list[str]:
    return [f"    {each.filename}:{each.lineno} in {each.name}: {each.line}" for each in stack[-FRAMES:]]
