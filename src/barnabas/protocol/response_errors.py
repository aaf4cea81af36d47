"""Finds the error code of a response: the error code of the whole response, or otherwise the first error code within
it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from barnabas.protocol.declare import Array, Nested, Nullable, WireType, fields_of

NO_ERROR = 0
_ERROR_CODE = "error_code"

ReadError = Callable[[Any], int]


@functools.cache
def error_reader(response: type, version: int) -> ReadError:
    """Return a function that extracts the error code of a response of one class and version.

    :returns: a function of a response. It returns the error code of the whole response if the version has one.
        Otherwise it returns the first error code in wire order, or 0 if there is none.
    """
    if any(field.name == _ERROR_CODE and field.present(version) for field in fields_of(response)):
        return attrgetter(_ERROR_CODE)
    find = _finder(response, version)
    if find is None:
        return lambda _response: NO_ERROR

    def read(found: Any) -> int:
        code = find(found)
        return NO_ERROR if code is None else code

    return read


def _finder(struct: type, version: int) -> Callable[[Any], int | None] | None:
    """Return a function that finds the first error code in a struct, or None if the struct has no error code in this
    version.
    """
    finders: list[Callable[[Any], int | None]] = []
    for field in fields_of(struct):
        if not field.present(version):
            continue
        if field.name == _ERROR_CODE:
            finders.append(attrgetter(_ERROR_CODE))
            break  # later fields cannot contain an earlier error code
        inner, is_list = _struct_of(field.kind)
        find = _finder(inner, version) if inner is not None else None
        if find is not None:
            finders.append(_in_list(field.name, find) if is_list else _in_field(field.name, find))
    if len(finders) < 2:
        return finders[0] if finders else None

    def first(found: Any) -> int | None:
        return next((code for find in finders if (code := find(found)) is not None), None)

    return first


def _struct_of(kind: WireType | type) -> tuple[type | None, bool]:
    """Return the struct class of a field (None for other fields), and whether the field is a list of structs."""
    if isinstance(kind, Nullable):
        return _struct_of(kind.inner)
    if isinstance(kind, Array):
        return (kind.element if isinstance(kind.element, type) else _struct_of(kind.element)[0]), True
    return (kind.struct if isinstance(kind, Nested) else None), False


def _in_list(name: str, find: Callable[[Any], int | None]) -> Callable[[Any], int | None]:
    read = attrgetter(name)

    def in_list(struct: Any) -> int | None:
        for each in read(struct) or ():
            if (code := find(each)) is not None:
                return code
        return None

    return in_list


def _in_field(name: str, find: Callable[[Any], int | None]) -> Callable[[Any], int | None]:
    read = attrgetter(name)

    def in_field(struct: Any) -> int | None:
        found = read(struct)
        return None if found is None else find(found)

    return in_field
