"""A text that hides itself: a password, a token or a private key."""

from __future__ import annotations

import hmac
from typing import NoReturn

HIDDEN = "[hidden]"


class Secret:
    """A text that `repr`, `str`, formats and JSON never contain, and that cannot be pickled.

    >>> secret = Secret("s3cret")
    >>> f"{secret} {secret!r} {secret:>10} {[secret]}", secret.reveal()
    ('[hidden] [hidden] [hidden] [[hidden]]', 's3cret')
    """

    __slots__ = ("__text",)

    def __init__(self, text: str) -> None:
        self.__text = text

    def reveal(self) -> str:
        """Return the text."""
        return self.__text

    def __repr__(self) -> str:
        return HIDDEN

    def __format__(self, _spec: str) -> str:
        return HIDDEN

    def __bool__(self) -> bool:
        return bool(self.__text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        mine, others = self.__text, other.reveal()
        return hmac.compare_digest(mine.encode("utf-8", "surrogatepass"), others.encode("utf-8", "surrogatepass"))

    def __hash__(self) -> int:
        return hash(self.__text)

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, _memo: object) -> Secret:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled; send the name of its file or environment variable instead")
