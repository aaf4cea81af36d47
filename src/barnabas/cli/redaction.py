"""Removes secrets from texts that leave the machine, such as the files of `barnabas debug bundle`.

Two rules apply together. A text loses each secret that the command knows: the values of settings, and the contents of
the files and variables that settings name. A text also loses everything that looks like a secret: values whose names
say so, private keys, the users of URLs, and credentials of HTTP.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from barnabas.errors import ConfigurationError
from barnabas.security.secret_sources import names_source, read_secret
from barnabas.security.secrets import HIDDEN, Secret

KNOWN_LETTERS_MIN = 4
"""The minimum length of a secret that is searched in texts. A shorter one would also hide parts of other words."""

_NAME = (
    r"(?:password|passwd|passphrase|secret|token|credential|jaas|(?:private|access|api|ssl|account)[._-]?key"
    r"(?![._-]?(?:file|path|location))|keystore[._-]key|basic[._-]auth|user[._-]?info|authorization|cookie)"
)
_SECRET_NAME = re.compile(_NAME, re.IGNORECASE)
_NOT_SECRET_NAME = re.compile(
    r"(?:file|path|location|endpoint[._-]url|[._-]ms|seconds|mechanisms?|class|type|iterations|algorithm|length|enabled?"
    r"|retries|id)$",
    re.IGNORECASE,
)
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_URL_USER = re.compile(r"(?<=://)[^\s/@\"']{1,1000}@")
_HTTP = re.compile(r"\b(basic|bearer|negotiate)(\s{1,10})[A-Za-z0-9._~+/=-]{4,}", re.IGNORECASE)
_JWT = re.compile(r"\beyJ[\w-]{4,4000}\.[\w-]{1,8000}\.[\w-]*")
_ASSIGNED = re.compile(
    r"(?P<name>" + _NAME + r"[\w.-]{0,200})(?P<between>[\\\"']{0,4}\s{0,10}(?:=>|[=:])\s{0,10})"
    r"(?P<value>\\?\"(?:[^\"\\]|\\.){0,4000}\\?\"|'[^']{0,4000}'|\$\{[^}]*\}|[^\s,;}\])]+)",
    re.IGNORECASE,
)


def is_secret_name(name: str) -> bool:
    """Return whether the value of a setting or variable may be a secret, by its name.

    >>> is_secret_name("sasl.password"), is_secret_name("ssl.key.file"), is_secret_name("AWS_SECRET_ACCESS_KEY")
    (True, False, True)
    """
    return _SECRET_NAME.search(name) is not None and _NOT_SECRET_NAME.search(name) is None


class Redactor:
    """Removes secrets from texts. It finds the secrets that it has learned, and those that look like secrets."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def learn(self, secret: str) -> None:
        """Remember a secret, so that no text contains it, also in Base64 or in a URL."""
        for text in (secret, secret.strip()):
            if len(text) >= KNOWN_LETTERS_MIN:
                encoded = base64.b64encode(text.encode("utf-8", "surrogatepass")).decode().rstrip("=")
                as_json = {json.dumps(text, ensure_ascii=each)[1:-1] for each in (True, False)}
                self._known |= {text, quote(text, safe=""), encoded, *as_json}

    def settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings without secrets, and learn the secrets.

        The name of a secret's source stays, as in `${file:/run/password}`.
        """
        shown: dict[str, Any] = {}
        for name, value in settings.items():
            text = value if isinstance(value, str) else None
            if text and is_secret_name(name):
                self._learn_setting(name, text)
                shown[name] = text if names_source(text) else HIDDEN
            else:
                shown[name] = self.text(text) if text else value
        return shown

    def _learn_setting(self, name: str, text: str) -> None:
        if text.startswith("${command:"):
            return  # a command could have effects
        try:
            self.learn(read_secret(name, Secret(text)))
        except ConfigurationError:
            return  # a source that cannot be read has no secret to hide

    def json(self, value: Any) -> Any:
        """Return a JSON value whose texts contain no secrets. Values of other types become texts.

        >>> Redactor().json({"sasl.password": "abc", "urls": ["https://a:b@host"], "count": 3})
        {'sasl.password': '[hidden]', 'urls': ['https://[hidden]@host'], 'count': 3}
        """
        if isinstance(value, Mapping):
            return {
                self.text(str(name)): HIDDEN
                if isinstance(each, str) and is_secret_name(str(name)) and not names_source(each)
                else self.json(each)
                for name, each in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.json(each) for each in value]
        if value is None or isinstance(value, bool | int | float):
            return value
        return self.text(str(value))

    def text(self, text: str) -> str:
        """Return a text without secrets.

        >>> Redactor().text("GET https://a:b@host/ password=abc; Authorization: Bearer abcdef ssl.key.password: 'x'")
        "GET https://[hidden]@host/ password=[hidden]; Authorization: [hidden] [hidden] ssl.key.password: '[hidden]'"
        """
        for known in sorted(self._known, key=len, reverse=True):
            text = text.replace(known, HIDDEN)
        text = _PRIVATE_KEY.sub(HIDDEN, text)
        text = _URL_USER.sub(f"{HIDDEN}@", text)
        text = _HTTP.sub(rf"\1\2{HIDDEN}", text)
        text = _JWT.sub(HIDDEN, text)
        return _ASSIGNED.sub(_hide, text)


def _hide(match: re.Match[str]) -> str:
    if not is_secret_name(match["name"]) or names_source(match["value"]):
        return match[0]
    quotation = re.match(r"\\?[\"']|", match["value"])
    assert quotation is not None
    return f"{match['name']}{match['between']}{quotation[0]}{HIDDEN}{quotation[0]}"
