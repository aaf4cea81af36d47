"""What is wrong with answers that say nothing of what was asked."""

from __future__ import annotations

from barnabas.errors import ApiError, ErrorCode


def left_out(what: str) -> ApiError:
    """Return the error for an answer that leaves something out: silence is no success.

    >>> str(left_out("commit of clicks-0"))
    'UNKNOWN_SERVER_ERROR: commit of clicks-0: an answer without it'
    """
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: an answer without it")
