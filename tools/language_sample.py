"""Draw a random sample of prose for an independent reader: texts of this project and of Apache Kafka, mixed.

    .venv/bin/python tools/language_sample.py --kafka ~/src/kafka --seed 1a2b3c4 sample.json

The reader gets the texts without their origin (`--for-reader sample.json`), and classifies each as clear, odd or hard.
`--results result.csv sample.json` prints the results. docs/dev/language-review.md contains the instructions for the
reader and the results.
"""

from __future__ import annotations

import argparse
import ast
import csv
import html
import json
import random
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from language import comments, docstrings, log_messages

ROOT = Path(__file__).parents[1]
OWN_ITEMS, KAFKA_ITEMS = 150, 60
CLASSES = ("clear", "odd", "hard")
ORIGINS = {"barnabas": "Barnabas", "kafka": "Apache Kafka"}
"""The origins of items, with their titles."""
WORDS_MIN = 5
"""The minimum number of words. Shorter texts are too short to be unclear."""
FOLDERS = ("src", "bench", "demo", "tools")
JAVA_LOG = re.compile(r'\b(?:log|LOG|logger)\.(?:info|warn|error|debug)\(\s*"((?:[^"\\]|\\.)+)"')
JAVADOC = re.compile(r"/\*\*(.*?)\*/\s*(?:@\w+(?:\([^)]*\))?\s*)*([^\n{;]*)", re.DOTALL)
JAVA_COMMENT = re.compile(r"((?:^[ \t]*//[^\n]*\n)+)", re.MULTILINE)
HTML_PARAGRAPH = re.compile(r"<p>(.*?)(?:</p>|<p>|<ul>|<pre)", re.DOTALL)
LICENSE = "Licensed to the Apache"


@dataclass(frozen=True, slots=True)
class Item:
    """A text of a sample.

    :param origin: `barnabas` or `kafka`.
    :param place: the file and the line.
    :param kind: docstring, comment, log message, error message or paragraph.
    :param about: the name that the text documents, or the enclosing function's name; may be empty.
    """

    origin: str
    place: str
    kind: str
    about: str
    text: str


def own_items(root: Path = ROOT) -> Iterator[Item]:
    """Yield all texts of this project that have enough words."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            for line, kind, about, text in _of_python(path.read_text(encoding="utf-8")):
                if len(text.split()) >= WORDS_MIN:
                    yield Item("barnabas", f"{path.relative_to(root)}:{line}", kind, about, text)
    for path in sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md")]):
        if path.name == "language-review.md":
            continue
        for line, text in _paragraphs(path.read_text(encoding="utf-8")):
            if len(text.split()) >= WORDS_MIN:
                yield Item("barnabas", f"{path.relative_to(root)}:{line}", "paragraph", path.stem, text)


def kafka_items(checkout: Path) -> Iterator[Item]:
    """Yield texts of Apache Kafka's sources: Javadoc, comments, log messages and pages."""
    for path in sorted(checkout.rglob("*.java")):
        source = path.read_text(encoding="utf-8", errors="replace")
        for line, kind, about, text in _of_java(source):
            if len(text.split()) >= WORDS_MIN and LICENSE not in text:
                yield Item("kafka", f"{path.relative_to(checkout)}:{line}", kind, about, text)
    for path in sorted((checkout / "docs").rglob("*.html")):
        source = path.read_text(encoding="utf-8", errors="replace")
        for match in HTML_PARAGRAPH.finditer(source):
            text = html.unescape(_joined(re.sub(r"<[^>]*>", "", match[1])))
            if len(text.split()) >= WORDS_MIN and "#" not in text:
                place = f"{path.relative_to(checkout)}:{_line(source, match.start())}"
                yield Item("kafka", place, "paragraph", path.stem, text)


def _of_python(source: str) -> Iterator[tuple[int, str, str, str]]:
    """Yield line, kind, name and text of each docstring, comment, log message and error message."""
    tree = ast.parse(source)
    for line, name, text in docstrings(tree):
        yield line, "docstring", name, _joined(text)
    for line, text in comments(source):
        yield line, "comment", _enclosing(tree, line), text
    for line, text in log_messages(tree):
        yield line, "log message", "", text
    for line, text in _error_messages(tree):
        yield line, "error message", "", text


