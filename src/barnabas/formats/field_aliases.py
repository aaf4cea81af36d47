"""The renaming of a table's columns by the aliases of schemas. This module does no I/O.

A field of a newer schema can declare an older name as its alias. The column then gets the new name and keeps its field
id, so it still contains the earlier rows. A column is only renamed if the table has the old name and lacks the new one,
and if the column takes values of the new type. If the table already has both names, both columns stay. An applied alias
is permanent: no other field may use the old name, or earlier rows could no longer be restored. The same rules hold for
the fields of each struct, also in lists, maps and other structs.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from barnabas.formats.column_types import STRUCT_FIELDS_MAX, ColumnType, Fields, MaybeType, is_good_struct, takes, wider
from barnabas.formats.further_columns import field_of

Path = tuple[str, ...]
"""The path of a field: the names of the enclosing fields and of the field, with `element` for the items of a list and
`value` for the values of a map.
"""


@dataclass(frozen=True, slots=True)
class Aliases:
    """The aliases of the fields of one struct.

    :param names: the new names by the old names.
    :param within: the aliases within each nested field, by the field's current name. For a list or map, they are the
        aliases within its items.
    :param others: pairs of old and new names from other schemas, in conflict with `names`.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    within: Mapping[str, Aliases] = field(default_factory=dict)
    others: frozenset[tuple[str, str]] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.names or self.within)

    def now(self, name: str) -> str:
        return self.names.get(name, name)

    def targets(self, own: Collection[str]) -> dict[str, str]:
        """Return the table's name for each field of a record that can have a column. The names are distinct.

        >>> Aliases({"page": "url"}).targets(["page"]), Aliases({"page": "url"}).targets(["page", "url"])
        ({'page': 'url'}, {'url': 'url'})
        """
        found: dict[str, str] = {}
        taken = set(own)
        for name in own:
            target = self.now(name)
            if target == name or target not in taken:
                found[name] = target
                taken.add(target)
        return found

    def of(self, name: str) -> Aliases:
        """Return the aliases within a field."""
        return self.within.get(name, NO_ALIASES)

    @classmethod
    def together(cls, parts: Iterable[Aliases]) -> Aliases:
        """Merge the aliases of several schemas. If schemas disagree on the new name of a field, the last schema wins.

        >>> Aliases.together([Aliases({"x": "p"}), Aliases({"x": "q"})])
        Aliases(names={'x': 'q'}, within={}, others=frozenset({('x', 'p')}))
        """
        names: dict[str, str] = {}
        within: dict[str, Aliases] = {}
        others: set[tuple[str, str]] = set()
        for part in parts:
            others |= part.others
            others |= {(old, names[old]) for old, new in part.names.items() if names.get(old, new) != new}
            names.update(part.names)
            for name, inner in part.within.items():
                within[name] = cls.together([within[name], inner]) if name in within else inner
        return cls(names, within, frozenset(others))

    def under(self, names: Mapping[str, str]) -> dict[str, Aliases]:
        """Return the aliases within nested fields, keyed by other names of these fields.

        :param names: other names by the names in `within`.
        """
        moved = [Aliases(within={names.get(name, name): inner}) for name, inner in self.within.items()]
        return dict(Aliases.together(moved).within)

    def dump(self) -> str:
        """Return the aliases as JSON. A JSON string is the current name of a field, and an object contains the aliases
        within a field.

        >>> Aliases({"page": "url"}, {"place": Aliases({"x": "longitude"})}).dump()
        '{"place": {"x": "longitude"}, "page": "url"}'
        """
        return json.dumps(self._as_json())

    def _as_json(self) -> dict[str, Any]:
        return {**{name: inner._as_json() for name, inner in self.within.items()}, **self.names}

    @classmethod
    def parse(cls, text: str) -> Aliases:
        """Parse the result of `dump`."""
        return cls._of_json(json.loads(text))

    @classmethod
    def _of_json(cls, data: Mapping[str, Any]) -> Aliases:
        return cls(
            {name: each for name, each in data.items() if isinstance(each, str)},
            {name: cls._of_json(each) for name, each in data.items() if not isinstance(each, str)},
        )


NO_ALIASES = Aliases()


def renamed_within(before: ColumnType, after: ColumnType, aliases: Aliases) -> Iterator[tuple[Path, str]]:
    """Yield the earlier path and the new name of each renamed field within a column.

    :param aliases: the aliases within the column after the change.

    >>> dict(renamed_within([{"x": "long"}], [{"longitude": "long"}], Aliases({"x": "longitude"})))
    {('element', 'x'): 'longitude'}
    """
    if isinstance(before, list) and isinstance(after, list):
        step = "element" if len(before) == 1 else "value"
        for path, name in renamed_within(before[-1], after[-1], aliases):
            yield (step, *path), name
    if not isinstance(before, dict) or not isinstance(after, dict):
        return
    for name, kind in before.items():
        now = name if name in after else aliases.now(name)
        if now not in after:
            continue
        if now != name:
            yield (name,), now
        for path, inner_name in renamed_within(kind, after[now], aliases.of(now)):
            yield (name, *path), inner_name


