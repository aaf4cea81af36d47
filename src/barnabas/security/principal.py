"""Principals: the authenticated identities of clients and brokers, and their names in client certificates.

`PrincipalMapping` implements Kafka's `ssl.principal.mapping.rules`. Its patterns are Java's regular expressions, of
which it supports the part that has the same meaning in Python. Patterns come from the operator only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.errors import AuthenticationError, ConfigurationError

NAME_BYTES_MAX = 1024
RULES_CHARACTERS_MAX = 16_384
PATTERN_CHARACTERS_MAX = 1024

DistinguishedName = tuple[tuple[tuple[str, str], ...], ...]
"""The `subject` of `ssl.SSLSocket.getpeercert()`: relative distinguished names, each with its types and values."""


class Principal(NamedTuple):
    """An authenticated identity.

    >>> str(Principal("User", "alice"))
    'User:alice'
    """

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Return the principal of a text such as `User:alice`. The name may contain colons.

        :raises ConfigurationError: the text has another form.
        """
        kind, colon, name = text.partition(":")
        if not kind or not colon or not name:
            raise ConfigurationError(f"principal {text!r} must have the form User:NAME")
        return cls(kind, name)


def parse_principals(text: str) -> frozenset[Principal]:
    """Return the principals of a value of `super.users`.

    :param text: principals, separated by semicolons.
    :raises ConfigurationError: an item is not a principal.

    >>> [str(each) for each in sorted(parse_principals("User:alice; User:CN=kafka1,O=Example"))]
    ['User:CN=kafka1,O=Example', 'User:alice']
    """
    return frozenset(Principal.parse(each.strip()) for each in text.split(";") if each.strip())


ANONYMOUS = Principal("User", "ANONYMOUS")
"""The principal of a client that has not authenticated."""


def is_valid_name(name: str) -> bool:
    """Return whether a principal may have this name: printable characters, 1 to `NAME_BYTES_MAX` bytes of UTF-8.

    >>> is_valid_name("alice"), is_valid_name("Zoë B."), is_valid_name(""), is_valid_name("alice\\n")
    (True, True, False, False)
    """
    return name.isprintable() and 0 < len(name.encode("utf-8")) <= NAME_BYTES_MAX


_KEYWORDS = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "street": "STREET",
    "streetAddress": "STREET",
    "userId": "UID",
}
"""RFC 2253's keywords by OpenSSL's names."""

_UTF8, _PRINTABLE, _IA5 = 0x0C, 0x13, 0x16
_OTHER_TYPES = {
    "businessCategory": ("2.5.4.15", _UTF8),
    "description": ("2.5.4.13", _UTF8),
    "dnQualifier": ("2.5.4.46", _PRINTABLE),
    "emailAddress": ("1.2.840.113549.1.9.1", _IA5),
    "generationQualifier": ("2.5.4.44", _UTF8),
    "givenName": ("2.5.4.42", _UTF8),
    "initials": ("2.5.4.43", _UTF8),
    "name": ("2.5.4.41", _UTF8),
    "postalCode": ("2.5.4.17", _UTF8),
    "pseudonym": ("2.5.4.65", _UTF8),
    "serialNumber": ("2.5.4.5", _PRINTABLE),
    "surname": ("2.5.4.4", _UTF8),
    "title": ("2.5.4.12", _UTF8),
    "unstructuredName": ("1.2.840.113549.1.9.2", _IA5),
}
"""Object identifiers, and the usual ASN.1 string types, of attributes without a keyword in RFC 2253."""


def distinguished_name(subject: DistinguishedName) -> str:
    """Return a subject as text in the form of RFC 2253, as Java's `X500Principal.getName()` does.

    `getpeercert()` does not return the ASN.1 type of a value. For an attribute without a keyword in RFC 2253, the
    text contains the usual type.

    >>> distinguished_name(((("countryName", "US"),), (("organizationName", "Acme, Inc."),), (("commonName", "a"),)))
    'CN=a,O=Acme\\\\, Inc.,C=US'
    >>> distinguished_name(((("emailAddress", "a@b.c"),), (("commonName", "a"), ("userId", "7"))))
    'CN=a+UID=7,1.2.840.113549.1.9.1=#16056140622e63'
    """
    return ",".join("+".join(_attribute(kind, value) for kind, value in relative) for relative in reversed(subject))


def _attribute(kind: str, value: str) -> str:
    keyword = _KEYWORDS.get(kind)
    if keyword is not None:
        return f"{keyword}={_escaped(value)}"
    dotted, tag = _OTHER_TYPES.get(kind, (kind, _UTF8))
    if not dotted[0].isdigit():  # OpenSSL has a name for a type that this module does not know
        return f"{dotted}={_escaped(value)}"
    content = value.encode("utf-8")
    return f"{dotted}=#{bytes((tag,)).hex()}{_der_length(len(content)).hex()}{content.hex()}"


