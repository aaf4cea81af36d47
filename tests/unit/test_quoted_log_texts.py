"""The log texts that the operations page quotes occur in the code."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "operations.md"
HEADING = "## What failures look like\n"
LOG_COLUMN = 2
"""The index of the column with log texts."""
PLACEHOLDER = re.compile(r"%[-#0 +]*\d*(?:\.\d+)?[a-zA-Z]")


def quoted_texts() -> list[str]:
    """Return the log texts in the table of failures, without the names of log levels."""
    section = PAGE.read_text(encoding="utf-8").split(HEADING)[1].split("\n## ")[0]
    rows = [re.split(r"(?<!\\)\|", line.strip().strip("|")) for line in section.splitlines() if line.startswith("|")]
    quoted = [text for row in rows[2:] for text in re.findall(r"`([^`]+)`", row[LOG_COLUMN])]
    return [text for text in quoted if text not in logging.getLevelNamesMapping()]


def string_constants(source: str) -> Iterator[str]:
    """Yield the string constants of a module without docstrings. Placeholders are empty."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield PLACEHOLDER.sub("", node.value)


@cache
def constants_of_the_code() -> str:
    paths = sorted((ROOT / "src" / "barnabas").rglob("*.py"))
    return "\n".join(text for path in paths for text in string_constants(path.read_text(encoding="utf-8")))


def test_table_quotes_log_texts() -> None:
    assert len(quoted_texts()) >= 10


@pytest.mark.parametrize("text", quoted_texts())
def test_quoted_log_text_occurs_in_the_code(text: str) -> None:
    assert text in constants_of_the_code()


def test_docstrings_are_no_log_texts() -> None:
    source = '"""a docstring"""\nlog.info("%s: the log " "is offline")\nraise Error(f"the log {name} is closed")\n'
    texts = list(string_constants(source))
    assert ": the log is offline" in texts
    assert "the log  is closed" in texts
    assert "a docstring" not in texts
