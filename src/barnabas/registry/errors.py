"""The errors of the REST interface. Codes and messages are the same as in Confluent's registry, because clients know
them."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.errors import BarnabasError

SCHEMA_SHOWN_MAX = 1_000
"""The maximum number of characters of a schema or a reason in an error message."""


def cut(text: str) -> str:
    """Return the beginning of a long text for an error message."""
    return text if len(text) <= SCHEMA_SHOWN_MAX else f"{text[:SCHEMA_SHOWN_MAX]}..."


class RegistryError(BarnabasError):
    """A request was refused.

    :param code: Confluent's error code; its first three digits are the HTTP status.

    >>> error = RegistryError.subject_not_found("clicks-value")
    >>> error.status, error.code, str(error)
    (404, 40401, "Subject 'clicks-value' not found.")
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        """The HTTP status code."""
        return self.code if self.code < 1000 else self.code // 100

    def __str__(self) -> str:
        return self.message

    @classmethod
    def subject_not_found(cls, subject: str) -> RegistryError:
        """Return the error for a subject without versions."""
        return cls(40401, f"Subject '{subject}' not found.")

    @classmethod
    def version_not_found(cls, version: int | str) -> RegistryError:
        """Return the error for a version that the subject does not have."""
        return cls(40402, f"Version {version} not found.")

    @classmethod
    def schema_not_found(cls, schema_id: int | None = None) -> RegistryError:
        """Return the error for an unknown schema id, or for a schema that is not a version of the subject."""
        return cls(40403, "Schema not found" if schema_id is None else f"Schema {schema_id} not found")

    @classmethod
    def subject_soft_deleted(cls, subject: str) -> RegistryError:
        """Return the error for a soft deletion of a soft-deleted subject."""
        return cls(40404, f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently")

    @classmethod
    def subject_not_soft_deleted(cls, subject: str) -> RegistryError:
        """Return the error for a permanent deletion of a subject that is not soft-deleted."""
        return cls(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")

    @classmethod
    def version_soft_deleted(cls, subject: str, version: int) -> RegistryError:
        """Return the error for a soft deletion of a soft-deleted version."""
        return cls(
            40406, f"Subject '{subject}' Version {version} was soft deleted.Set permanent=true to delete permanently"
        )

    @classmethod
    def version_not_soft_deleted(cls, subject: str, version: int) -> RegistryError:
        """Return the error for a permanent deletion of a version that is not soft-deleted."""
        return cls(
            40407, f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
        )

    @classmethod
    def no_compatibility_of(cls, subject: str) -> RegistryError:
        """Return the error for a subject that has no own compatibility level."""
        return cls(40408, f"Subject '{subject}' does not have subject-level compatibility configured")

    @classmethod
    def no_mode_of(cls, subject: str) -> RegistryError:
        """Return the error for a subject that has no own mode."""
        return cls(40409, f"Subject '{subject}' does not have subject-level mode configured")

    @classmethod
    def incompatible(cls, subject: str, reasons: list[str]) -> RegistryError:
        """Return the error for a schema that is incompatible with earlier versions of the subject."""
        return cls(
            409,
            f'Schema being registered is incompatible with an earlier schema for subject "{subject}", '
            f"details: [{', '.join(reasons)}]",
        )

    @classmethod
    def invalid_schema(
        cls, reason: str, kind: str, text: str, references: Iterable[tuple[str, str, int]]
    ) -> RegistryError:
        """Return the error for an invalid schema, with Confluent's message; a long schema is truncated.

        :param references: name, subject and version of each reference.
        """
        shown, reason = cut(text), cut(reason)
        refs = ", ".join(
            f"{{name='{name}', subject='{subject}', version={version}}}" for name, subject, version in references
        )
        return cls(42201, f"Invalid schema {shown} with refs [{refs}] of type {kind}, details: {reason}")

    @classmethod
    def invalid_version(cls, version: str) -> RegistryError:
        """Return the error for a version that is neither a positive 32-bit number nor `latest`."""
        return cls(
            42202,
            f"The specified version '{version}' is not a valid version id. Allowed values are between [1, 2^31-1] "
            'and the string "latest"',
        )

    @classmethod
    def invalid_level(cls) -> RegistryError:
        """Return the error for an unknown compatibility level."""
        return cls(
            42203,
            "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
            "forward_transitive, and full_transitive",
        )

    @classmethod
    def invalid_mode(cls) -> RegistryError:
        """Return the error for an unknown mode."""
        return cls(42204, "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, and IMPORT")

    @classmethod
    def not_permitted(cls, reason: str) -> RegistryError:
        """Return the error for a change that the mode forbids."""
        return cls(42205, reason)

    @classmethod
    def reference_exists(cls, subject: str, version: int) -> RegistryError:
        """Return the error for the deletion of a version that other schemas refer to."""
        return cls(
            42206,
            "One or more references exist to the schema "
            f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}.",
        )

    @classmethod
    def invalid_body(cls, reason: str) -> RegistryError:
        """Return the error for an invalid request body."""
        return cls(422, reason)

    @classmethod
    def denied(cls, operation: str, resource: str) -> RegistryError:
        """Return the error for a client that lacks a permission."""
        return cls(40301, f"User is denied operation {operation} on {resource}")

    @classmethod
    def no_acls(cls) -> RegistryError:
        """Return the error for a registry that does not know the current ACLs."""
        return cls(503, "The registry cannot read the ACLs from the brokers now; try again later")

    @classmethod
    def store(cls, reason: str) -> RegistryError:
        """Return the error for a failed read or write of the schema topic."""
        return cls(50001, f"Error while accessing the backend data store: {reason}")

    @classmethod
    def timed_out(cls, reason: str) -> RegistryError:
        """Return the error for an operation that timed out. The operation may have succeeded."""
        return cls(50002, f"Operation timed out: {reason}")
