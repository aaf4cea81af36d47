"""The interface of parsed schemas of all types."""

from __future__ import annotations

from typing import Protocol

NESTING_MAX = 100
"""The maximum nesting depth of a schema. Real schemas are nested much less."""


class SchemaSyntaxError(ValueError):
    """A text is not a valid schema of its type, or refers to something that does not exist."""


class Schema(Protocol):
    """A parsed schema."""

    @property
    def text(self) -> str:
        """The schema as canonical text, equal for all texts that differ only in white space."""
        ...

    @property
    def normalized(self) -> str:
        """The schema as normalized text, equal for all texts with the same meaning."""
        ...

    def read_incompatibilities(self, writer: Schema) -> list[str]:
        """Return the reasons why this schema cannot read data of `writer`, a schema of the same type. Return an empty
        sequence if it can."""
        ...
