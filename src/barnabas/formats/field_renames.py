"""Fields that get another name: what a schema's aliases do to the columns of a table. Pure.

A field of a newer schema that names an older one as its alias is that field: its column gets the new name and keeps its
id, so that rows of before are found under it. That is safe where the table has the old name and not the new one; where
it has both, the alias comes too late, and each keeps its column. So it is where the column would not take values of the
new type, which would all be null in it. An alias that counts once counts for ever: its name
belongs to no other field any more, or rows of before would not give their values back. All of this holds for the fields
of each struct by themselves, wherever it stands: in another one, in a list, in a map.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from barnabas.formats.column_types import STRUCT_FIELDS_MAX, ColumnType, Fields, MaybeType, is_good_struct, takes, wider
from barnabas.formats.field_aliases import NO_ALIASES, Aliases, last_names
from barnabas.formats.further_columns import field_of


@dataclass(frozen=True, slots=True)
class Renaming:
    """What is to be renamed.

    `renamed`: fields of the table, old names and new. `fields`: all of its fields under the new names, also within.
    `aliases`: all names that fields had before, with those that they have now. `found`: new fields, under the names
    that they have now.
    """

    renamed: Mapping[str, str]
    fields: Mapping[str, ColumnType]
    aliases: Aliases
    found: Fields

    @classmethod
    def of(
        cls, fields: Mapping[str, ColumnType], found: Fields, told: Aliases, known: Aliases, fields_max: int
    ) -> Renaming:
        """Find out what to rename.

        :param fields: those of the table; `found`: those that are new; `told`: what schemas say.
        :param known: the aliases that the table has.
        :param fields_max: in a full struct a value may have come back without a column for a field that is now the new
            name of another one. Both would go for the same column then, and the value would not come back any more: so
            nothing is renamed there.

        >>> Renaming.of({"page": "string"}, {"url": "string"}, Aliases({"page": "url"}), Aliases(), 10).renamed
        {'page': 'url'}
        """
        now = last_names(told.names) if len(fields) < fields_max else {}
        renamed: dict[str, str] = {}
        for old, new in now.items():
            is_free = new not in fields and new not in renamed.values() and new not in known.names
            if old in fields and new in found and is_free and takes(fields[old], found[new]):
                renamed[old] = new
        for key in fields:
            field = field_of(key)
            if field in renamed:
                renamed[key] = renamed[field] + key[len(field) :]
        left = {*fields, *renamed.values()} - set(renamed)
        names = _with_new_name(known.names, renamed)
        for old, new in now.items():
            if not {old, new} & names.keys() and old not in left and (new in left or new in found):
                names = _with_new_name(names, {old: new})
        new_found: Fields = {}
        for name, kind in found.items():
            last = names.get(name, name)
            new_found[last] = wider(new_found.get(last), kind)
        new_fields = {renamed.get(name, name): kind for name, kind in fields.items()}
        # Names within a field that never had a column have had no effect. A column that gets its name has its own ones.
        within = {renamed.get(name, name): inner for name, inner in known.within.items() if name in fields}
        return cls._with_those_within(renamed, new_fields, names, new_found, told.under(names), within)

    @classmethod
    def _with_those_within(
        cls,
        renamed: Mapping[str, str],
        fields: dict[str, ColumnType],
        names: Mapping[str, str],
        found: Fields,
        told: Mapping[str, Aliases],
        known: Mapping[str, Aliases],
    ) -> Renaming:
        """Rename what is within fields, which have their new names already, as `told` and `known` have."""
        within = dict(known)
        for name, kind in found.items():
            inner_told, inner_known = told.get(name, NO_ALIASES), known.get(name, NO_ALIASES)
            own, found[name], inner = _within(fields.get(name), kind, inner_told, inner_known)
            if own is not None:
                fields[name] = own
            if inner:
                within[name] = inner
        return cls(renamed, fields, Aliases(names, within), found)


def _with_new_name(names: Mapping[str, str], renamed: Mapping[str, str]) -> dict[str, str]:
    """Return old names with those of now, after some of the latter have become old ones, too.

    >>> _with_new_name({"a": "b"}, {"b": "c"})
    {'a': 'c', 'b': 'c'}
    """
    return {**{old: renamed.get(new, new) for old, new in names.items()}, **renamed}


def _within(own: MaybeType, found: MaybeType, told: Aliases, known: Aliases) -> tuple[MaybeType, MaybeType, Aliases]:
    """Return a field's type, what of it is new, and the aliases within it.

    :param own: the type in the table; None where the field is not there yet.
    """
    if isinstance(found, list) and (own is None or (isinstance(own, list) and len(own) == len(found))):
        inner_own, inner, aliases = _within(own[-1] if own else None, found[-1], told, known)
        kept = None if own is None else [*own[:-1], cast("ColumnType", inner_own)]
        return kept, [*found[:-1], cast("ColumnType", inner)], aliases
    if isinstance(found, dict) and (own is None or isinstance(own, dict)):
        fields, new = own or {}, cast("Fields", found)
        renaming = Renaming.of(fields, new, told, known, STRUCT_FIELDS_MAX)
        if own is not None and not is_good_struct(renaming.fields):
            renaming = Renaming.of(fields, new, replace(told, names={}), known, STRUCT_FIELDS_MAX)
        return None if own is None else dict(renaming.fields), cast("ColumnType", renaming.found), renaming.aliases
    return own, found, known
