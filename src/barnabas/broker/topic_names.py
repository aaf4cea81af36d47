"""The rules for topic names. As in Kafka, a name must be usable as part of a directory name."""

from __future__ import annotations

import re

from barnabas.errors import ApiError, ErrorCode

TOPIC_NAME_CHARACTERS_MAX = 249
"""The maximum number of characters of a topic name, as in Kafka.

The name of the partition directory must be a valid file name.
"""

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Check that a topic name is valid.

    :raises ApiError: INVALID_TOPIC_EXCEPTION, with the problem in its message.
    """
    if not name:
        problem = "it is empty"
    elif name in {".", ".."}:
        problem = "'.' and '..' are not allowed"
    elif len(name) > TOPIC_NAME_CHARACTERS_MAX:
        problem = f"it has {len(name)} characters; the maximum is {TOPIC_NAME_CHARACTERS_MAX}"
    elif not _TOPIC_NAME.fullmatch(name):
        problem = "valid characters are ASCII letters, digits, '.', '_' and '-'"
    else:
        return
    raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {name!r}: {problem}")
