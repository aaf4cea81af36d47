"""The subjects of a registry: their versions, the differences between versions, and the check of a new schema."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.responses import Response

from barnabas.console.context import Context
from barnabas.console.pages.fields import whole_number
from barnabas.console.pages.listing import listing
from barnabas.errors import SchemaRegistryError
from barnabas.serialization.registry_client import Schema

SHOWN_LINES_MAX = 5_000


async def schemas(context: Context) -> Response:
    """Show the subjects; a script gets only the table."""
    rows = listing(context, await context.schemas.subjects(), str, {"name": str})
    return context.page("_subjects.html" if context.is_partial else "subjects.html", title="Schemas", list=rows)


async def subject(context: Context) -> Response:
    """Show a version of a subject, and how it differs from another version."""
    name = context.query("name")
    versions = await context.schemas.versions(name)
    number = whole_number(context.query("version") or str(versions[-1]), "version")
    before = [each for each in versions if each < number]
    compared = whole_number(context.query("compare") or str(before[-1] if before else number), "compare")
    if number not in versions or compared not in versions:
        raise HTTPException(404, f"subject {name} has no such version")
    schema, other = await context.schemas.version(name, number), await context.schemas.version(name, compared)
    return await _page(context, name, versions, number, compared, schema, other)


async def check(context: Context) -> Response:
    """Check whether a schema can become the next version of a subject."""
    form = await context.form(changes=False)
    name = form.get("name", "")
    versions = await context.schemas.versions(name)
    schema = await context.schemas.version(name, versions[-1])
    wanted = Schema(form.get("schema", ""), schema.kind, schema.references)
    try:
        problems = await context.schemas.incompatibilities(name, wanted)
    except SchemaRegistryError as error:
        problems = [str(error)]
    return await _page(
        context, name, versions, versions[-1], versions[-1], schema, schema, text=wanted.text, problems=problems
    )


async def _page(
    context: Context,
    name: str,
    versions: Sequence[int],
    number: int,
    compared: int,
    schema: Schema,
    other: Schema,
    *,
    text: str | None = None,
    problems: Sequence[str] | None = None,
) -> Response:
    old, new = _lines(other), _lines(schema)
    if text is not None:
        old, new = new, _lines(Schema(text, schema.kind))
    return context.page(
        "subject.html",
        title=name,
        subject=name,
        versions=versions,
        number=number,
        compared=compared,
        schema=schema,
        lines=new,
        difference=difference(old, new),
        text="\n".join(new) if text is None else text,
        problems=problems,
    )


def difference(old: Sequence[str], new: Sequence[str]) -> list[tuple[str, str]]:
    """Return the lines of two texts with their kind: `+` for new, `-` for old, and a blank for common lines.

    >>> difference(["a", "b"], ["a", "c"])
    [(' ', 'a'), ('-', 'b'), ('+', 'c')]
    """
    lines = difflib.ndiff(old, new) if max(len(old), len(new)) < 1_000 else difflib.unified_diff(old, new, n=3)
    return [(each[0], each[2:] if each[1:2] == " " else each[1:]) for each in lines if each[0] in " +-"]


def _lines(schema: Schema) -> list[str]:
    """Return the text of a schema in lines; JSON with indents."""
    text = schema.text
    if schema.kind != "PROTOBUF":
        try:
            text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            text = schema.text
    return text.splitlines()[:SHOWN_LINES_MAX]
