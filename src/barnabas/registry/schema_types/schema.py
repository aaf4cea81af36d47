"""The interface of a parsed schema, the same for all types."""

from __future__ import annotations

from typing import Protocol

NESTING_MAX = 100
"""How deeply a schema may be nested: what is made by hand or by programs stays far below."""


class SchemaSyntaxError(ValueError):
    """A text that is no schema of its kind, or refers to what is not there."""


class Schema(Protocol):
    """A parsed schema."""

    @property
    def text(self) -> str:
        """The schema as text, the same for all texts that differ in spaces only."""
        ...

    @property
    def normalized(self) -> str:
        """The schema as text, the same for all texts that differ in nothing that matters."""
        ...

    def read_incompatibilities(self, writer: Schema) -> list[str]:
        """Return why this schema cannot read what `writer` wrote; empty where it can. Both are of one kind."""
        ...
