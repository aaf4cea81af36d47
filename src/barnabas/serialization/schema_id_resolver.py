"""Resolves the schema id that a serializer writes: of its own schema, or of the subject's latest version."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.serialization.registry_client import Schema, SchemaRegistry
from barnabas.serialization.subject_names import SubjectName, by_topic


@dataclass(frozen=True, slots=True)
class SchemaIdResolver:
    """How serialisers come by ids.

    :param subject_name: from topic, key or value, and type to the subject.
    :param auto_register: register what is new; otherwise it must be registered already.
    :param use_latest: write with the latest version of the subject instead of the schema given.
    :param normalize: schemas that differ in nothing that matters are the same.
    """

    registry: SchemaRegistry
    subject_name: SubjectName = by_topic
    auto_register: bool = True
    use_latest: bool = False
    normalize: bool = False

    def resolve(self, topic: str, is_key: bool, type_name: str, schema: Schema) -> tuple[int, Schema]:
        """Return the id to write, and the schema to write with.

        :raises SchemaRegistryError: the registry refuses the schema, or does not know it.
        :raises TimedOutError: no registry answers.
        """
        subject = self.subject_name(topic, is_key, type_name)
        if self.use_latest:
            return self.registry.latest(subject)
        if self.auto_register:
            return self.registry.register(subject, schema, normalize=self.normalize), schema
        return self.registry.id_of(subject, schema, normalize=self.normalize), schema
