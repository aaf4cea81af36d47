"""The comparison of the public API with the last release, on small source trees."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
TOOL: dict[str, Any] = runpy.run_path(str(ROOT / "tools/public_api.py"))

CLIENT = """
from dataclasses import dataclass
from enum import IntEnum
from barnabas.core import Operations as Base

class Client(Base):
    def __init__(self, address: str = "a", **settings) -> None:
        self.address = address
        self._secret = 1
    def poll(self, max_records: int = 5) -> list: ...
    def _hidden(self): ...
    @property
    def size(self) -> int: ...

@dataclass(frozen=True)
class Point:
    x: int
    y: int = 0

class Code(IntEnum):
    ONE = 1
"""
CORE = """
class Operations:
    async def close(self, *, timeout_s: float | None = None) -> None: ...
"""
SETTINGS = """
class ClientSettings(TypedDict): ...
class ProducerSettings(ClientSettings):
    linger_ms: int
class ConsumerSettings(ClientSettings): ...
"""
NAMES = "from barnabas.client import Client as Client\nfrom barnabas.client import Point as Point\n"
CODE = "from barnabas.client import Code as Code\n"
OLD_NAME = "OldClient = Client\n"


@pytest.fixture
def stub(tmp_path: Path) -> Callable[..., str]:
    """Make the stub of a tree whose files have other texts than the usual ones."""

    def make(**changed: str) -> str:
        files = {"client": CLIENT, "core": CORE, "names": NAMES + CODE + OLD_NAME, "settings": SETTINGS, **changed}
        package = tmp_path / "barnabas"
        (package / "client").mkdir(parents=True, exist_ok=True)
        (package / "__init__.pyi").write_text(files["names"])
        (package / "client" / "__init__.py").write_text(files["client"])
        (package / "client" / "setting_types.py").write_text(files["settings"])
        (package / "core.py").write_text(files["core"])
        text: str = TOOL["flat_stub"](tmp_path)
        return text

    return make


def test_stub_has_public_members_inherited_ones_fields_and_settings(stub: Callable[..., str]) -> None:
    text = stub()
    for line in (
        "class Client:",
        "    async def close(self, *, timeout_s: float | None = None) -> None: ...",
        "    def poll(self, max_records: int = 5) -> list: ...",
        "    size: int",
        "    def __init__(self, x: int, y: int = ...): ...",
        "class Code(IntEnum):",
        "    ONE = ...",
        "class OldClient:",
        "class ProducerSettings(ClientSettings):",
        "    linger_ms: int",
    ):
        assert line in text.splitlines(), text
    assert "_hidden" not in text
    assert "_secret" not in text


def test_stub_of_an_unchanged_tree_breaks_nothing(stub: Callable[..., str]) -> None:
    assert TOOL["breaks"](stub(), stub()) == []


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        (
            {"client": CLIENT.replace("self, max_records", "self, *, max_records")},
            "Client.poll(max_records): Parameter kind was changed: positional or keyword -> keyword-only",
        ),
        ({"client": CLIENT.replace("def poll", "def fetch")}, "Client.poll: Public object was removed"),
        ({"core": CORE.replace("close", "end")}, "Client.close: Public object was removed"),
        ({"client": CLIENT.replace("self.address = address", "pass")}, "Client.address: Public object was removed"),
        ({"client": CLIENT.replace("y: int = 0", "y: int")}, "Point.__init__(y): Parameter is now required"),
        ({"client": CLIENT.replace("ONE = 1", "TWO = 2")}, "Code.ONE: Public object was removed"),
        ({"names": NAMES + OLD_NAME}, "Code: Public object was removed"),
        ({"names": NAMES + CODE}, "OldClient: Public object was removed"),
        (
            {"settings": SETTINGS.replace("linger_ms", "linger_s")},
            "ProducerSettings.linger_ms: Public object was removed",
        ),
    ],
    ids=["kind", "method", "inherited", "attribute", "field", "constant", "name", "old-name", "setting"],
)
def test_break_is_found(stub: Callable[..., str], changed: dict[str, str], found: str) -> None:
    assert found in TOOL["breaks"](stub(), stub(**changed))


def test_additions_break_nothing(stub: Callable[..., str]) -> None:
    more = CLIENT.replace("max_records: int = 5", "max_records: int = 5, *, timeout_s: float = 1.0")
    assert TOOL["breaks"](stub(), stub(client=more, names=NAMES + CODE + OLD_NAME)) == []


def test_accepted_breaks_pass_until_they_are_none(stub: Callable[..., str]) -> None:
    now = stub(names=NAMES + OLD_NAME)
    meant = TOOL["accepted"]("# Accepted\n\nThese:\n\n- Code: Public object was removed\n")
    assert TOOL["differences"](stub(), now, meant) == []
    [stale] = TOOL["differences"](now, now, meant)
    assert stale == "breaks nothing any more: Code: Public object was removed"
