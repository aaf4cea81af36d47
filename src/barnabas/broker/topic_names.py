"""What a topic may be called: as in Kafka, what can be part of a folder's name."""

from __future__ import annotations

import re

from barnabas.errors import ApiError, ErrorCode

TOPIC_NAME_CHARACTERS_MAX = 249
"""The longest name whose partition folders still fit a file name, as in Kafka."""

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Check that a topic may have this name.

    :raises ApiError: INVALID_TOPIC_EXCEPTION, with what is wrong with it.
    """
    if not name:
        problem = "it is empty"
    elif name in {".", ".."}:
        problem = "it is a folder's"
    elif len(name) > TOPIC_NAME_CHARACTERS_MAX:
        problem = f"it has {len(name)} characters, and {TOPIC_NAME_CHARACTERS_MAX} are allowed"
    elif not _TOPIC_NAME.fullmatch(name):
        problem = "it may have letters, digits, '.', '_' and '-' only"
    else:
        return
    raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {name!r}: {problem}")
