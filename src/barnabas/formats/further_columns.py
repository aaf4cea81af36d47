"""The further columns of a field, for values that do not fit its first column. This module does no I/O.

A column keeps its type, because existing files use that type. If the column `amount` is `long` and the value 12.5
arrives, the field gets a further column `amount_double`. Each value is in exactly one column of its field:

    amount = 5     amount = 5     amount_double = null
    amount = 12.5  amount = null  amount_double = 12.5

Among the fields of a table or struct, the key of this further column is `amount`, U+001F and `double`. No struct in a
table has a field name with U+001F, and a field of a value with such a name gets no column. `column_names` and
`stored_names` determine the column's name in the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import pyarrow as pa

_MARK = "\x1f"
_KEY = re.compile(r"(?s)(.*)\x1f([a-z]+(?:_[a-z]+)*)")
_NOT_IN_NAMES = re.compile(r"[\x00-\x1f.`]")


def further_key(field: str, kind: str) -> str:
    """Return the key of a field's further column.

    :param kind: the word for the type, as `type_word` returns it.
    """
    return f"{field}{_MARK}{kind}"


def field_of(key: str) -> str | None:
    """Return the field of a further column's key; None for other keys.

    >>> field_of(further_key("amount", "list_double")), field_of("amount")
    ('amount', None)
    """
    found = _KEY.fullmatch(key) if _MARK in key else None
    return found[1] if found else None


def is_further(key: str) -> bool:
    return field_of(key) is not None


def keys_of_fields(keys: Iterable[str]) -> dict[str, list[str]]:
    """Return the keys of the further columns by field. Fields without a further column are left out.

    >>> keys_of_fields(["a", "b", further_key("a", "double")])
    {'a': ['a\\x1fdouble']}
    """
    found: dict[str, list[str]] = {}
    for key in keys:
        field = field_of(key)
        if field is not None:
            found.setdefault(field, []).append(key)
    return found


def usual_name(key: str) -> str:
    """Return the default name of a further column. It applies unless another column has the same name.

    >>> usual_name(further_key("amount", "double"))
    'amount_double'
    """
    return _NOT_IN_NAMES.sub("_", key)


def stored_names(keys: Iterable[str]) -> dict[str, str]:
    """Return the names that the fields of a struct have in the table, by their keys.

    The name of a further column ends with a number if an earlier field has the same name. A later field with the same
    name makes the struct invalid (`is_good_struct`).

    >>> list(stored_names(["n", "n_double", further_key("n", "double")]).values())
    ['n', 'n_double', 'n_double_2']
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    for key in keys:
        name = key
        if is_further(key):
            name = wanted = usual_name(key)
            number = 2
            while name.upper().lower() in taken:
                name, number = f"{wanted}_{number}", number + 1
        names[key] = name
        taken.add(name.upper().lower())
    return names


Counts = Mapping[str, Mapping[str, int]]
"""The number of values in each column of fields with further columns, by the path of the field and then the path of the
column.
"""


def further_counts(
    columns: Mapping[str, pa.Array], names: Mapping[str, str], path: str = ""
) -> dict[str, dict[str, int]]:
    """Count the values in each column of fields with further columns, including fields within structs.

    :param columns: the columns by their keys.
    :param names: the columns' names in the table by their keys.

    >>> columns = {"n": pa.array([1, None]), further_key("n", "double"): pa.array([None, 1.5])}
    >>> further_counts(columns, stored_names(columns))
    {'n': {'n': 1, 'n_double': 1}}
    """
    found = {
        path + names[field]: {path + names[key]: len(columns[key]) - columns[key].null_count for key in (field, *keys)}
        for field, keys in keys_of_fields(columns).items()
    }
    for key, column in columns.items():
        if not _has_further(column.type):
            continue
        inner = column
        while not pa.types.is_struct(inner.type):
            inner = inner.items if pa.types.is_map(inner.type) else inner.flatten()
        children = dict(zip((each.name for each in inner.type), inner.flatten(), strict=True))
        found |= further_counts(children, stored_names(children), f"{path}{names[key]}.")
    return found


def _has_further(kind: pa.DataType) -> bool:
    inner = [kind.field(number) for number in range(kind.num_fields)]
    return any(is_further(each.name) or _has_further(each.type) for each in inner)


def added_counts(parts: Iterable[Counts]) -> dict[str, dict[str, int]]:
    """Add up the counts of several batches."""
    added: dict[str, dict[str, int]] = {}
    for part in parts:
        for field, counts in part.items():
            own = added.setdefault(field, {})
            for column, count in counts.items():
                own[column] = own.get(column, 0) + count
    return added
