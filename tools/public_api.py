"""Compare the public API with the API of the last release, or write the stub of a release.

    .venv/bin/python tools/public_api.py            # print incompatible changes; exit code 1 if there are any
    .venv/bin/python tools/public_api.py --renew    # at a release: write the stub, empty the list of accepted breaks

`docs/dev/api/released.pyi` is a flat stub of the public API of the last release. This program generates the same kind
of stub from the current sources with griffe, without importing them. griffe then compares both stubs.
`docs/dev/api/accepted.md` lists the intended incompatible changes, as this program prints them.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import griffe

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src"
RELEASED = ROOT / "docs" / "dev" / "api" / "released.pyi"
ACCEPTED = ROOT / "docs" / "dev" / "api" / "accepted.md"

SETTINGS = ("ClientSettings", "ProducerSettings", "ConsumerSettings")
SETTINGS_MODULE = "barnabas.client.setting_types"
"""The settings are keyword arguments, so their names are public."""

NO_BASES = frozenset({"ABC", "Generic", "Protocol", "object"})
"""Base classes that are not part of the API."""

RELEASED_BEGINS = """\
# The public API of the last release, made by `python tools/public_api.py --renew`. For griffe and for people: a module
# of this text could not be imported, as the names in annotations are missing.
"""
ACCEPTED_BEGINS = """\
# Accepted breaks of the public API

This list contains the intended breaking changes of the API since the last release, as `tools/public_api.py` prints
them. The changelog describes each of them.

"""

SPECIAL = frozenset(
    {
        "__init__",
        "__len__",
        "__getitem__",
        "__iter__",
        "__next__",
        "__aiter__",
        "__await__",
        "__enter__",
        "__exit__",
        "__aenter__",
        "__aexit__",
    }
)


class Sources:
    """The modules of a source tree. Each module is parsed at its first use."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.module = cache(self._module)

    def _module(self, name: str) -> griffe.Module:
        path = self._root.joinpath(*name.split("."))
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        return griffe.visit(name, filepath=file, code=file.read_text(encoding="utf-8"))

    def names(self) -> dict[str, str]:
        """Return the public names with the modules that they are imported from."""
        stub = ast.parse((self._root / "barnabas" / "__init__.pyi").read_text(encoding="utf-8"))
        imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
        return {alias.name: node.module or "" for node in imports for alias in node.names}

    def old_names(self) -> dict[str, str]:
        """Return the old names that are kept for compatibility, with the corresponding new names."""
        stub = ast.parse((self._root / "barnabas" / "__init__.pyi").read_text(encoding="utf-8"))
        return {
            target.id: node.value.id
            for node in stub.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name)
            for target in node.targets
            if isinstance(target, ast.Name)
        }

    def find(self, module: str, name: str) -> griffe.Object | None:
        """Return the object that a name in a module refers to. Imports between modules are followed."""
        if module == "barnabas.records.codec":
            module = "barnabas.records.codec_pure"  # of the two codecs, use the pure Python one, which has types
        if not module.startswith("barnabas"):
            return None
        member = self.module(module).members.get(name)
        if isinstance(member, griffe.Alias):
            *parents, last = member.target_path.split(".")
            return self.find(".".join(parents), last)
        return member


def flat_stub(root: Path) -> str:
    """Return the public API of a source tree as the text of one module."""
    sources = Sources(root)
    names = {**sources.names(), **dict.fromkeys(SETTINGS, SETTINGS_MODULE)}
    parts = []
    old_names = sources.old_names()
    for name in sorted([*names, *old_names]):
        new_name = old_names.get(name, name)
        found = sources.find(names[new_name], new_name)
        if isinstance(found, griffe.Class):
            parts.append(_class(sources, names, name, found))
    return "\n\n".join(parts)


def _class(sources: Sources, names: dict[str, str], name: str, found: griffe.Class) -> str:
    bases = list(dict.fromkeys(_public_bases(sources, names, found)))
    lines = [f"class {name}({', '.join(bases)}):" if bases else f"class {name}:"]
    members = dict(_members(sources, names, found))
    if "__init__" not in members and (fields := _fields(found, members)):
        lines.append(f"    def __init__(self, {', '.join(fields)}): ...")
    lines += [f"    {line}" for each, member in members.items() for line in _member(each, member)]
    return "\n".join([*lines, "    ..."]) if len(lines) == 1 else "\n".join(lines)


def _public_bases(sources: Sources, names: dict[str, str], found: griffe.Class) -> Iterator[str]:
    """Yield the names of the nearest base classes that are public or belong to Python."""
    for path, last, parent in _bases(sources, found):
        if last in names or not (parent or path.startswith("barnabas.") or last in NO_BASES):
            yield last
        elif parent is not None:
            yield from _public_bases(sources, names, parent)


def _bases(sources: Sources, found: griffe.Class) -> Iterator[tuple[str, str, griffe.Class | None]]:
    """Yield the path and the name of each base class, and the class itself if it belongs to Barnabas."""
    for base in found.bases:
        path = base if isinstance(base, str) else base.canonical_path
        *parents, last = path.split(".")
        parent = sources.find(".".join(parents), last)
        yield path, last, parent if isinstance(parent, griffe.Class) else None


