"""The comparison of JSON texts by value. This module does no I/O.

Two texts are equal if they differ only in whitespace between tokens, the order of an object's fields, escapes within
strings, and the notation of numbers (`1.50`, `15e-1`). All other differences make texts unequal:

- A null field differs from an absent field.
- Numbers are compared exactly with all digits. 9007199254740993 differs from the double next to it.
- Minus zero differs from zero, because parsers to doubles distinguish them.
- An object with a repeated name equals nothing, because parsers choose different fields.
- A string of digits differs from a number, and `true` differs from 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

Path = tuple[str, ...]


class _NoValueError(ValueError):
    """A JSON text has no value on which all parsers agree."""


class _OtherValueError(ValueError):
    pass


def nulls_beside(original: bytes, composed: bytes) -> frozenset[Path] | None:
    """Return the fields that are null in `original` and absent in `composed`; None if the objects differ in any other
    way.

    :param original: the JSON object that may have additional null fields.
    :param composed: the JSON object to compare with.
    :returns: the paths of these fields. Objects in arrays must be equal.

    >>> nulls_beside(b'{"b": {"c": null}, "a": 1.50}', b'{"a":1.5,"b":{}}'), nulls_beside(b'{"a": 1}', b'{"a":2}')
    (frozenset({('b', 'c')}), None)
    """
    try:
        one, other = _parsed(original), _parsed(composed)
        if not isinstance(one, dict) or not isinstance(other, dict):
            return None
        return frozenset(_nulls_beside(one, other, ()))
    except (ValueError, RecursionError):
        return None


def _nulls_beside(one: dict[str, Any], other: dict[str, Any], path: Path) -> Iterator[Path]:
    """Yield the fields that are null in `one` and absent in `other`.

    :raises ValueError: if the objects differ in any other way.
    """
    if not other.keys() <= one.keys():
        raise _OtherValueError
    for name, value in one.items():
        if name not in other:
            if value is not None:
                raise _OtherValueError
            yield (*path, name)
        elif isinstance(value, dict) and isinstance(other[name], dict):
            yield from _nulls_beside(value, other[name], (*path, name))
        elif value != other[name]:
            raise _OtherValueError


def _parsed(text: bytes) -> object:
    return json.loads(
        text.decode(),
        parse_int=_exact_number,
        parse_float=_exact_number,
        parse_constant=_refuse,
        object_pairs_hook=_members,
    )


def _refuse(name: str) -> None:
    raise _NoValueError(f"{name} is not JSON")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _NoValueError("an object has two fields of the same name")
    return members


def _exact_number(text: str) -> tuple[bool, str, int]:
    """Return a number's sign, its digits without outer zeros, and the power of ten of the last digit.

    The result is a tuple because a plain number could be equal to a boolean.

    >>> _exact_number("-1.50"), _exact_number("15E-1"), _exact_number("100"), _exact_number("-0.0e7")
    ((True, '15', -1), (False, '15', -1), (False, '1', 2), (True, '0', 0))
    """
    is_negative = text[0] == "-"
    mantissa, _, power = text.lower().partition("e")
    whole, _, fraction = mantissa.removeprefix("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return is_negative, "0", 0
    stripped = digits.rstrip("0")
    exponent = (int(power) if power else 0) - len(fraction) + len(digits) - len(stripped)
    return is_negative, stripped, exponent
