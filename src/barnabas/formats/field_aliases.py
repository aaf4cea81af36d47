"""Names that fields had before, with those that they have now, also within structs. Pure.

A schema tells them (Avro's aliases), and a table remembers those that count in it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.formats.column_types import ColumnType

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


def kept_beside(fields: Mapping[str, ColumnType], told: Aliases, known: Aliases = NO_ALIASES) -> dict[str, str]:
    """Return fields that are there beside those that schemas take for the same ones, with these.

    :param told: what schemas say; `known`: the aliases that the table has.

    >>> kept_beside({"a": {"x": "long", "y": "long"}}, Aliases(within={"a": Aliases({"x": "y"})}))
    {'a.x': 'a.y'}
    """
    beside = {}
    for old, new in (*last_names(told.names).items(), *sorted(told.others), *told.names.items()):
        own, other = known.now(old), known.now(new)
        if own != other and own in fields and other in fields:
            beside[own] = other
    for name, inner in told.under(known.names).items():
        kind = fields.get(name)
        while isinstance(kind, list):
            kind = kind[-1]
        if isinstance(kind, dict):
            within = kept_beside(kind, inner, known.of(name))
            beside |= {f"{name}.{old}": f"{name}.{new}" for old, new in within.items()}
    return beside
