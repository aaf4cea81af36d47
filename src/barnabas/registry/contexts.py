"""Contexts: namespaces of a registry. The subject `:.staging:clicks-value` is `clicks-value` in context `.staging`.

Schema ids are unique within a context. Subjects without a context are in the default context, `.`.
"""

from __future__ import annotations

DEFAULT = "."


def split(subject: str) -> tuple[str, str]:
    """Return the context of a subject, and its name in that context.

    >>> split(":.staging:clicks-value"), split("clicks-value")
    (('.staging', 'clicks-value'), ('.', 'clicks-value'))
    """
    if subject.startswith(":."):
        context, colon, name = subject[1:].partition(":")
        if colon:
            return context, name
    return DEFAULT, subject


def qualified(context: str, name: str) -> str:
    """Return a name qualified with a context, unless it already has one.

    >>> qualified(".staging", "clicks-value"), qualified(".", "clicks-value")
    (':.staging:clicks-value', 'clicks-value')
    """
    return name if context == DEFAULT or name.startswith(":.") else f":{context}:{name}"


def context_of(subject: str) -> str:
    """Return the context of a subject."""
    return split(subject)[0]
