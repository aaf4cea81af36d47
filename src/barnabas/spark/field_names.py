"""Fields that get another name: what a schema's aliases do to the columns of a table. Pure.

A field of a newer schema that names an older one as its alias is that field: its column gets the new name and keeps its
id, so that rows of before are found under it. That is safe where the table has the old name and not the new one; where
it has both, the alias comes too late, and each keeps its column. An alias that counts once counts for ever: its name
belongs to no other field any more, or rows of before would not give their values back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.formats.column_types import ColumnType, Fields, wider


@dataclass(frozen=True, slots=True)
class Renaming:
    """What is to be renamed.

    `renamed`: fields of the table, old names and new. `aliases`: all names that fields had before, with those that they
    have now. `found`: new fields, under the names that they have now.
    """

    renamed: Mapping[str, str]
    aliases: Mapping[str, str]
    found: Fields

    @classmethod
    def of(
        cls,
        fields: Mapping[str, ColumnType],
        found: Fields,
        told: Mapping[str, str],
        known: Mapping[str, str],
    ) -> Renaming:
        """Find out what to rename.

        :param fields: those of the table; `found`: those that are new; `told`: what schemas say: old names and new.
        :param known: the aliases that the table has.

        >>> Renaming.of({"page": "string"}, {"url": "string"}, {"page": "url"}, {}).renamed
        {'page': 'url'}
        """
        now = {old: last for old in told if (last := _last_name(old, told)) is not None}
        renamed: dict[str, str] = {}
        for old, new in now.items():
            is_free = new not in fields and new not in renamed.values() and new not in known
            if old in fields and new in found and is_free:
                renamed[old] = new
        left = {*fields, *renamed.values()} - set(renamed)
        aliases = {old: renamed.get(new, new) for old, new in known.items()} | renamed
        for old, new in now.items():
            if old not in left and (new in left or new in found):
                aliases.setdefault(old, new)
        under_new_names: Fields = {}
        for name, kind in found.items():
            last = aliases.get(name, name)
            under_new_names[last] = wider(under_new_names.get(last), kind)
        return cls(renamed, aliases, under_new_names)


def _last_name(name: str, told: Mapping[str, str]) -> str | None:
    """Return the newest name; None where names go round in a circle."""
    seen = {name}
    while name in told:
        name = told[name]
        if name in seen:
            return None
        seen.add(name)
    return name
