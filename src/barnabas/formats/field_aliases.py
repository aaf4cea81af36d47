"""Fields that get another name: what a schema's aliases do to the columns of a table. Pure.

A field of a newer schema that names an older one as its alias is that field: its column gets the new name and keeps its
id, so that rows of before are found under it. That is safe where the table has the old name and not the new one; where
it has both, the alias comes too late, and each keeps its column. So it is where the column would not take values of the
new type, which would all be null in it. An alias that counts once counts for ever: its name
belongs to no other field any more, or rows of before would not give their values back. All of this holds for the fields
of each struct by themselves, wherever it stands: in another one, in a list, in a map.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from barnabas.formats.column_types import STRUCT_FIELDS_MAX, ColumnType, Fields, MaybeType, is_good_struct, takes, wider
from barnabas.formats.further_columns import field_of

Path = tuple[str, ...]
"""The way to a field: names, and between them `element` for what a list has and `value` for what a map has."""


@dataclass(frozen=True, slots=True)
class Aliases:
    """The aliases of the fields of one struct.

    `names`: old names and new. `within`: the aliases within a field, by its name now; of a list or map, within what it
    has. `others`: what further schemas tell of old names that are in `names`.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    within: Mapping[str, Aliases] = field(default_factory=dict)
    others: frozenset[tuple[str, str]] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.names or self.within)

    def now(self, name: str) -> str:
        """Return the name that a field has now."""
        return self.names.get(name, name)

    def targets(self, own: Collection[str]) -> dict[str, str]:
        """Return the name in a table for each field of a record that can have a column there; no two are the same.

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
        """Return those within a field."""
        return self.within.get(name, NO_ALIASES)

    @classmethod
    def together(cls, parts: Iterable[Aliases]) -> Aliases:
        """Return what several schemas tell; of an old name the last one counts.

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
        """Return those within fields, by other names.

        :param names: names that are in `within`, and others for them.
        """
        moved = [Aliases(within={names.get(name, name): inner}) for name, inner in self.within.items()]
        return dict(Aliases.together(moved).within)

    def dump(self) -> str:
        """Return them as JSON: a text is a name now, an object what is within a field.

        >>> Aliases({"page": "url"}, {"place": Aliases({"x": "longitude"})}).dump()
        '{"place": {"x": "longitude"}, "page": "url"}'
        """
        return json.dumps(self._as_json())

    def _as_json(self) -> dict[str, Any]:
        return {**{name: inner._as_json() for name, inner in self.within.items()}, **self.names}

    @classmethod
    def parse(cls, text: str) -> Aliases:
        """Read what `dump` has written."""
        return cls._of_json(json.loads(text))

    @classmethod
    def _of_json(cls, data: Mapping[str, Any]) -> Aliases:
        return cls(
            {name: told for name, told in data.items() if isinstance(told, str)},
            {name: cls._of_json(told) for name, told in data.items() if not isinstance(told, str)},
        )


NO_ALIASES = Aliases()


def renamed_within(before: ColumnType, after: ColumnType, aliases: Aliases) -> Iterator[tuple[Path, str]]:
    """Yield the fields within a column that have another name after it has changed: where they were, and the name.

    :param aliases: within the column, after the change.

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


def last_names(told: Mapping[str, str]) -> dict[str, str]:
    """Return the newest name for each old one; none where names go round in a circle.

    >>> last_names({"a": "b", "b": "c", "d": "e", "e": "d"})
    {'a': 'c', 'b': 'c'}
    """
    found = {}
    for old in told:
        name, seen = old, {old}
        while name in told and told[name] not in seen:
            name = told[name]
            seen.add(name)
        if name not in told:
            found[old] = name
    return found


def kept_beside(fields: Mapping[str, ColumnType], of_schemas: Aliases, known: Aliases = NO_ALIASES) -> dict[str, str]:
    """Return fields that are there beside those that schemas take for the same ones, with these.

    :param of_schemas: the aliases of the schemas; `known`: the aliases that the table has.

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
    """The fields to rename.

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
        cls, fields: Mapping[str, ColumnType], found: Fields, of_schemas: Aliases, known: Aliases, fields_max: int
    ) -> Renaming:
        """Return the fields to rename.

        :param fields: those of the table; `found`: those that are new; `of_schemas`: the aliases of the schemas.
        :param known: the aliases that the table has.
        :param fields_max: in a full struct a value may have come back without a column for a field that is now the new
            name of another one. Both would go for the same column then, and the value would not come back any more: so
            nothing is renamed there.

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
        # Names within a field that never had a column have had no effect. A column that gets its name has its own ones.
        within = {renamed.get(name, name): inner for name, inner in known.within.items() if name in fields}
        return cls._with_those_within(renamed, new_fields, names, new_found, of_schemas.under(names), within)

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


def _within(
    own: MaybeType, found: MaybeType, of_schemas: Aliases, known: Aliases
) -> tuple[MaybeType, MaybeType, Aliases]:
    """Return a field's type, what of it is new, and the aliases within it.

    :param own: the type in the table; None where the field is not there yet.
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