def last_names(names: Mapping[str, str]) -> dict[str, str]:
    """Follow chains of aliases to the newest name of each old name. Names in a cycle are left out.

    >>> last_names({"a": "b", "b": "c", "d": "e", "e": "d"})
    {'a': 'c', 'b': 'c'}
    """
    found = {}
    for old in names:
        name, seen = old, {old}
        while name in names and names[name] not in seen:
            name = names[name]
            seen.add(name)
        if name not in names:
            found[old] = name
    return found


def kept_beside(fields: Mapping[str, ColumnType], of_schemas: Aliases, known: Aliases = NO_ALIASES) -> dict[str, str]:
    """Return the pairs of table fields that stay separate columns although a schema declares them to be the same field.

    :param of_schemas: the aliases of the schemas.
    :param known: the aliases of the table.

    >>> kept_beside({"a": {"x": "long", "y": "long"}}, Aliases(within={"a": Aliases({"x": "y"})}))
    {'a.x': 'a.y'}
    """
    beside = {}
    for old, new in (*last_names(of_schemas.names).items(), *sorted(of_schemas.others), *of_schemas.names.items()):
        own, other = known.now(old), known.now(new)
        if own != other and own in fields and other in fields:
            beside[own] = other
    for name, inner in of_schemas.under(known.names).items():
        kind = fields.get(name)
        while isinstance(kind, list):
            kind = kind[-1]
        if isinstance(kind, dict):
            within = kept_beside(kind, inner, known.of(name))
            beside |= {f"{name}.{old}": f"{name}.{new}" for old, new in within.items()}
    return beside


@dataclass(frozen=True, slots=True)
class Renaming:
    """The fields to rename in a table.

    :param renamed: the new names by the old names of table fields.
    :param fields: all fields of the table after the renaming, including nested ones.
    :param aliases: all earlier names of fields with their current names.
    :param found: the new fields under their current names.
    """

    renamed: Mapping[str, str]
    fields: Mapping[str, ColumnType]
    aliases: Aliases
    found: Fields

    @classmethod
    def of(
        cls, fields: Mapping[str, ColumnType], found: Fields, of_schemas: Aliases, known: Aliases, fields_max: int
    ) -> Renaming:
        """Determine the fields to rename.

        :param fields: the fields of the table.
        :param found: the fields of the batch.
        :param of_schemas: the aliases of the schemas.
        :param known: the aliases of the table.
        :param fields_max: the maximum number of fields. If a struct has this many fields, none of them is renamed. Such
            a struct may contain restorable values with a field that has no column. After a renaming, two fields of such
            a value would use the same column.

        >>> Renaming.of({"page": "string"}, {"url": "string"}, Aliases({"page": "url"}), Aliases(), 10).renamed
        {'page': 'url'}
        """
        now = last_names(of_schemas.names) if len(fields) < fields_max else {}
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
        # Ignore the aliases within a field that never had a column: a column that gets its name has aliases of its own.
        within = {renamed.get(name, name): inner for name, inner in known.within.items() if name in fields}
        return cls._with_those_within(renamed, new_fields, names, new_found, of_schemas.under(names), within)

    @classmethod
    def _with_those_within(
        cls,
        renamed: Mapping[str, str],
        fields: dict[str, ColumnType],
        names: Mapping[str, str],
        found: Fields,
        of_schemas: Mapping[str, Aliases],
        known: Mapping[str, Aliases],
    ) -> Renaming:
        """Rename nested fields. The outer fields already have their new names."""
        within = dict(known)
        for name, kind in found.items():
            inner_new, inner_known = of_schemas.get(name, NO_ALIASES), known.get(name, NO_ALIASES)
            own, found[name], inner = _within(fields.get(name), kind, inner_new, inner_known)
            if own is not None:
                fields[name] = own
            if inner:
                within[name] = inner
        return cls(renamed, fields, Aliases(names, within), found)


def _with_new_name(names: Mapping[str, str], renamed: Mapping[str, str]) -> dict[str, str]:
    """Return the aliases after another renaming, in which some of the new names have become old names.

    >>> _with_new_name({"a": "b"}, {"b": "c"})
    {'a': 'c', 'b': 'c'}
    """
    return {**{old: renamed.get(new, new) for old, new in names.items()}, **renamed}


def _within(
    own: MaybeType, found: MaybeType, of_schemas: Aliases, known: Aliases
) -> tuple[MaybeType, MaybeType, Aliases]:
    """Return the field's type in the table, the new parts of its type, and the aliases of its nested fields.

    :param own: the type in the table; None for a new field.
    """
    if isinstance(found, list) and (own is None or (isinstance(own, list) and len(own) == len(found))):
        inner_own, inner, aliases = _within(own[-1] if own else None, found[-1], of_schemas, known)
        kept = None if own is None else [*own[:-1], cast("ColumnType", inner_own)]
        return kept, [*found[:-1], cast("ColumnType", inner)], aliases
    if isinstance(found, dict) and (own is None or isinstance(own, dict)):
        fields, new = own or {}, cast("Fields", found)
        renaming = Renaming.of(fields, new, of_schemas, known, STRUCT_FIELDS_MAX)
        if own is not None and not is_good_struct(renaming.fields):
            renaming = Renaming.of(fields, new, replace(of_schemas, names={}), known, STRUCT_FIELDS_MAX)
        return None if own is None else dict(renaming.fields), cast("ColumnType", renaming.found), renaming.aliases
    return own, found, known
