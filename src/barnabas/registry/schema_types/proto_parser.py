"""Parses a .proto file to a descriptor. The protobuf library then resolves the names and checks the rules.

The syntax is proto2 and proto3; groups and editions are rejected. Custom options are skipped: `has_more` is then true,
because the descriptor does not contain the whole text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto as Message
from google.protobuf.descriptor_pb2 import EnumDescriptorProto as Enum
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto as File

from barnabas.registry.schema_types.schema import NESTING_MAX, SchemaSyntaxError

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<number>[+-]?(?:0[xX][0-9a-fA-F]+|(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?|inf\b|nan\b))
    |(?P<name>\.?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
    |(?P<sign>[{}()\[\]<>;=,:/-])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


class Tokens:
    """The tokens of a text with their positions."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = list(_split(text))
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        """True if all tokens are consumed."""
        return self._at >= len(self._words)

    def peek(self) -> str:
        """Return the next token without consuming it; empty at the end."""
        return "" if self.is_at_end else self._words[self._at][1]

    def take(self) -> str:
        """Take the next token."""
        if self.is_at_end:
            raise SchemaSyntaxError("the file ends inside a definition")
        self._at += 1
        return self._words[self._at - 1][1]

    def take_if(self, *words: str) -> str:
        """Consume and return the next token if it is one of the given tokens. Otherwise return an empty string."""
        return self.take() if self.peek() in words and not self.is_at_end else ""

    def expect(self, word: str) -> None:
        """Consume the next token, which must be `word`."""
        if (found := self.take()) != word:
            raise self.error(f"{word!r} is expected instead of {found!r}")

    def name(self) -> str:
        """Consume and return a name, which may contain dots."""
        kind = "" if self.is_at_end else self._words[self._at][0]
        word = self.take()
        if kind != "name" and word not in ("inf", "nan"):
            raise self.error(f"a name is expected instead of {word!r}")
        return word

    def string(self) -> str:
        """Consume one or more adjacent strings, and return them joined."""
        parts = []
        while not self.is_at_end and self._words[self._at][0] == "string":
            parts.append(_unquoted(self.take()))
        if not parts:
            raise self.error(f"a string is expected instead of {self.peek()!r}")
        return "".join(parts)

    def integer(self) -> int:
        """Consume and return an integer in decimal, hexadecimal or octal notation."""
        word = self.take()
        sign, digits = (-1, word[1:]) if word.startswith("-") else (1, word)
        if word == "-":
            sign, digits = -1, self.take()
        try:
            octal = len(digits) > 1 and digits[0] == "0" and digits[1:].isdecimal()
            return sign * int(digits, 8 if octal else 0)
        except ValueError:
            raise self.error(f"a whole number is expected instead of {word!r}") from None

    def is_string(self) -> bool:
        """Return whether the next token is a string."""
        return not self.is_at_end and self._words[self._at][0] == "string"

    def error(self, reason: str) -> SchemaSyntaxError:
        """Return an error with the number of the current line."""
        position = self._words[max(self._at - 1, 0)][2] if self._words else 0
        line = self._text.count("\n", 0, position) + 1
        return SchemaSyntaxError(f"line {line}: {reason}")


def _split(text: str) -> Iterator[tuple[str, str, int]]:
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None or found.lastgroup is None:
            line = text.count("\n", 0, position) + 1
            raise SchemaSyntaxError(f"line {line}: {text[position : position + 20]!r} is not valid in a .proto file")
        if found.lastgroup != "space":
            yield found.lastgroup, found[0], position
        position = found.end()


def _unquoted(word: str) -> str:
    def character(found: re.Match[str]) -> str:
        escape = found[1]
        if escape[0] in "xX":
            return chr(int(escape[1:], 16))
        if escape[0].isdecimal():
            return chr(int(escape, 8))
        return _ESCAPES.get(escape, escape)

    return re.sub(r"\\([xX][0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", character, word[1:-1], flags=re.DOTALL)


SCALARS = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in Field.Type.items()
    if name not in ("TYPE_MESSAGE", "TYPE_ENUM", "TYPE_GROUP")
}
LABELS = {"optional": Field.LABEL_OPTIONAL, "required": Field.LABEL_REQUIRED, "repeated": Field.LABEL_REPEATED}
EXTENSION_MAX = 536_870_912
ENUM_MAX = 2**31 - 1


