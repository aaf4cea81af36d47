"""All connections in the package get the security settings of their component."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import barnabas

SOURCE = Path(barnabas.__file__).parent
CLIENTS = {"Admin", "AsyncAdmin", "Producer", "AsyncProducer", "Consumer", "AsyncConsumer"}
WITHOUT_SECURITY = {"laboratory/perf/pipelined_workload.py"}
"""The modules that call `dial` without `security`. They refuse settings with a security protocol."""
ADDRESS_ONLY: set[str] = set()
"""The modules whose clients get an address without settings."""


CALLS = re.compile(r"\b(dial|(Async)?(Admin|Producer|Consumer))\(")


def trees() -> dict[str, ast.Module]:
    """Return the modules that may create connections, by path."""
    texts = {str(path.relative_to(SOURCE)): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
    return {module: ast.parse(text) for module, text in texts.items() if CALLS.search(text)}


def calls(tree: ast.AST, names: set[str]) -> list[ast.Call]:
    return [
        each
        for each in ast.walk(tree)
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id in names
    ]


def test_each_dial_gets_the_security_settings() -> None:
    without = {
        module
        for module, tree in trees().items()
        for call in calls(tree, {"dial"})
        if not any(keyword.arg in {"security", None} for keyword in call.keywords)  # None: `**options` hands all on
    }
    assert without == WITHOUT_SECURITY


def test_no_client_gets_an_address_without_settings() -> None:
    without = set()
    for module, tree in trees().items():
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
            addresses = {each.arg for each in arguments if each.annotation and ast.unparse(each.annotation) == "str"}
            for call in calls(function, CLIENTS):
                has_settings = any(keyword.arg is None for keyword in call.keywords)
                if (
                    call.args
                    and isinstance(call.args[0], ast.Name)
                    and call.args[0].id in addresses
                    and not has_settings
                ):
                    without.add(module)
    assert without == ADDRESS_ONLY
