"""The house rules that no linter knows. Each test names all offenders at once, with file and line."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import barnabas
from tests.programs.other_platform import sitecustomize as other_platform

ROOT = Path(__file__).resolve().parents[2]
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
WALL_TIME = {
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
    ("date", "today"),
    ("time", "time"),
    ("time", "time_ns"),
    ("time", "sleep"),
}
BINARY = {".png", ".xz"}
KINDS = BINARY | {
    *(
        "",
        ".cfg",
        ".css",
        ".env",
        ".go",
        ".html",
        ".in",
        ".java",
        ".js",
        ".json",
        ".md",
        ".pxi",
        ".py",
        ".pyi",
        ".pyx",
        ".service",
        ".timer",
        ".sh",
        ".svg",
    ),
    *(".toml", ".typed", ".yaml"),
}
"""The suffixes of the files that the project consists of."""
VAGUE_NAMES = {"util", "utils", "helper", "helpers", "misc", "common"}

UNIX_NAMES = frozenset(other_platform._OS) | {"fsync"}  # macOS keeps what fsync writes in the cache of the disk
UNIX_MODULES = {"fcntl", "resource"}
ON_UNIX_ALONE = {ROOT / "src" / "barnabas" / "testing" / "guard.py"}
"""Modules for which Windows has no alternative."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def tracked_files() -> list[Path]:
    """All files of the project that git knows."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [path for name in names.split("\0") if name and (path := ROOT / name).is_file()]


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def place(path: Path, node: ast.AST | int) -> str:
    line = node if isinstance(node, int) else getattr(node, "lineno", 1)
    return f"{path.relative_to(ROOT)}:{line}"


def documented_methods(path: Path) -> set[str]:
    return {
        method.name
        for node in tree_of(path).body
        if isinstance(node, ast.ClassDef)
        for method in node.body
        if isinstance(method, Function) and ast.get_docstring(method)
    }


def has_decorator(method: Function, *names: str) -> bool:
    return any(getattr(decorator, "id", "") in names for decorator in method.decorator_list)


def exported_classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    """Yield the classes that `barnabas` itself offers, each with the file that defines it."""
    for name in barnabas.__all__:
        offered = getattr(barnabas, name)
        path = Path(inspect.getfile(offered)) if isinstance(offered, type) else Path()
        if path.suffix == ".py":  # the rest is compiled, or no class
            for node in tree_of(path).body:
                if isinstance(node, ast.ClassDef) and node.name == offered.__name__:
                    yield path, node


def test_nothing_is_marked_unfinished() -> None:
    files = [*python_files("src", "tests", "demo", "bench"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    marks = [
        place(path, number)
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if UNFINISHED.search(line)
    ]
    assert not marks, f"finish it, or file an issue: {marks}"


def test_every_module_says_what_it_is() -> None:
    files = python_files("src", "tests", "demo", "bench")
    silent = [place(path, 1) for path in files if not ast.get_docstring(tree_of(path))]
    assert not silent, f"modules without a docstring: {silent}"


def test_public_methods_of_exported_classes_have_docstrings() -> None:
    """A method that overrides one of a class in the same file may leave its description to that; so may a property
    whose name says it all."""
    classes = list(exported_classes())
    assert {"AsyncProducer", "Consumer", "Admin"} <= {node.name for _, node in classes}
    silent = [
        f"{place(path, method)} {node.name}.{method.name}"
        for path, node in classes
        for method in node.body
        if isinstance(method, Function)
        and not method.name.startswith("_")
        and method.name not in documented_methods(path)
        and not has_decorator(method, "overload", "property")
    ]
    assert not silent, f"without a docstring: {silent}"


def test_no_module_has_a_name_that_says_nothing() -> None:
    vague = [place(path, 1) for path in python_files("src", "tests", "demo", "bench") if path.stem in VAGUE_NAMES]
    assert not vague, f"name the file after what it holds: {vague}"


def test_no_error_is_swallowed_unseen() -> None:
    swallowed = [
        place(path, node)
        for path in python_files("src", "tests", "demo", "bench")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ExceptHandler)
        and len(node.body) == 1
        and isinstance(node.body[0], ast.Pass | ast.Continue)
        and (node.type is None or getattr(node.type, "id", "") in {"Exception", "BaseException"})
    ]
    assert not swallowed, f"`except: pass` hides bugs; name the error and why it does not matter: {swallowed}"


def test_only_the_clock_asks_what_time_it_is() -> None:
    calls = [
        f"{place(path, node)} {node.value.id}.{node.attr}"
        for path in python_files("src", "demo")
        if path != ROOT / "src/barnabas/clock.py"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr) in WALL_TIME
    ]
    assert not calls, f"take a Clock as an argument instead: {calls}"


def test_calls_that_only_unix_has_are_in_the_module_with_their_alternatives() -> None:
    """`portable.py` alone uses what it replaces. Other names that Windows lacks are used after a look whether they are
    there."""
    portable = ROOT / "src" / "barnabas" / "portable.py"
    replaced = {name for name in UNIX_NAMES if name in portable.read_text(encoding="utf-8")}
    assert {"pread", "writev", "nice", "O_CLOEXEC"} <= replaced
    wrong = []
    for path in python_files("src"):
        if path == portable or path in ON_UNIX_ALONE:
            continue
        nodes = list(ast.walk(tree_of(path)))
        probed = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        for node in nodes:
            names = {alias.name for alias in node.names} if isinstance(node, ast.Import | ast.ImportFrom) else set()
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                names = names & UNIX_NAMES if node.module == "os" else {node.module}
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
                names = {node.attr}
            used = names & UNIX_NAMES - (probed - replaced)
            wrong += [f"{place(path, node)} {name}" for name in sorted(used | names & UNIX_MODULES)]
    assert not wrong, f"use barnabas.portable, or look with hasattr: {wrong}"


def test_tests_wait_for_conditions_and_not_for_time() -> None:
    """The one place for a sleep is the loop of a `wait_...` function that looks for its condition."""
    waiting = {
        id(node)
        for path in python_files("tests")
        for function in ast.walk(tree_of(path))
        if isinstance(function, Function) and function.name.lstrip("_").startswith("wait_")
        for node in ast.walk(function)
    }
    sleeps = [
        place(path, node)
        for path in python_files("tests")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute)
        and (getattr(node.value, "id", ""), node.attr) == ("time", "sleep")
        and id(node) not in waiting
    ]
    assert not sleeps, f"wait for the condition, or move a ManualClock: {sleeps}"


def test_tests_assert_no_seconds() -> None:
    """Machines differ. What must be fast is compared with something else in the same run, or measured by `bench`."""
    asserted = [
        place(path, node)
        for path in python_files("tests")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Assert)
        for part in ast.walk(node.test)
        if isinstance(part, ast.BinOp)
        and isinstance(part.op, ast.Sub)
        and any(getattr(getattr(name, "value", None), "id", "") == "time" for name in ast.walk(part))
    ]
    assert not asserted, f"compare it with something in the same run, or count: {asserted}"


def test_links_between_documents_lead_somewhere() -> None:
    link = re.compile(r"\[[^\]]*\]\(([^)\s#]+)[^)]*\)")
    broken = [
        f"{place(page, number)} {target}"
        for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        for target in link.findall(line)
        if "://" not in target and not target.startswith("mailto:") and not (page.parent / target).exists()
    ]
    assert not broken, f"links to files that are not there: {broken}"


def test_files_named_in_the_documents_exist() -> None:
    named = re.compile(r"`((?:src/barnabas|tests|demo|tools|docs|bench)/[\w./-]+\.(?:py|sh|md|pyx))`")
    missing = [
        f"{place(page, number)} {target}"
        for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        for target in named.findall(line)
        if not (ROOT / target).exists()
    ]
    assert not missing, f"documents name files that are not there: {missing}"


def test_no_file_holds_a_path_of_one_machine() -> None:
    paths = re.compile(r"(?<![\w./])/(?:home/(?!ann/)|root/|Users/|work/)\w+")  # Ann is the user in the documents
    found = [
        place(path, number)
        for path in tracked_files()
        if path.suffix not in BINARY
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if paths.search(line)
    ]
    assert not found, f"a path that exists on one machine only: {found}"


def test_nothing_is_kept_that_a_program_left_behind() -> None:
    strange = [str(path.relative_to(ROOT)) for path in tracked_files() if path.suffix not in KINDS]
    assert not strange, f"files of a kind that is not known here; output of programs does not belong to it: {strange}"


def test_everything_that_the_package_offers_can_be_imported() -> None:
    names = [name for name in dir(barnabas) if not hasattr(barnabas, name)]
    assert not names, f"listed in __init__.pyi, but not there: {names}"
    assert {"Producer", "TopicPartition", "__version__"} <= {*barnabas.__all__}
