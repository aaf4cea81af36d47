"""Print the tests that cover a file of the package, for `make test-for FILE=src/...`.

    .venv/bin/python tools/tests_for.py src/barnabas/storage/log.py

These are the doctests of the file, and all test modules that import the file's module, directly or through test
helpers. If no test module imports the module, the program takes the tests of the modules that import it, and so on.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
USAGE = "pass a file of the package: make test-for FILE=src/barnabas/storage/log.py"
SOURCES = ("src", "tests")


def module_of(path: Path) -> str:
    """Return the dotted name of a module, such as `barnabas.storage.log`, from its path below the root."""
    parts = path.with_suffix("").parts
    parts = parts[1:] if parts[0] == "src" else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(source: str) -> set[str]:
    """Return the modules that Python source code imports, and the imported names within modules."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module)
            found.update(f"{node.module}.{each.name}" for each in node.names)
    return found


def covering(module: str, imports: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the test modules that cover a module.

    :param imports: the imported names by module.

    >>> covering("barnabas.log", {"tests.unit.test_log": ["barnabas.log"], "barnabas.cli": ["barnabas.log"]})
    ['tests.unit.test_log']
    """
    importers: dict[str, set[str]] = defaultdict(set)
    for importer, imported in imports.items():
        for each in imported:
            importers[each].add(importer)
    seen, level = {module}, {module}
    found: set[str] = set()
    while level and not found:
        nearest = {importer for each in level for importer in importers[each]} - seen
        tests = {each for each in nearest if each.startswith("tests.")}
        helpers = {each for each in tests if not _is_test(each)}
        while helpers:
            tests |= {importer for each in helpers for importer in importers[each] if importer.startswith("tests.")}
            seen |= helpers
            helpers = {each for each in tests if not _is_test(each)} - seen
        found = {each for each in tests if _is_test(each)}
        seen |= nearest
        level = nearest - tests
    return sorted(found)


def _is_test(module: str) -> bool:
    return module.rpartition(".")[2].startswith("test_")


def tests_for(file: Path) -> list[str]:
    """Return the arguments of pytest for a file: paths below the root."""
    files = {module_of(path.relative_to(ROOT)): path for top in SOURCES for path in (ROOT / top).rglob("*.py")}
    imports = {module: imports_of(path.read_text()) for module, path in files.items()}
    module = module_of(file)
    return [str(file), *(str(files[each].relative_to(ROOT)) for each in covering(module, imports))]


def main(arguments: list[str]) -> int:
    """Print the tests, one per line."""
    paths = [Path(each).resolve() for each in arguments]
    if len(paths) != 1 or not paths[0].is_file() or not paths[0].is_relative_to(ROOT / "src"):
        sys.stderr.write(USAGE + "\n")
        return 2
    sys.stdout.write("\n".join(tests_for(paths[0].relative_to(ROOT))) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
