"""The content types that the registry accepts in requests and offers for responses."""

from __future__ import annotations

V1 = "application/vnd.schemaregistry.v1+json"
RESPONSE_TYPES = (V1, "application/vnd.schemaregistry+json", "application/json")
REQUEST_TYPES = (*RESPONSE_TYPES, "application/octet-stream")


def negotiate(header: str) -> str | None:
    """Return the content type for an `Accept` header; None if the client accepts none of the offered types.

    >>> negotiate("application/vnd.schemaregistry.v2+json; q=0.1, application/json; q=0.9"), negotiate("text/*")
    ('application/json', None)
    >>> negotiate("text/html, */*; q=0.2") == negotiate("") == V1
    True
    """
    if not header.strip():
        return V1
    ranges = sorted(map(_range, header.split(",")), key=lambda each: -each[1])
    for wanted, weight in ranges:
        if weight <= 0:
            continue
        main, _, sub = wanted.partition("/")
        if main in ("*", ""):
            return V1
        if main == "application" and sub == "*":
            return V1
        if wanted in RESPONSE_TYPES:
            return wanted
    return None


def _range(text: str) -> tuple[str, float]:
    wanted, *parameters = (part.strip().lower() for part in text.split(";"))
    weight = next((each.removeprefix("q=") for each in parameters if each.startswith("q=")), "1")
    try:
        return wanted, float(weight)
    except ValueError:
        return wanted, 0.0


def is_supported(header: str) -> bool:
    """Return whether the registry accepts bodies with this `Content-Type` header.

    >>> is_supported("application/json; charset=utf-8"), is_supported("text/html")
    (True, False)
    >>> is_supported("application/json;charset=utf-16")
    False
    """
    kind, *parameters = (part.strip().lower() for part in header.split(";"))
    charsets = [each.removeprefix("charset=").strip('"') for each in parameters if each.startswith("charset=")]
    return not kind or (kind in REQUEST_TYPES and all(charset in ("utf-8", "utf8") for charset in charsets))
