"""Checks whether one Protobuf schema correctly reads wire-format messages of another schema.

The rules are the same as in Confluent's registry. Fields are identified by number, so names do not matter. A type may
change to another type with the same encoding. Unknown fields are skipped. A removed message, a field removed from a
remaining oneof, and a field required on one side only are incompatible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from google.protobuf.descriptor_pb2 import DescriptorProto as Message
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto as File

_VARINTS = (Field.TYPE_INT32, Field.TYPE_UINT32, Field.TYPE_INT64, Field.TYPE_UINT64, Field.TYPE_BOOL, Field.TYPE_ENUM)
_ALIKE = (
    frozenset(_VARINTS),
    frozenset({Field.TYPE_SINT32, Field.TYPE_SINT64}),
    frozenset({Field.TYPE_STRING, Field.TYPE_BYTES}),
    frozenset({Field.TYPE_FIXED32, Field.TYPE_SFIXED32}),
    frozenset({Field.TYPE_FIXED64, Field.TYPE_SFIXED64}),
)
_LENGTH_DELIMITED = frozenset({Field.TYPE_STRING, Field.TYPE_BYTES, Field.TYPE_MESSAGE})


def incompatibilities(
    reader: File, writer: File, reader_imports: Sequence[File], writer_imports: Sequence[File]
) -> list[str]:
    """Return the reasons why `reader` cannot read messages of `writer`; all descriptors must be resolved."""
    sides = _Sides(_Side(reader, _named(reader_imports)), _Side(writer, _named(writer_imports)), set())
    return list(_messages(sides, list(reader.message_type), list(writer.message_type), "#"))


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a comparison: a file, and the messages of its imports by full name."""

    file: File
    imported: dict[str, Message]


@dataclass(frozen=True, slots=True)
class _Sides:
    """Both sides of a comparison, and the pairs of imported types that are already compared."""

    reader: _Side
    writer: _Side
    compared: set[tuple[str, str]]


def _named(files: Sequence[File]) -> dict[str, Message]:
    found: dict[str, Message] = {}

    def note(messages: Sequence[Message], prefix: str) -> None:
        for message in messages:
            name = f"{prefix}.{message.name}"
            found[name] = message
            note(message.nested_type, name)

    for file in files:
        note(file.message_type, f".{file.package}" if file.package else "")
    return found


def _messages(sides: _Sides, now: list[Message], before: list[Message], where: str) -> Iterator[str]:
    by_name = {each.name: each for each in now}
    for message in before:
        if message.options.map_entry:
            continue
        place = f"{where}/{message.name}"
        if message.name not in by_name:
            yield f"{place}: the message was removed"
            continue
        found = by_name[message.name]
        yield from _fields(sides, found, message, place)
        yield from _messages(sides, list(found.nested_type), list(message.nested_type), place)


def _fields(sides: _Sides, now: Message, before: Message, where: str) -> Iterator[str]:
    old, new = ({field.number: field for field in message.field} for message in (before, now))
    for number, field in sorted(old.items()):
        place = f"{where}/{number}"
        if number in new:
            yield from _field(sides, new[number], field, (now, before), place)
        elif field.label == Field.LABEL_REQUIRED:
            yield f"{place}: the required field {field.name} was removed"
        elif _oneof(before, field) in {each.name for each in now.oneof_decl if not each.name.startswith("_")}:
            yield f"{place}: the field {field.name} of a oneof was removed"
    for number, field in sorted(new.items()):
        if number not in old and field.label == Field.LABEL_REQUIRED:
            yield f"{where}/{number}: the field {field.name} is new and required"
    yield from _moved_together(now, before, where)


def _moved_together(now: Message, before: Message, where: str) -> Iterator[str]:
    """Yield fields that were moved into the same oneof. Earlier, both could be set together, but a oneof keeps only one
    field."""
    old = {field.number: _oneof(before, field) for field in before.field}
    for index, declared in enumerate(now.oneof_decl):
        members = [f for f in now.field if f.HasField("oneof_index") and f.oneof_index == index and f.number in old]
        moved = [field.name for field in members if not old[field.number]]
        if len(moved) > 1 or (moved and len(members) > len(moved)):
            yield f"{where}: the fields {', '.join(moved)} are in the oneof {declared.name} now, and were not"


def _oneof(message: Message, field: Field) -> str:
    if not field.HasField("oneof_index") or field.proto3_optional:
        return ""
    name: str = message.oneof_decl[field.oneof_index].name
    return name


def _field(sides: _Sides, now: Field, before: Field, owners: tuple[Message, Message], where: str) -> Iterator[str]:
    alike = now.type == before.type or any({now.type, before.type} <= group for group in _ALIKE)
    if not alike:
        yield f"{where}: the type of {now.name} is {_kind(now)}, and was {_kind(before)}"
        return
    if now.type == Field.TYPE_MESSAGE and before.type == Field.TYPE_MESSAGE:
        yield from _message_types(sides, now, before, owners, where)
    is_repeated, was_repeated = now.label == Field.LABEL_REPEATED, before.label == Field.LABEL_REPEATED
    if is_repeated != was_repeated and now.type not in _LENGTH_DELIMITED:
        yield f"{where}: {now.name} is {'' if is_repeated else 'not '}repeated, and its numbers are packed differently"
    if now.label == Field.LABEL_REQUIRED and before.label != Field.LABEL_REQUIRED:
        yield f"{where}: {now.name} is required, and was not"


def _message_types(
    sides: _Sides, now: Field, before: Field, owners: tuple[Message, Message], where: str
) -> Iterator[str]:
    entries = [_entry(owner, field) for owner, field in zip(owners, (now, before), strict=True)]
    if entries[0] is not None and entries[1] is not None:
        yield from _fields(sides, entries[0], entries[1], where)
    elif (entries[0] is None) != (entries[1] is None):
        yield f"{where}: {now.name} is {'a map' if entries[0] else 'no map'}, and was {'one' if entries[1] else 'not'}"
    elif now.type_name in sides.reader.imported and before.type_name in sides.writer.imported:
        yield from _imported(sides, now.type_name, before.type_name, where)
    elif _within(sides.reader.file, now.type_name) != _within(sides.writer.file, before.type_name):
        yield f"{where}: the type of {now.name} is {now.type_name}, and was {before.type_name}"


def _imported(sides: _Sides, now: str, before: str, where: str) -> Iterator[str]:
    """Compare types from other files; their names do not matter for the wire format."""
    if (now, before) not in sides.compared:
        sides.compared.add((now, before))
        yield from _fields(sides, sides.reader.imported[now], sides.writer.imported[before], where)


def _entry(owner: Message, field: Field) -> Message | None:
    name = field.type_name.rpartition(".")[2]
    return next((each for each in owner.nested_type if each.options.map_entry and each.name == name), None)


def _within(file: File, type_name: str) -> str:
    """Return a type name relative to the package of its file, because the package may change."""
    return type_name.removeprefix(f".{file.package}.") if file.package else type_name.removeprefix(".")


def _kind(field: Field) -> str:
    name: str = Field.Type.Name(field.type)
    return name.removeprefix("TYPE_").lower()