def _members(sources: Sources, names: dict[str, str], found: griffe.Class) -> Iterator[tuple[str, griffe.Object]]:
    """Yield the public members of a class, including inherited members of non-public base classes."""
    for _, last, parent in _bases(sources, found):
        if parent is not None and last not in names:
            yield from _members(sources, names, parent)
    for name, member in found.members.items():
        if (name in SPECIAL or not name.startswith("_")) and isinstance(member, griffe.Object):
            yield name, member


def _fields(found: griffe.Class, members: dict[str, griffe.Object]) -> list[str]:
    """Return the constructor parameters of a dataclass or named tuple, which are derived from its fields."""
    is_tuple = any(str(base).startswith("NamedTuple") for base in found.bases)
    if not is_tuple and not any("dataclass" in str(each.value) for each in found.decorators):
        return []
    fields = [
        member
        for member in members.values()
        if isinstance(member, griffe.Attribute) and member.annotation is not None and "property" not in member.labels
    ]
    return [f"{each.name}: {each.annotation}{' = ...' if each.value is not None else ''}" for each in fields]


def _member(name: str, member: griffe.Object) -> Iterator[str]:
    if isinstance(member, griffe.Function):
        for label in ("classmethod", "staticmethod"):
            if label in member.labels:
                yield f"@{label}"
        returns = f" -> {member.returns}" if member.returns is not None else ""
        begin = "async def" if "async" in member.labels else "def"
        yield f"{begin} {name}({_parameters(member)}){returns}: ..."
    elif isinstance(member, griffe.Attribute):
        yield f"{name} = ..." if member.annotation is None else f"{name}: {member.annotation}"


def _parameters(function: griffe.Function) -> str:
    parts = []
    has_star = False
    for each in function.parameters:
        prefix = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}.get(each.kind, "")
        if each.kind is griffe.ParameterKind.keyword_only and not has_star:
            parts.append("*")
        has_star = has_star or prefix == "*" or each.kind is griffe.ParameterKind.keyword_only
        text = f"{prefix}{each.name}"
        if each.annotation is not None:
            text += f": {each.annotation}"
        if each.default is not None and not prefix:
            text += f" = {each.default}"
        parts.append(text)
        if each.kind is griffe.ParameterKind.positional_only:
            parts.append("/")
    return ", ".join(parts)


def breaks(released: str, current: str) -> list[str]:
    """Return the incompatible changes of the current stub, one line each.

    >>> breaks("class A:\\n    def f(self, x): ...", "class A:\\n    def f(self, *, x): ...")
    ['A.f(x): Parameter kind was changed: positional or keyword -> keyword-only']
    """
    old, new = (griffe.visit("barnabas", filepath=RELEASED, code=code) for code in (released, current))
    return sorted({_line(each) for each in griffe.find_breaking_changes(old, new)})


def _line(breakage: griffe.Breakage) -> str:
    """Return the description of a change without the line number in the stub, because line numbers vary."""
    colourless = re.sub(r"\x1b\[[0-9;]*m", "", breakage.explain(griffe.ExplanationStyle.ONE_LINE))
    return re.sub(r"^.*?:\d+: ", "", colourless)


def accepted(text: str) -> set[str]:
    """Return the incompatible changes that a page lists as accepted."""
    return {line.removeprefix("- ") for line in text.splitlines() if line.startswith("- ")}


def differences(released: str, current: str, meant: set[str]) -> list[str]:
    """Return a line for each change that is not accepted, and for each accepted change that no longer exists.

    >>> differences("class A: ...\\nclass B: ...", "class A: ...", {"C: Public object was removed"})
    ['breaks programs: B: Public object was removed', 'breaks nothing any more: C: Public object was removed']
    """
    found = set(breaks(released, current))
    return [
        *(f"breaks programs: {each}" for each in sorted(found - meant)),
        *(f"breaks nothing any more: {each}" for each in sorted(meant - found)),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program as described in the module's docstring."""
    parser = argparse.ArgumentParser(description="Compare the public API with the one of the last release.")
    parser.add_argument("--renew", action="store_true", help="write the stub of a release from the sources")
    parser.add_argument("--source", type=Path, default=SOURCES, help="the source tree; default: src")
    options = parser.parse_args(arguments)
    current = flat_stub(options.source)
    if options.renew:
        RELEASED.write_text(f"{RELEASED_BEGINS}\n{current}\n", encoding="utf-8")
        ACCEPTED.write_text(ACCEPTED_BEGINS, encoding="utf-8")
        return 0
    found = differences(RELEASED.read_text(encoding="utf-8"), current, accepted(ACCEPTED.read_text(encoding="utf-8")))
    advice = ["a break that is meant has a line in docs/dev/api/accepted.md, and one in CHANGELOG.md"] if found else []
    sys.stdout.writelines(f"{line}\n" for line in [*found, *advice])
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
