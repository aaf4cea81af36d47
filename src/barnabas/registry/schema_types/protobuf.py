"""Protobuf schemas: the text of a .proto file, or its descriptor in base64, which some serializers send.

Both become the same canonical text. The protobuf library resolves names and checks all other rules.
"""

from __future__ import annotations

import base64
import importlib
import re
from collections.abc import Sequence
from functools import cached_property

from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import DescriptorProto as Message
from google.protobuf.descriptor_pb2 import FileDescriptorProto as File
from google.protobuf.message import DecodeError

from barnabas.registry.schema_types.proto_compatibility import incompatibilities
from barnabas.registry.schema_types.proto_parser import ProtoParser
from barnabas.registry.schema_types.proto_writer import in_order, write
from barnabas.registry.schema_types.schema import Schema, SchemaSyntaxError

OWN_NAME = "default.proto"
"""The file name of a schema. Registered schemas have no file names, because subjects identify them."""
KNOWN_IMPORT = re.compile(r"google/(protobuf|type)/(\w+)\.proto")
"""Matches imports that Python packages provide: protobuf, and googleapis-common-protos if it is installed."""
BASE64 = re.compile(r"[A-Za-z0-9+/\s]+=*")
"""Matches base64 in a stripped text; trailing white space would make the match quadratic."""


class ProtobufSchema:
    """A parsed Protobuf schema."""

    def __init__(self, text: str, dependencies: Sequence[tuple[str, str]]) -> None:
        pool = descriptor_pool.DescriptorPool()
        known: set[str] = set()
        for name, dependency in dependencies:
            file, _ = _decode(dependency, name)
            if name not in known:
                _add(pool, file, known)
        file, has_more = _decode(text, OWN_NAME)
        _add(pool, file, known)
        self.file = File()
        """The descriptor with all names resolved."""
        pool.FindFileByName(file.name).CopyToProto(self.file)
        self._imported = [_resolved(pool, name) for name, _ in dependencies]
        self._written_as_is = text.strip() if has_more else None
        self._pool = pool

    @cached_property
    def text(self) -> str:
        """The canonical text for all schemas with this content; a text with custom options stays unchanged."""
        if self._written_as_is is not None:
            return self._written_as_is
        return _unambiguous(self.file, self._pool, "again")

    @cached_property
    def normalized(self) -> str:
        """The text in the order of Confluent's registry for imports, fields, constants and reserved numbers."""
        if self._written_as_is is not None:
            return self._written_as_is
        return _unambiguous(in_order(self.file), self._pool, "in_order")

    @cached_property
    def serialized(self) -> str:
        """The descriptor in base64."""
        return base64.b64encode(self.file.SerializeToString()).decode()

    def read_incompatibilities(self, writer: Schema) -> list[str]:
        """Return the reasons why this schema would misread messages of `writer` in Protobuf's wire format."""
        assert isinstance(writer, ProtobufSchema)
        return incompatibilities(self.file, writer.file, self._imported, writer._imported)


def _decode(text: str, name: str) -> tuple[File, bool]:
    """Return the descriptor of a text or a base64 descriptor, and whether the descriptor omits a part of the text."""
    if BASE64.fullmatch(text.strip()):
        try:
            file = File.FromString(base64.b64decode(text, validate=False))
        except (ValueError, DecodeError):  # ValueError: invalid base64
            pass  # not a descriptor: parse it as text
        else:
            file.name = name
            file.ClearField("source_code_info")
            return file, False
    parser = ProtoParser(text, name)
    return parser.file, parser.has_more


def _add(pool: descriptor_pool.DescriptorPool, file: File, known: set[str]) -> None:
    for name in file.dependency:
        _add_known_import(pool, name, known)
    try:
        pool.AddSerializedFile(file.SerializeToString())
        known.add(file.name)
    except (TypeError, ValueError) as error:
        raise SchemaSyntaxError(str(error)) from error


def _resolved(pool: descriptor_pool.DescriptorPool, name: str) -> File:
    file = File()
    pool.FindFileByName(name).CopyToProto(file)
    return file


def _add_known_import(pool: descriptor_pool.DescriptorPool, name: str, known: set[str]) -> None:
    """Add a file that protobuf provides, with the files that it imports."""
    found = KNOWN_IMPORT.fullmatch(name)
    if name in known or found is None:
        return
    try:
        descriptor = importlib.import_module(f"google.{found[1]}.{found[2]}_pb2").DESCRIPTOR
    except ImportError:
        return  # ignore the error here: the descriptor pool reports the missing import
    for dependency in descriptor.dependencies:
        _add_known_import(pool, dependency.name, known)
    pool.AddSerializedFile(descriptor.serialized_pb)
    known.add(name)


def _unambiguous(file: File, pool: descriptor_pool.DescriptorPool, name: str) -> str:
    """Return the text of a descriptor, with short type names unless they are ambiguous.

    :param name: an unused name for a file in the pool.
    """
    short = write(file)
    return short if _is_same(short, file, pool, name) else write(file, full_names=True)


def _is_same(text: str, file: File, pool: descriptor_pool.DescriptorPool, name: str) -> bool:
    """Return whether a text resolves to the same types as the descriptor. Short names might resolve to other types."""
    again = ProtoParser(text, f"{name}.proto").file
    again.package = f"{file.package}.{name}" if file.package else name
    resolved = File()
    try:
        pool.AddSerializedFile(again.SerializeToString())
        pool.FindFileByName(again.name).CopyToProto(resolved)
    except (TypeError, ValueError):
        return False
    own, other = f".{again.package}.", f".{file.package}." if file.package else "."
    return _types(resolved.message_type, own, other) == _types(file.message_type, "", "")


def _types(messages: Sequence[Message], own: str, other: str) -> list[str]:
    found = []
    for message in messages:
        found += [
            other + field.type_name.removeprefix(own) if own and field.type_name.startswith(own) else field.type_name
            for field in message.field
        ]
        found += _types(message.nested_type, own, other)
    return found
