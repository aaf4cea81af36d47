"""What a registry refuses, under the codes of Confluent's registry, which all clients of its interface know."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.errors import BarnabasError

SCHEMA_SHOWN_MAX = 1_000
"""How many characters of a schema, or of a reason, an error repeats."""


def cut(text: str) -> str:
    """Return the beginning of a text that an error repeats."""
    return text if len(text) <= SCHEMA_SHOWN_MAX else f"{text[:SCHEMA_SHOWN_MAX]}..."


class RegistryError(BarnabasError):
    """A request that is refused.

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
        """The HTTP status."""
        return self.code if self.code < 1000 else self.code // 100

    def __str__(self) -> str:
        return self.message

    @classmethod
    def subject_not_found(cls, subject: str) -> RegistryError:
        """No version of the subject exists."""
        return cls(40401, f"Subject '{subject}' not found.")

    @classmethod
    def version_not_found(cls, version: int | str) -> RegistryError:
        """The subject has no such version."""
        return cls(40402, f"Version {version} not found.")

    @classmethod
    def schema_not_found(cls, schema_id: int | None = None) -> RegistryError:
        """No schema has the id, or no version of a subject is this schema."""
        return cls(40403, "Schema not found" if schema_id is None else f"Schema {schema_id} not found")

    @classmethod
    def subject_soft_deleted(cls, subject: str) -> RegistryError:
        """Deleted already, but not for good."""
        return cls(40404, f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently")

    @classmethod
    def subject_not_soft_deleted(cls, subject: str) -> RegistryError:
        """To be deleted for good, but not deleted yet."""
        return cls(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")

    @classmethod
    def version_soft_deleted(cls, subject: str, version: int) -> RegistryError:
        """Deleted already, but not for good."""
        return cls(
            40406, f"Subject '{subject}' Version {version} was soft deleted.Set permanent=true to delete permanently"
        )

    @classmethod
    def version_not_soft_deleted(cls, subject: str, version: int) -> RegistryError:
        """To be deleted for good, but not deleted yet."""
        return cls(
            40407, f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
        )

    @classmethod
    def no_compatibility_of(cls, subject: str) -> RegistryError:
        """The subject has no compatibility level of its own."""
        return cls(40408, f"Subject '{subject}' does not have subject-level compatibility configured")

    @classmethod
    def no_mode_of(cls, subject: str) -> RegistryError:
        """The subject has no mode of its own."""
        return cls(40409, f"Subject '{subject}' does not have subject-level mode configured")

    @classmethod
    def incompatible(cls, subject: str, reasons: list[str]) -> RegistryError:
        """The subject's compatibility level does not allow this schema after the earlier ones."""
        return cls(
            409,
            f'Schema being registered is incompatible with an earlier schema for subject "{subject}", '
            f"details: [{', '.join(reasons)}]",
        )

    @classmethod
    def invalid_schema(
        cls, reason: str, kind: str, text: str, references: Iterable[tuple[str, str, int]]
    ) -> RegistryError:
        """It is no schema of its type. The words are Confluent's; a long schema is cut.

        :param references: name, subject and version of each.
        """
        shown, reason = cut(text), cut(reason)
        refs = ", ".join(
            f"{{name='{name}', subject='{subject}', version={version}}}" for name, subject, version in references
        )
        return cls(42201, f"Invalid schema {shown} with refs [{refs}] of type {kind}, details: {reason}")

    @classmethod
    def invalid_version(cls, version: str) -> RegistryError:
        """Neither a positive 32-bit number nor `latest`."""
        return cls(
            42202,
            f"The specified version '{version}' is not a valid version id. Allowed values are between [1, 2^31-1] "
            'and the string "latest"',
        )

    @classmethod
    def invalid_level(cls) -> RegistryError:
        """No compatibility level that there is."""
        return cls(
            42203,
            "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
            "forward_transitive, and full_transitive",
        )

    @classmethod
    def invalid_mode(cls) -> RegistryError:
        """No mode that there is."""
        return cls(42204, "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, and IMPORT")

    @classmethod
    def not_permitted(cls, reason: str) -> RegistryError:
        """The mode does not allow it."""
        return cls(42205, reason)

    @classmethod
    def reference_exists(cls, subject: str, version: int) -> RegistryError:
        """Other schemas refer to this one."""
        return cls(
            42206,
            "One or more references exist to the schema "
            f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}.",
        )

    @classmethod
    def invalid_body(cls, reason: str) -> RegistryError:
        """The body of the request is not what the call takes."""
        return cls(422, reason)

    @classmethod
    def store(cls, reason: str) -> RegistryError:
        """The topic cannot be written or read."""
        return cls(50001, f"Error while accessing the backend data store: {reason}")

    @classmethod
    def timed_out(cls, reason: str) -> RegistryError:
        """It took too long; it may have been done or not."""
        return cls(50002, f"Operation timed out: {reason}")
