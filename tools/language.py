"""Find the language faults that a program can detect: `python tools/language.py PATH...` prints one line per fault.

`make check` runs it on the whole project (tests/tidy/test_language.py). The section *Language* of CONTRIBUTING.md
contains the rules.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

SUBJECT_LENGTH_MAX = 72
"""The maximum length of a commit's subject, in characters."""

CLAUSE = re.compile(
    r"(what|whatever|how(?!-to)|which|whichever|who|whoever|whom|whose|where|wherever|whether|why|that (?=\w+ \w+))\b",
    re.I,
)
"""The beginning of a sentence whose subject is a clause."""
FRAGMENT = re.compile(r"(when|whenever)\b[^,]*\.?$", re.I)
"""A sentence with a *when* clause but without a main clause."""
VERB = "tel" + "l"  # the word is split in two parts, so that this file passes its own check
REPORTED = re.compile(
    rf"(?<![.\w])({VERB}s?|{VERB}ing|tol[d])\b|\b{VERB}(s|ing)?(?=_)|tol[d](?=_)|(?<=_)({VERB}s?|tol[d])\b", re.I
)
"""Words to avoid: Kafka says notify, report, return, record or log. Python's file method is not a fault."""
WIRE_NAME = "# wire name"
"""Marks a line with a name in a stored format, which cannot change."""
UNCLEAR_BEGINNING = re.compile(
    r"(it|they|this|that|these|those|he|she|what|who|which|where|whether|nothing|nobody|something|somebody|there|so|"
    r"of|as|but|and|or|by|at|in|on|from|for|with|without|again|still|now|here|meanwhile|also)\b",
    re.I,
)
"""First words of log messages that do not name a subject."""
LOG_METHODS = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log", "event"})
PLACEHOLDER = re.compile(r"%[-#0 +]*\d*(?:\.\d+)?[a-zA-Z%]|\{[^}]*\}")
WORD = re.compile(r"[A-Za-z]{3,}")


class Fault(NamedTuple):
    """A place in a file that breaks a rule of the house style on language.

    :param line: the line number, counted from 1.
    :param text: the beginning of the text with the fault.
    """

    path: Path
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.kind}: {self.text}"


def faults_of(path: Path) -> Iterator[Fault]:
    """Yield the faults of a Python or Markdown file."""
    text = path.read_text(encoding="utf-8")
    found = _faults_of_python(text) if path.suffix == ".py" else _faults_of_markdown(text)
    for line, kind, excerpt in sorted(set(found)):
        yield Fault(path, line, kind, excerpt[:100])


def faults_of_subjects(subjects: Sequence[str]) -> list[str]:
    """Return the commit subjects that are too long."""
    return [each for each in subjects if len(each) > SUBJECT_LENGTH_MAX]


def _faults_of_python(text: str) -> Iterator[tuple[int, str, str]]:
    tree = ast.parse(text)
    for line, _, prose in docstrings(tree):
        if CLAUSE.match(prose) or FRAGMENT.match(prose.split("\n\n")[0].replace("\n", " ")):
            yield line, "docstring begins with a clause", prose.splitlines()[0]
    for line, prose in comments(text):
        if CLAUSE.match(prose) or FRAGMENT.match(prose):
            yield line, "comment begins with a clause", prose
    for line, message in log_messages(tree):
        bare = PLACEHOLDER.sub("", message)
        if UNCLEAR_BEGINNING.match(message) or (not message.startswith("%") and len(WORD.findall(bare)) <= 1):
            yield line, "log message does not name its subject", message
    for number, each in enumerate(text.splitlines(), 1):
        if REPORTED.search(each) and WIRE_NAME not in each:
            yield number, VERB, each.strip()


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the documented name and the text of each docstring, including attribute docstrings.

    >>> list(docstrings(ast.parse('def read():\\n    "Read it."\\nLIMIT = 3\\n"The limit."')))
    [(4, 'LIMIT', 'The limit.'), (2, 'read', 'Read it.')]
    """
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        name = getattr(node, "name", "module")
        for each in body if isinstance(body, list) else ():
            match each:
                case ast.Expr(value=ast.Constant(value=str(text))) if text.strip():
                    yield each.lineno, name, text.strip()
                case ast.AnnAssign(target=target) | ast.Assign(targets=[target]):
                    name = ast.unparse(target)
                case _:
                    pass


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the comments with their line numbers. Consecutive full-line comments are joined."""
    block: list[str] = []
    begin = end = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        prose = token.string.lstrip("#:! ").strip()
        if re.match(r"(noqa|type: ignore)[^-]*- ", prose):
            prose = prose.split("- ", 1)[1]
        is_own_line = not token.line[: token.start[1]].strip()
        if is_own_line and block and token.start[0] == end + 1:
            block.append(prose)
        else:
            if block:
                yield begin, " ".join(block)
            block, begin = [prose], token.start[0]
        end = token.start[0] if is_own_line else -1
    if block:
        yield begin, " ".join(block)


def log_messages(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the literal messages in logging calls, with their line numbers."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=receiver, attr=method)) if method in LOG_METHODS:
                literals = [each.value for each in node.args if isinstance(each, ast.Constant)]
                if "log" in ast.unparse(receiver).lower() and literals and isinstance(literals[0], str):
                    yield node.lineno, literals[0]


def _faults_of_markdown(text: str) -> Iterator[tuple[int, str, str]]:
    is_code = False
    before = ""
    for number, each in enumerate(text.splitlines(), 1):
        if each.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            prose = re.sub(r"^\s*([-*>]|\d+\.)\s+", "", each).lstrip("*_ ")
            begins = not before.strip() or prose != each.lstrip("*_ ")
            if begins and not each.startswith("#") and CLAUSE.match(prose) and not prose.rstrip("*").endswith("?"):
                yield number, "paragraph begins with a clause", prose
            if REPORTED.search(re.sub(r"`[^`]*`", "", each)):
                yield number, VERB, each.strip()
        before = each


def main() -> int:
    """Print the faults of the files and folders in the arguments."""
    count = 0
    for name in sys.argv[1:]:
        root = Path(name)
        files = sorted(each for each in root.rglob("*") if each.suffix in {".py", ".md"}) if root.is_dir() else [root]
        for path in files:
            for fault in faults_of(path):
                sys.stdout.write(f"{fault}\n")
                count += 1
    sys.stderr.write(f"{count} faults\n")
    return int(count > 0)


if __name__ == "__main__":
    raise SystemExit(main())
