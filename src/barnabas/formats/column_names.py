"""The column names of fields, in loaded tables and in queries on topics.

A column has the name of its field, unless SQL could confuse it with another column (SQL ignores case). Then the column
has the name `value_<name>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import count

from barnabas.formats.further_columns import is_further, usual_name

RESERVED = frozenset(
    {
        *("topic", "partition", "offset", "timestamp", "key", "value", "headers", "raw_timestamp_ms"),
        *("value_form", "event_time", "event_day"),
    }
)
"""The names of the columns that every table has. No field gets such a name. Queries on topics reserve the same names.
"""
CLASH_PREFIX = "value_"

_NOT_IN_NAMES = re.compile(r"[\x00-\x1f.`]")
"""The characters that a column name cannot contain: SQL separates the fields of a struct with a dot, and quotes names
with backquotes.
"""


def column_names(fields: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """Return the column name of each field. No two names are equal when case is ignored.

    :param taken: the names of columns that the table has for other fields.

    >>> column_names(["origin", "timestamp", "userId", "userid"])
    {'origin': 'origin', 'userId': 'userId', 'timestamp': 'value_timestamp', 'userid': 'value_userid'}
    """
    taken = set(RESERVED) | {sql_key(column) for column in taken}
    columns, clashing, further = {}, [], []
    for field in fields:
        if is_further(field):
            further.append(field)
        elif field and sql_key(field) not in taken and not _NOT_IN_NAMES.search(field):
            columns[field] = field
            taken.add(sql_key(field))
        else:
            clashing.append(field)
    for field in (*clashing, *further):
        name = wanted = usual_name(field) if is_further(field) else CLASH_PREFIX + _NOT_IN_NAMES.sub("_", field)
        for number in count(2):
            if sql_key(name) not in taken:
                break
            name = f"{wanted}_{number}"
        columns[field] = name
        taken.add(sql_key(name))
    return columns


def sql_key(name: str) -> str:
    """Return a key that is equal for names that SQL treats as equal.

    Java also compares the upper-case forms of letters, so the long s (U+017F) equals an s.
    """
    return name.upper().lower()