def _error_messages(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Raise(exc=ast.Call(args=[*arguments])):
                for text in filter(None, map(_literal, arguments)):
                    yield node.lineno, text
            case _:
                pass


def _literal(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(
                each.value if isinstance(each, ast.Constant) and isinstance(each.value, str) else "{...}"
                for each in values
            )
        case _:
            return ""


def _enclosing(tree: ast.AST, line: int) -> str:
    """Return the name of the innermost function or class around a line."""
    inside = [
        (node.lineno, node.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return max(inside)[1] if inside else "module"


def _of_java(source: str) -> Iterator[tuple[int, str, str, str]]:
    for match in JAVADOC.finditer(source):
        text = _joined(re.sub(r"^\s*\*\s?", "", match[1], flags=re.MULTILINE))
        name = re.search(r"(\w+)\s*(?:\(|=|$)", match[2].strip())
        yield _line(source, match.start()), "docstring", name[1] if name else "", re.sub(r"</?\w+/?>", "", text)
    for match in JAVA_COMMENT.finditer(source):
        text = " ".join(line.strip().lstrip("/ ") for line in match[1].splitlines())
        yield _line(source, match.start()), "comment", "", text
    for match in JAVA_LOG.finditer(source):
        yield _line(source, match.start()), "log message", "", match[1]


def _line(source: str, position: int) -> int:
    return source.count("\n", 0, position) + 1


def _paragraphs(text: str) -> Iterator[tuple[int, str]]:
    block: list[str] = []
    first = 0
    is_code = False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        is_text = bool(line.strip()) and not is_code and not re.match(r"\s*(#|\||```|<|!\[|---|    )", line)
        if block and (not is_text or re.match(r"\s*([-*]|\d+\.) ", line)):
            yield first, " ".join(block)
            block = []
        if is_text:
            first = first if block else number
            block.append(line.strip())


def _joined(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def results_table(items: list[dict[str, str]], classes: dict[int, tuple[str, str]]) -> str:
    """Return the results of a reader as Markdown: the shares, and the place of each item without its text.

    :param classes: the class and the remark of each item, by its number in the sample.
    """
    counts = {origin: dict.fromkeys(CLASSES, 0) for origin in ORIGINS}
    rows = []
    for number, item in enumerate(items, 1):
        found, remark = classes[number]
        counts[item["origin"]][found] += 1
        if item["origin"] == "barnabas" and found != "clear":
            rows.append(f"| `{item['place']}` | {item['kind']} | {found} | {remark} |")
    lines = ["| | clear | odd | hard |", "|---|---:|---:|---:|"]
    for origin, title in ORIGINS.items():
        total = sum(counts[origin].values())
        shares = " | ".join(f"{count} ({count / total:.0%})" for count in counts[origin].values())
        lines.append(f"| {title} | {shares} |")
    head = ["", "| item that is not clear | kind | class | remark of the reader |", "|---|---|---|---|"]
    places = textwrap.fill(", ".join(f"`{each['place']}`" for each in items), 120, break_on_hyphens=False)
    return "\n".join([*lines, *head, *rows, "", "The places of all items, in the order of the sample:", "", places])


def main() -> int:
    """Write a sample, or print a sample for the reader."""
    parser = argparse.ArgumentParser(description="Draw a sample of prose for an independent reader.")
    parser.add_argument("file", type=Path, help="the sample, as JSON")
    parser.add_argument("--kafka", type=Path, help="a checkout of Apache Kafka")
    parser.add_argument("--seed", help="the hash of the commit")
    parser.add_argument("--for-reader", action="store_true", help="print the items of the file without their origin")
    parser.add_argument("--results", type=Path, help="print the results in this CSV file: number, class, remark")
    given = parser.parse_args()
    if given.results:
        items = json.loads(given.file.read_text(encoding="utf-8"))
        with given.results.open(encoding="utf-8", newline="") as file:
            rows = [[*map(str.strip, row), ""] for row in csv.reader(file)]
        classes = {int(number): (found, remark) for number, found, remark, *_ in rows}
        sys.stdout.write(results_table(items, classes) + "\n")
        return 0
    if given.for_reader:
        items = json.loads(given.file.read_text(encoding="utf-8"))
        for number, each in enumerate(items, 1):
            about = f" ({each['about']})" if each["about"] else ""
            sys.stdout.write(f"{number}. [{each['kind']}{about}] {each['text']}\n\n")
        return 0
    if given.kafka is None or given.seed is None:
        parser.error("a new sample needs --kafka and --seed")
    draw = random.Random(given.seed)
    items = draw.sample(list(own_items()), OWN_ITEMS) + draw.sample(list(kafka_items(given.kafka)), KAFKA_ITEMS)
    draw.shuffle(items)
    given.file.write_text(json.dumps([asdict(each) for each in items], indent=1, ensure_ascii=False), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
