"""The choice of the schema id that a serializer writes: the id of its own schema, or of the
subject's latest version.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.serialization.registry_client import Schema, SchemaRegistry
from barnabas.serialization.subject_names import SubjectName, by_topic


@dataclass(frozen=True, slots=True)
class SchemaIdResolver:
    """A resolver of the schema ids that serializers write.

    :param registry: the registry of the schemas.
    :param subject_name: the naming strategy: a function of topic, `is_key` and type name that returns the subject.
    :param auto_register: True to register a new schema; False to require a registered one.
    :param use_latest: True to write with the latest version of the subject instead of the given schema.
    :param normalize: True to treat schemas as equal if the registry normalizes them to the same text.
    """

    registry: SchemaRegistry
    subject_name: SubjectName = by_topic
    auto_register: bool = True
    use_latest: bool = False
    normalize: bool = False

    def resolve(self, topic: str, is_key: bool, type_name: str, schema: Schema) -> tuple[int, Schema]:
        """Return the schema id to write, and the schema to encode with.

        :raises SchemaRegistryError: if the registry rejects the schema, or if auto-registration is off and the schema
            is not registered.
        :raises TimedOutError: if no registry responds.
        """
        subject = self.subject_name(topic, is_key, type_name)
        if self.use_latest:
            return self.registry.latest(subject)
        if self.auto_register:
            return self.registry.register(subject, schema, normalize=self.normalize), schema
        return self.registry.id_of(subject, schema, normalize=self.normalize), schema
