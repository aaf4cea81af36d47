"""Which content types a registry takes and gives: its own two, plain JSON, and for bodies what some clients send."""

from __future__ import annotations

V1 = "application/vnd.schemaregistry.v1+json"
GIVEN = (V1, "application/vnd.schemaregistry+json", "application/json")
TAKEN = (*GIVEN, "application/octet-stream")


def accepted(header: str) -> str | None:
    """Return the content type for an `Accept` header, None where none that there is would be accepted.

    >>> accepted("application/vnd.schemaregistry.v2+json; q=0.1, application/json; q=0.9"), accepted("text/*")
    ('application/json', None)
    >>> accepted("text/html, */*; q=0.2") == accepted("") == V1
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
        if wanted in GIVEN:
            return wanted
    return None


def _range(text: str) -> tuple[str, float]:
    wanted, *parameters = (part.strip().lower() for part in text.split(";"))
    weight = next((each.removeprefix("q=") for each in parameters if each.startswith("q=")), "1")
    try:
        return wanted, float(weight)
    except ValueError:
        return wanted, 0.0


def is_taken(header: str) -> bool:
    """Whether bodies of this `Content-Type` are understood.

    >>> is_taken("application/json; charset=utf-8"), is_taken("text/html"), is_taken("application/json;charset=utf-16")
    (True, False, False)
    """
    kind, *parameters = (part.strip().lower() for part in header.split(";"))
    charsets = [each.removeprefix("charset=").strip('"') for each in parameters if each.startswith("charset=")]
    return not kind or (kind in TAKEN and all(charset in ("utf-8", "utf8") for charset in charsets))