class ProtoParser:
    """Parses one .proto file.

    :raises SchemaSyntaxError: the file is invalid; the message has the line number.
    """

    def __init__(self, text: str, name: str) -> None:
        self.file = File(name=name)
        self.has_more = False
        """True if the descriptor does not contain the whole text."""
        self._tokens = Tokens(text)
        self._parse_file()

    def _parse_file(self) -> None:
        tokens, file = self._tokens, self.file
        while not tokens.is_at_end:
            word = tokens.take()
            if word == "syntax":
                tokens.expect("=")
                syntax = tokens.string()
                if syntax not in ("proto2", "proto3"):
                    raise tokens.error(f"unknown syntax {syntax!r}")
                if syntax == "proto3":
                    file.syntax = syntax
                tokens.expect(";")
            elif word == "package":
                file.package = tokens.name()
                tokens.expect(";")
            elif word == "import":
                self._parse_import()
            elif word == "option":
                self._parse_option_statement(file.options)
            elif word == "message":
                self._parse_message(file.message_type.add(), 0)
            elif word == "enum":
                self._parse_enum(file.enum_type.add())
            elif word in ("service", "extend"):
                self.has_more = True
                self._skip_block()
            elif word != ";":
                raise tokens.error(f"{word!r} does not start a definition")

    def _parse_import(self) -> None:
        kind = self._tokens.take_if("public", "weak")
        self.file.dependency.append(self._tokens.string())
        if kind == "public":
            self.file.public_dependency.append(len(self.file.dependency) - 1)
        self._tokens.expect(";")

    def _parse_message(self, message: Message, depth: int) -> None:
        if depth > NESTING_MAX:
            raise self._tokens.error(f"messages are nested more than {NESTING_MAX} deep")
        tokens = self._tokens
        message.name = tokens.name()
        tokens.expect("{")
        while not tokens.take_if("}"):
            word = tokens.peek()
            if word == "message":
                tokens.take()
                self._parse_message(message.nested_type.add(), depth + 1)
            elif word == "enum":
                tokens.take()
                self._parse_enum(message.enum_type.add())
            elif word == "oneof":
                self._parse_oneof(message)
            elif word == "option":
                tokens.take()
                self._parse_option_statement(message.options)
            elif word == "reserved":
                self._parse_reserved(message)
            elif word == "extensions":
                self._parse_extensions(message)
            elif word == "extend":
                tokens.take()
                self.has_more = True
                self._skip_block()
            elif not tokens.take_if(";"):
                self._parse_field(message)
        self._add_synthetic_oneofs(message)

    def _parse_field(self, message: Message, oneof: int | None = None) -> None:
        tokens = self._tokens
        field = Field()
        label = "" if oneof is not None else tokens.take_if(*LABELS)
        if tokens.peek() == "group":
            raise tokens.error("groups are not supported")
        kind = tokens.name()
        field.label = LABELS.get(label, Field.LABEL_OPTIONAL)
        if not label and oneof is None and self.file.syntax != "proto3" and kind != "map":
            raise tokens.error(f"in proto2 a field is optional, required or repeated, {kind!r} is not")
        if kind == "map" and tokens.take_if("<"):
            self._parse_map(message, field)
        else:
            _set_type(field, kind)
            field.name = tokens.name()
        tokens.expect("=")
        field.number = tokens.integer()
        if oneof is not None:
            field.oneof_index = oneof
        elif label == "optional" and self.file.syntax == "proto3":
            field.proto3_optional = True
        self._parse_field_options(field)
        tokens.expect(";")
        message.field.append(field)

    def _parse_map(self, message: Message, field: Field) -> None:
        tokens = self._tokens
        entry = Message()
        entry.options.map_entry = True
        for number, name in enumerate(("key", "value"), 1):
            part = entry.field.add(name=name, number=number, label=Field.LABEL_OPTIONAL)
            _set_type(part, tokens.name())
            tokens.expect("," if number == 1 else ">")
        field.name = tokens.name()
        entry.name = f"{_camel_case(field.name)}Entry"
        field.label = Field.LABEL_REPEATED
        field.type = Field.TYPE_MESSAGE
        field.type_name = entry.name
        message.nested_type.append(entry)

    def _parse_oneof(self, message: Message) -> None:
        tokens = self._tokens
        tokens.expect("oneof")
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=tokens.name())
        tokens.expect("{")
        while not tokens.take_if("}"):
            if tokens.take_if("option"):
                self._parse_option_statement(message.oneof_decl[index].options)
            elif not tokens.take_if(";"):
                self._parse_field(message, index)

    @staticmethod
    def _add_synthetic_oneofs(message: Message) -> None:
        """Add a oneof for each optional field of proto3, after all other oneofs, as protoc does."""
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _parse_enum(self, enum: Enum) -> None:
        tokens = self._tokens
        enum.name = tokens.name()
        tokens.expect("{")
        while not tokens.take_if("}"):
            if tokens.take_if("option"):
                self._parse_option_statement(enum.options)
            elif tokens.peek() == "reserved":
                self._parse_reserved(enum)
            elif not tokens.take_if(";"):
                value = enum.value.add(name=tokens.name())
                tokens.expect("=")
                value.number = tokens.integer()
                self._parse_options_in_brackets(value.options)
                tokens.expect(";")

    def _parse_reserved(self, owner: Message | Enum) -> None:
        tokens = self._tokens
        tokens.expect("reserved")
        if tokens.is_string():
            owner.reserved_name.append(tokens.string())
            while tokens.take_if(","):
                owner.reserved_name.append(tokens.string())
        else:
            is_enum = isinstance(owner, Enum)
            for first, last in self._ranges(ENUM_MAX if is_enum else EXTENSION_MAX - 1):
                # In messages, `end` is exclusive; in enums, it is inclusive.
                owner.reserved_range.add(start=first, end=last if is_enum else last + 1)
        tokens.expect(";")

    def _parse_extensions(self, message: Message) -> None:
        self._tokens.expect("extensions")
        for first, last in self._ranges(EXTENSION_MAX - 1):
            message.extension_range.add(start=first, end=last + 1)
        if self._tokens.peek() == "[":
            self.has_more = True
            self._skip_brackets()
        self._tokens.expect(";")

    def _ranges(self, largest: int) -> list[tuple[int, int]]:
        tokens = self._tokens
        found: list[tuple[int, int]] = []
        while not found or tokens.take_if(","):
            first = last = tokens.integer()
            if tokens.take_if("to"):
                last = largest if tokens.take_if("max") else tokens.integer()
            found.append((first, last))
        return found

    # --- options ----------------------------------------------------------------------------------------

    def _parse_option_statement(self, options: Any) -> None:
        self._parse_option(options)
        self._tokens.expect(";")

    def _parse_options_in_brackets(self, options: Any) -> None:
        if not self._tokens.take_if("["):
            return
        self._parse_option(options)
        while self._tokens.take_if(","):
            self._parse_option(options)
        self._tokens.expect("]")

    def _parse_field_options(self, field: Field) -> None:
        tokens = self._tokens
        if not tokens.take_if("["):
            return
        while True:
            if tokens.peek() in ("default", "json_name"):
                name = tokens.take()
                tokens.expect("=")
                value = tokens.string() if tokens.is_string() else tokens.take()
                setattr(field, "default_value" if name == "default" else name, value)
            else:
                self._parse_option(field.options)
            if not tokens.take_if(","):
                break
        tokens.expect("]")

    def _parse_option(self, options: Any) -> None:
        """Parse an option. Set it if protobuf knows it, otherwise skip it."""
        tokens = self._tokens
        if tokens.peek() == "(":
            self._skip_option()
            return
        name = tokens.name()
        tokens.expect("=")
        descriptor = options.DESCRIPTOR.fields_by_name.get(name)
        if descriptor is None or tokens.peek() in ("{", "["):
            self._skip_option()
            return
        word = tokens.string() if tokens.is_string() else tokens.take()
        try:
            if descriptor.cpp_type == descriptor.CPPTYPE_ENUM:
                setattr(options, name, descriptor.enum_type.values_by_name[word].number)
            elif descriptor.cpp_type == descriptor.CPPTYPE_BOOL:
                setattr(options, name, {"true": True, "false": False}[word])
            else:
                setattr(options, name, word)
        except (KeyError, TypeError, AttributeError) as error:
            raise tokens.error(f"option {name} cannot be {word!r}") from error

    def _skip_option(self) -> None:
        """Skip an option, including nested brackets of all kinds."""
        self.has_more = True
        tokens, depth = self._tokens, 0
        while depth or tokens.peek() not in (";", ",", "]", ""):
            word = tokens.take()
            depth += (word in ("{", "[", "(", "<")) - (word in ("}", "]", ")", ">"))

    def _skip_brackets(self) -> None:
        self._tokens.expect("[")
        while not self._tokens.take_if("]"):
            self._tokens.take()

    def _skip_block(self) -> None:
        tokens, depth = self._tokens, 0
        while True:
            word = tokens.take()
            depth += (word == "{") - (word == "}")
            if word == "}" and depth == 0:
                return


def _set_type(field: Field, kind: str) -> None:
    if kind in SCALARS:
        field.type = SCALARS[kind]
    else:
        field.type_name = kind  # a message or an enum: the protobuf library resolves the name


def _camel_case(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))
