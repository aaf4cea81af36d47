"""Generate docs/reference/protocol.md from the declarations of the messages and the docstrings of the handlers.

`python tools/protocol_reference.py` writes the page. A test compares each API on the page with its code. A new API may
be missing until the next release, which regenerates the page.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Collection
from pathlib import Path

from barnabas.broker.authorization.rules import Row
from barnabas.broker.authorization.table import RULES, rules_by_key
from barnabas.broker.handlers import SERVED
from barnabas.broker.pipeline.call import ServedApi
from barnabas.protocol.declare import message_of

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "protocol.md"

HEAD = """\
# The protocol

Barnabas speaks Kafka's protocol. `python tools/protocol_reference.py` generates this page from the declarations in
`src/barnabas/protocol/messages/` and the handlers in `src/barnabas/broker/handlers/`.

A broker advertises only versions that it supports completely. If a client sends an unsupported API or version, the
broker closes the connection and logs one line. The exception is ApiVersions: the broker responds to an unsupported
version in version 0, with the list of supported APIs.

| key | API | versions | flexible from | purpose |
|---|---|---|---|---|
"""


PERMISSIONS = """\
## Permissions

With ACLs (`authorizer.class.name`), each API needs these operations. A missing permission is an error for the part of
the request in the last column. The rules are those of Kafka: an operation needs an ACL that allows it, or a super user;
READ, WRITE, DELETE and ALTER imply DESCRIBE, and ALTER_CONFIGS implies DESCRIBE_CONFIGS. The listener for brokers needs
CLUSTER_ACTION on the cluster for each request.

| API | operation | on | refused |
|---|---|---|---|
"""


def page(keys: Collection[int] = SERVED.keys()) -> str:
    """Return the text of the page for the given API keys."""
    served = [SERVED[key] for key in sorted(keys)]
    return HEAD + "".join(map(_row, served)) + "\n" + permissions(keys) + "\n" + "\n".join(map(_section, served))


def permissions(keys: Collection[int] = SERVED.keys()) -> str:
    """Return the part of the page about ACLs for the given API keys."""
    rules = rules_by_key(RULES)
    rows = [_permission(SERVED[key], row) for key in sorted(keys) for row in rules[key].rows]
    without = ", ".join(SERVED[key].api.name for key in sorted(keys) if not rules[key].rows)
    return PERMISSIONS + "".join(rows) + f"\nWithout any permission: {without}.\n"


def _permission(served: ServedApi, row: Row) -> str:
    return f"| {served.api.name} | {row.operation.name} | {row.resource} | {row.refusal} |\n"


def _row(served: ServedApi) -> str:
    versions = served.versions
    span = str(versions.start) if len(versions) == 1 else f"{versions.start}-{versions.stop - 1}"
    since = message_of(served.api.request).flexible_since
    flexible = str(since) if since in versions else "-"
    purpose = _messages_doc(served).split("\n\n")[0].partition("): ")[2].split(". ")[0].rstrip(".")
    return f"| {served.api.key} | [{served.api.name}](#{served.api.name.lower()}) | {span} | {flexible} | {purpose} |\n"


def _section(served: ServedApi) -> str:
    history = _messages_doc(served).partition("): ")[2]
    handler = inspect.getdoc(inspect.getmodule(served.function)) or ""
    return f"## {served.api.name}\n\n{history[0].upper()}{history[1:]}\n\n{handler}\n"


def _messages_doc(served: ServedApi) -> str:
    return inspect.getdoc(inspect.getmodule(served.api.request)) or ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE.name}\n")
