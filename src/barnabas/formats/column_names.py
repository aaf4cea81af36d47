"""The names of columns that hold the fields of values: in tables that are loaded, and in queries on topics.

A field has a column of its own name, unless SQL could not tell that from another column (case does not count); then
it is found in `value_<name>`.
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
"""The names of a table's own columns. A query on a topic has the names that its table has, so they are its too."""
CLASH_PREFIX = "value_"

_NOT_IN_NAMES = re.compile(r"[\x00-\x1f.`]")
"""The dot stands for a field of a struct, and the backquote quotes names."""


def column_names(fields: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """Return the column of each field; no two are the same, whatever the case of their letters.

    :param taken: columns that the table has for other fields.

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
    """Return what names have in common that SQL takes for the same.

    Java compares the letters' upper cases too, so that the long s (U+017F) is an s.
    """
    return name.upper().lower()
