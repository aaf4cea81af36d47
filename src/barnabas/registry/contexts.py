"""Contexts: registries within a registry. A subject `:.staging:clicks-value` is `clicks-value` in context `.staging`.

Ids of schemas are unique within a context. What names no context is in the default one, `.`.
"""

from __future__ import annotations

DEFAULT = "."


def split(subject: str) -> tuple[str, str]:
    """Return a subject's context and its name in there.

    >>> split(":.staging:clicks-value"), split("clicks-value")
    (('.staging', 'clicks-value'), ('.', 'clicks-value'))
    """
    if subject.startswith(":."):
        context, colon, name = subject[1:].partition(":")
        if colon:
            return context, name
    return DEFAULT, subject


def qualified(context: str, name: str) -> str:
    """Return a name with its context; one that names its own context already is left as it is.

    >>> qualified(".staging", "clicks-value"), qualified(".", "clicks-value")
    (':.staging:clicks-value', 'clicks-value')
    """
    return name if context == DEFAULT or name.startswith(":.") else f":{context}:{name}"


def context_of(subject: str) -> str:
    """Return the context of a subject."""
    return split(subject)[0]
