"""The `sasl.jaas.config` of Kafka's clients: the login module and its options. Java classes are never loaded.

>>> parse_jaas('org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";')
('PlainLoginModule', {'username': 'a', 'password': 'b'})
"""

from __future__ import annotations

import re

from barnabas.errors import ConfigurationError

JAAS_CHARACTERS_MAX = 64 * 1024
_MODULE = re.compile(r"\s*(?P<module>[\w.$]+)\s+(?:required|requisite|sufficient|optional)\s*", re.I)
_OPTION = re.compile(
    r"""(?P<name>[\w.\-]+)\s*=\s*(?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'|(?P<bare>[^\s;"']+))\s*"""
)
_END = re.compile(r";\s*")


def parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """Return the class name of the login module without its package, and its options.

    :raises ConfigurationError: the text is not one login module with options. The error does not contain the text.
    """
    if len(text) > JAAS_CHARACTERS_MAX:
        raise ConfigurationError(f"sasl.jaas.config has more than {JAAS_CHARACTERS_MAX} characters")
    start = _MODULE.match(text)
    options: dict[str, str] = {}
    position = start.end() if start else 0
    while start and (option := _OPTION.match(text, position)):
        value = option["double"] if option["double"] is not None else option["single"]
        options[option["name"]] = option["bare"] if value is None else re.sub(r"\\(.)", r"\1", value)
        position = option.end()
    if start is None or not _END.fullmatch(text, position):
        raise ConfigurationError('sasl.jaas.config must be a login module: MODULE required name="value" ... ;')
    return start["module"].rpartition(".")[2], options
