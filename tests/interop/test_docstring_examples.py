"""The examples in the docstrings of the public clients run as they are, except for the address of the broker."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator

import pytest

import barnabas
from tests.interop.test_readme import run_snippet


def examples(documented: object) -> Iterator[str]:
    """Yield the indented blocks of a docstring that use a client."""
    text = inspect.getdoc(documented) or ""
    for block in re.findall(r"(?:^ {4}.*\n?|^\n(?= {4}))+", text, re.MULTILINE):
        code = textwrap.dedent(block).strip("\n")
        if "with barnabas." in code:
            yield code


def program(code: str) -> str:
    """Return a whole program with the code of an example."""
    if "await " in code or "async " in code:
        return f"import asyncio, barnabas\nasync def main():\n{textwrap.indent(code, '    ')}\nasyncio.run(main())\n"
    return f"import barnabas\n{code}\n"


DOCUMENTED = [
    barnabas.Producer,
    barnabas.Producer.send_many,
    barnabas.Deliveries,
    barnabas.AsyncProducer,
    barnabas.Consumer,
    barnabas.MessageStream,
    barnabas.AsyncConsumer,
    barnabas.Admin,
    barnabas.Admin.alter_config,
    barnabas.AsyncAdmin,
]


def test_examples_of_the_public_clients_run_and_print(broker) -> None:
    printed = {}
    for documented in DOCUMENTED:
        (code,) = examples(documented)
        printed[documented.__qualname__] = run_snippet(program(code), broker.bootstrap)
    assert printed["Producer"] == "0\n"
    assert printed["Producer.send_many"] == "[1, 2]\n"
    assert printed["Deliveries"] == "3 2\n"
    assert printed["AsyncProducer"] == "5\n[6, 7]\n"
    assert printed["Consumer"] == "0 0 b'/jobs'\n"
    assert printed["MessageStream"] == "b'/jobs'\n"
    assert printed["Admin"] == "['clicks', 'views']\n"
    assert printed["AsyncAdmin"] == "['clicks', 'likes', 'views']\n"
    with barnabas.Admin(broker.bootstrap) as admin:
        assert admin.describe_config("clicks")["retention.ms"].value == "86400000"


@pytest.mark.parametrize("name", ["Producer", "AsyncProducer", "Consumer", "AsyncConsumer", "Admin", "AsyncAdmin"])
def test_each_client_has_an_example(name: str) -> None:
    assert list(examples(getattr(barnabas, name)))
