"""The tests that cover a file (`tools/tests_for.py`)."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TOOL = runpy.run_path(str(ROOT / "tools" / "tests_for.py"))
COVERING: Callable[[str, Mapping[str, Sequence[str]]], list[str]] = TOOL["covering"]


def test_test_modules_that_import_a_module_cover_it() -> None:
    imports = {"tests.unit.test_a": ["barnabas.a"], "tests.unit.test_b": ["barnabas.b"], "barnabas.b": ["barnabas.a"]}
    assert COVERING("barnabas.a", imports) == ["tests.unit.test_a"]


def test_test_modules_that_import_it_through_helpers_cover_it() -> None:
    imports = {"tests.logs": ["barnabas.a"], "tests.steps": ["tests.logs"], "tests.unit.test_a": ["tests.steps"]}
    assert COVERING("barnabas.a", imports) == ["tests.unit.test_a"]


def test_module_without_tests_is_covered_by_those_of_its_importers() -> None:
    imports = {"barnabas.b": ["barnabas.a"], "barnabas.c": ["barnabas.b"], "tests.test_c": ["barnabas.c"]}
    assert COVERING("barnabas.a", imports) == ["tests.test_c"]


def test_modules_that_import_each_other_end_the_search() -> None:
    assert COVERING("barnabas.a", {"barnabas.a": ["barnabas.b"], "barnabas.b": ["barnabas.a"]}) == []


def test_file_of_this_repository_is_covered_by_its_doctests_and_unit_tests() -> None:
    found = TOOL["tests_for"](Path("src/barnabas/metrics/exposition.py"))
    assert found[0] == "src/barnabas/metrics/exposition.py"
    assert "tests/unit/metrics/test_metric.py" in found


@pytest.mark.parametrize("arguments", [[], ["README.md"], ["src/barnabas/no_such_file.py"]], ids=str)
def test_other_arguments_are_refused_with_the_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert TOOL["main"](arguments) == 2
    assert "make test-for FILE=src/" in capsys.readouterr().err
