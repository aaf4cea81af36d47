"""Writes a descriptor as the text of a .proto file in canonical form: indented by two spaces, in the descriptor's
order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto as Message
from google.protobuf.descriptor_pb2 import EnumDescriptorProto as Enum
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto as File

from barnabas.registry.schema_types.proto_parser import EXTENSION_MAX, SCALARS

_TYPE_NAMES = {number: name for name, number in SCALARS.items()}


def write(file: File, *, full_names: bool = False) -> str:
    """Return the text of a resolved descriptor, with blank lines as in Confluent's registry.

    :param full_names: True to write all type names with their package.
    """
    return "\n".join(_Writer(file, full_names=full_names).lines()) + "\n"


def in_order(file: File) -> File:
    """Return a copy of a descriptor in the order of Confluent's normal form.

    Imports are sorted by name; fields, constants and reserved ranges by number. Messages keep their order, because
    records refer to their message type by position. A oneof has the position of its first field.
    """
    ordered = File()
    ordered.CopyFrom(file)
    public = {file.dependency[index] for index in file.public_dependency}
    ordered.dependency[:] = sorted(file.dependency, key=lambda name: (name in public, name))
    ordered.public_dependency[:] = [n for n, name in enumerate(ordered.dependency) if name in public]
    weak = {file.dependency[index] for index in file.weak_dependency}
    ordered.weak_dependency[:] = [n for n, name in enumerate(ordered.dependency) if name in weak]
    for enum in ordered.enum_type:
        _order_enum(enum, is_open=file.syntax == "proto3")
    for message in ordered.message_type:
        _order_message(message, is_proto3=file.syntax == "proto3")
    return ordered


def _order_message(message: Message, *, is_proto3: bool) -> None:
    message.field.sort(key=lambda field: field.number)
    message.reserved_range.sort(key=lambda each: (each.start, each.end))
    message.reserved_name.sort()
    message.extension_range.sort(key=lambda each: (each.start, each.end))
    for enum in message.enum_type:
        _order_enum(enum, is_open=is_proto3)
    for nested in message.nested_type:
        _order_message(nested, is_proto3=is_proto3)


def _order_enum(enum: Enum, *, is_open: bool) -> None:
    """Sort the constants of an enum, but keep the default first: zero in proto3, the first constant in proto2."""
    first = 0 if is_open or not enum.value else enum.value[0].number
    enum.value.sort(key=lambda value: (value.number != first, value.number))
    enum.reserved_range.sort(key=lambda each: (each.start, each.end))
    enum.reserved_name.sort()


class _Writer:
    def __init__(self, file: File, *, full_names: bool) -> None:
        self._file = file
        self._prefix = "" if full_names else f".{file.package}." if file.package else "."

    def lines(self) -> Iterator[str]:
        file = self._file
        yield f'syntax = "{file.syntax or "proto2"}";'
        if file.package:
            yield f"package {file.package};"
        if file.dependency:
            yield ""
        for index, name in enumerate(file.dependency):
            kind = "public " if index in file.public_dependency else ""
            yield f"import {kind}{json.dumps(name)};"
        if options := list(_options(file)):
            yield ""
            yield from (f"option {name} = {value};" for name, value in options)
        yield ""
        for enum in file.enum_type:
            yield from self._enum(enum, "")
        for message in file.message_type:
            yield from self._message(message, "")

    def _message(self, message: Message, indent: str) -> Iterator[str]:
        inner = f"{indent}  "
        yield f"{indent}message {message.name} {{"
        yield from (f"{inner}option {name} = {value};" for name, value in _options(message))
        for first, last in ((each.start, each.end - 1) for each in message.reserved_range):
            yield f"{inner}reserved {_range(first, last, EXTENSION_MAX - 1)};"
        if message.reserved_name:
            yield f"{inner}reserved {', '.join(json.dumps(each) for each in message.reserved_name)};"
        entries = {each.name: each for each in message.nested_type if each.options.map_entry}
        members: dict[int, list[Field]] = {}
        for field in message.field:
            if field.HasField("oneof_index"):
                members.setdefault(field.oneof_index, []).append(field)
        for field in message.field:
            if not field.HasField("oneof_index") or field.proto3_optional:
                yield from self._field(field, entries, inner)
            elif field.oneof_index in members:
                yield f"{inner}oneof {message.oneof_decl[field.oneof_index].name} {{"
                for each in members.pop(field.oneof_index):
                    yield from self._field(each, entries, f"{inner}  ", in_oneof=True)
                yield f"{inner}}}"
        for first, last in ((each.start, each.end - 1) for each in message.extension_range):
            yield f"{inner}extensions {_range(first, last, EXTENSION_MAX - 1)};"
        for enum in message.enum_type:
            yield from self._enum(enum, inner)
        for nested in message.nested_type:
            if nested.name not in entries:
                yield from self._message(nested, inner)
        yield f"{indent}}}"

    def _field(
        self, field: Field, entries: dict[str, Message], indent: str, *, in_oneof: bool = False
    ) -> Iterator[str]:
        entry = entries.get(field.type_name.rpartition(".")[2]) if field.type == Field.TYPE_MESSAGE else None
        if entry is not None:
            kind = f"map<{self._type(entry.field[0])}, {self._type(entry.field[1])}>"
        else:
            kind = f"{'' if in_oneof else self._label(field)}{self._type(field)}"
        settings = [f"{name} = {value}" for name, value in _options(field)]
        if field.HasField("default_value"):
            is_text = field.type in (Field.TYPE_STRING, Field.TYPE_BYTES)
            settings.insert(0, f"default = {json.dumps(field.default_value) if is_text else field.default_value}")
        if field.HasField("json_name") and field.json_name != _json_name(field.name):
            settings.append(f"json_name = {json.dumps(field.json_name)}")
        suffix = f" [{', '.join(settings)}]" if settings else ""
        yield f"{indent}{kind} {field.name} = {field.number}{suffix};"

    def _label(self, field: Field) -> str:
        if field.label == Field.LABEL_REPEATED:
            return "repeated "
        if field.label == Field.LABEL_REQUIRED:
            return "required "
        return "optional " if self._file.syntax != "proto3" or field.proto3_optional else ""

    def _type(self, field: Field) -> str:
        if field.type in _TYPE_NAMES:
            return str(_TYPE_NAMES[field.type])
        name: str = field.type_name
        return name.removeprefix(self._prefix).removeprefix(".") if self._prefix else name

    def _enum(self, enum: Enum, indent: str) -> Iterator[str]:
        yield f"{indent}enum {enum.name} {{"
        yield from (f"{indent}  option {name} = {value};" for name, value in _options(enum))
        for each in enum.reserved_range:
            yield f"{indent}  reserved {_range(each.start, each.end, 2**31 - 1)};"
        if enum.reserved_name:
            yield f"{indent}  reserved {', '.join(json.dumps(each) for each in enum.reserved_name)};"
        for value in enum.value:
            settings = [f"{name} = {given}" for name, given in _options(value)]
            suffix = f" [{', '.join(settings)}]" if settings else ""
            yield f"{indent}  {value.name} = {value.number}{suffix};"
        yield f"{indent}}}"


def _options(owner: Any) -> Iterator[tuple[str, str]]:
    """Yield the options known to protobuf in the notation of .proto files."""
    for descriptor, value in owner.options.ListFields():
        if descriptor.is_extension or descriptor.name in ("map_entry", "uninterpreted_option"):
            continue
        if descriptor.cpp_type == descriptor.CPPTYPE_ENUM and not descriptor.is_repeated:
            yield descriptor.name, descriptor.enum_type.values_by_number[value].name
        elif isinstance(value, bool | str | int | float):
            yield descriptor.name, json.dumps(value)


def _range(first: int, last: int, largest: int) -> str:
    return f"{first}" if first == last else f"{first} to {'max' if last == largest else last}"


def _json_name(name: str) -> str:
    first, *others = name.split("_")
    return str(first) + "".join(part[:1].upper() + part[1:] for part in others)