def _der_length(length: int) -> bytes:
    if length < 0x80:
        return bytes((length,))
    digits = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes((0x80 | len(digits),)) + digits


def _escaped(value: str) -> str:
    escaped = re.sub(r'[,=+<>#;"\\]', r"\\\g<0>", value).replace("\0", r"\00")
    lead = len(escaped) - len(escaped.lstrip(" \r"))
    trail = len(escaped.rstrip(" \r"))
    edges = (("\\" + each if index < lead or index >= trail else each) for index, each in enumerate(escaped))
    return "".join(edges)


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule: a pattern, and the function that returns the replacement of a match."""

    pattern: re.Pattern[str]
    replacement: Callable[[re.Match[str]], str]
    change_case: Callable[[str], str] = str

    def apply(self, name: str) -> str | None:
        if self.pattern.fullmatch(name) is None:
            return None
        return self.change_case("".join(self._replaced(name)))

    def _replaced(self, name: str) -> Iterator[str]:
        """Yield the parts of the result. After an empty match, Java continues one character later, unlike `re.sub`."""
        copied = start = 0
        while start <= len(name) and (match := self.pattern.search(name, start)):
            yield name[copied : match.start()]
            yield self.replacement(match)
            copied = match.end()
            start = copied + (match.start() == copied)
        yield name[copied:]


class PrincipalMapping:
    """The rules that map the distinguished name of a client certificate to the name of a principal.

    The first rule whose pattern matches the whole distinguished name determines the name. `DEFAULT` returns the
    distinguished name.

    >>> mapping = PrincipalMapping.parse("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, DEFAULT")
    >>> mapping.name_of("CN=Duke,OU=ServiceUsers,O=Org,C=US"), mapping.name_of("CN=Duke,C=US")
    ('duke', 'CN=Duke,C=US')
    """

    def __init__(self, rules: tuple[_Rule | None, ...]) -> None:
        self._rules = rules

    @classmethod
    def parse(cls, text: str) -> PrincipalMapping:
        """Return the mapping of a value of `ssl.principal.mapping.rules`.

        :param text: rules, separated by commas: `RULE:pattern/replacement/`, with `L` or `U` at its end for a result
            in lower or upper case, or `DEFAULT`.
        :raises ConfigurationError: a rule is invalid, or there is no rule.
        """
        if len(text) > RULES_CHARACTERS_MAX:
            raise ConfigurationError(f"ssl.principal.mapping.rules has more than {RULES_CHARACTERS_MAX} characters")
        rules = tuple(_split_rules(text))
        if not rules:
            raise ConfigurationError("ssl.principal.mapping.rules has no rule; DEFAULT maps to the distinguished name")
        return cls(rules)

    def name_of(self, name: str) -> str:
        """Return the name for a distinguished name.

        :raises AuthenticationError: no rule matches, or the result is not a valid name.
        """
        for rule in self._rules:
            mapped = name if rule is None else rule.apply(name)
            if mapped is None:
                continue
            if not is_valid_name(mapped):
                raise AuthenticationError("ssl.principal.mapping.rules maps the certificate's subject to no valid name")
            return mapped
        raise AuthenticationError("no rule of ssl.principal.mapping.rules matches the certificate's subject")

    def principal_of(self, subject: DistinguishedName) -> Principal:
        """Return the principal of a certificate with this subject.

        :raises AuthenticationError: no rule matches, or the result is not a valid name.
        """
        return Principal("User", self.name_of(distinguished_name(subject)))


_BLANK_OR_COMMA = re.compile(r"[\s,]*")
_DEFAULT = re.compile(r"DEFAULT\s*(?=,|\Z)")
_RULE = re.compile(r"RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?)\s*(?=,|\Z)")
_CASES: dict[str, Callable[[str], str]] = {"": str, "L": str.lower, "U": str.upper}


def _split_rules(text: str) -> list[_Rule | None]:
    rules: list[_Rule | None] = []
    matched = _BLANK_OR_COMMA.match(text)
    while matched is not None and matched.end() < len(text):
        start = matched.end()
        if matched := _DEFAULT.match(text, start):
            rules.append(None)
        elif matched := _RULE.match(text, start):
            rules.append(_rule(matched["pattern"], matched["replacement"], _CASES[matched["case"]]))
        else:
            raise ConfigurationError(
                f"ssl.principal.mapping.rules: {text[start : start + 80]!r} is no rule;"
                " write DEFAULT or RULE:pattern/replacement/ with L or U at its end"
            )
        matched = _BLANK_OR_COMMA.match(text, matched.end())
    return rules


def _rule(pattern: str, replacement: str, change_case: Callable[[str], str]) -> _Rule:
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise ConfigurationError(f"ssl.principal.mapping.rules: a pattern exceeds {PATTERN_CHARACTERS_MAX} characters")
    try:
        compiled = re.compile(_python_pattern(pattern), re.ASCII)
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        raise ConfigurationError(f"ssl.principal.mapping.rules: pattern {pattern!r}: {error}") from None
    return _Rule(compiled, _replacement(replacement, compiled), change_case)


_QUOTED = re.compile(r"\\Q(.*?)(?:\\E|\Z)", re.DOTALL)
_SAME_MEANING_AFTER_BACKSLASH = frozenset("AbBdDsSwWtnrfax0123456789u")
_TRANSLATED = {"z": r"\Z", "Z": r"(?=\n?\Z)", "e": r"\x1b"}


def _python_pattern(pattern: str) -> str:
    """Translate a Java pattern.

    :raises ValueError: Python lacks a feature of the pattern, or gives it another meaning.
    """
    pattern = _QUOTED.sub(lambda quoted: re.escape(quoted[1]), pattern)
    parts: list[str] = []
    position, class_start = 0, -1
    while position < len(pattern):
        char, following = pattern[position], pattern[position + 1 : position + 2]
        translated, size = char, 1
        if char == "\\":
            translated, size = _python_escape(pattern, position, in_class=class_start >= 0)
        elif class_start >= 0:
            if char == "[" or (char == "&" and following == "&"):
                raise ValueError("a class inside a class is not supported")
            if char in "~|-" and following == char:
                translated = "\\" + char  # Python reserves doubled characters
            if char == "]" and parts[class_start + 1 :] not in ([], ["^"]):
                class_start = -1
        elif char == "[":
            class_start = len(parts)
        elif pattern.startswith("(?<", position) and pattern[position + 3 : position + 4] not in {"=", "!"}:
            translated, size = "(?P<", 3
        parts.append(translated)
        position += size
    return "".join(parts)


def _python_escape(pattern: str, position: int, *, in_class: bool) -> tuple[str, int]:
    """Return the translation of the escape at a position, and the length of the escape."""
    escaped = pattern[position + 1 : position + 2]
    if named := re.compile(r"\\k<(\w+)>").match(pattern, position):
        return f"(?P={named[1]})", len(named[0])
    if escaped in _TRANSLATED and not (in_class and escaped != "e"):
        return _TRANSLATED[escaped], 2
    if escaped.isascii() and escaped.isalnum() and escaped not in _SAME_MEANING_AFTER_BACKSLASH:
        raise ValueError(f"\\{escaped} is not supported")
    return "\\" + escaped, 2


_PART_OF_REPLACEMENT = re.compile(
    r"\\(?P<literal>.)|\$(?P<digits>\d+)|\$\{(?P<name>\w+)\}|(?P<text>[^\\$]+)", re.DOTALL
)


def _replacement(text: str, pattern: re.Pattern[str]) -> Callable[[re.Match[str]], str]:
    """Return the function that replaces a match, with the meaning of Java's `replaceAll` and of Kafka.

    A reference to a missing group is literal text if the pattern has groups.

    :raises ConfigurationError: the replacement is invalid.
    """
    parts: list[str | int] = []
    position = 0
    while position < len(text):
        matched = _PART_OF_REPLACEMENT.match(text, position)
        if matched is None:
            raise ConfigurationError(f"ssl.principal.mapping.rules: replacement {text!r} has an incomplete $ or \\")
        position = matched.end()
        if matched["digits"]:
            parts.extend(_references(matched["digits"], pattern.groups, text))
        elif matched["name"]:
            if matched["name"] not in pattern.groupindex:
                raise ConfigurationError(f"ssl.principal.mapping.rules: replacement {text!r} names no group")
            parts.append(pattern.groupindex[matched["name"]])
        else:
            parts.append(matched["literal"] or matched["text"])
    return lambda match: "".join(part if isinstance(part, str) else match[part] or "" for part in parts)


def _references(digits: str, groups: int, text: str) -> tuple[str | int, ...]:
    number, used = int(digits[0]), 1
    if number > groups:
        if groups == 0:
            raise ConfigurationError(f"ssl.principal.mapping.rules: replacement {text!r} needs a group in its pattern")
        return (f"${digits}",)
    while used < len(digits) and number * 10 + int(digits[used]) <= groups:
        number, used = number * 10 + int(digits[used]), used + 1
    return number, digits[used:]
