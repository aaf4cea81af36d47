"""The values to send, generated before the clock starts.

A run sends the values of a pool repeatedly, so that it generates no values while the clock runs. The generator has a
fixed seed, so all runs send the same bytes, with the same compression ratio.
"""

from __future__ import annotations

import enum
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from barnabas.errors import ConfigurationError

POOL_VALUES_MAX = 10_000
POOL_BYTES_MAX = 16 * 1024 * 1024
LIST_BYTES_MAX = 4 * 1024 * 1024
"""The maximum size of the values of one `send_many` or `send_arrow` call, in bytes, except that a single value may be
larger.
"""

_SEED = 2011
_TEXT_WORDS = 20_000
_WORDS = (
    "GET POST /jobs /in/member /search /feed /profile/view 200 302 404 HTTP/1.1 Mozilla/5.0 (X11; Linux x86_64) "
    "clicked impression page_view session member company article newsfeed referrer=https://example.org/ ms=12 ms=48 "
    "lang=en lang=pl lang=de ip=10.1.2.3 ip=192.0.2.17 ok cached"
)


class PayloadKind(enum.StrEnum):
    """The content of values."""

    ZEROS = "zeros"
    RANDOM = "random"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class PayloadSpec:
    """The specification of the values.

    :param size: the size of each value in bytes.
    :param value_file: a file whose lines are the values, instead of generated ones.
    """

    kind: PayloadKind = PayloadKind.TEXT
    size: int = 100
    value_file: str | None = None

    def values(self) -> list[bytes]:
        """Return the pool of values.

        :raises ConfigurationError: if the file has no lines.
        :raises OSError: if the file cannot be read.
        """
        if self.value_file is not None:
            return _lines(Path(self.value_file))
        if self.kind is PayloadKind.ZEROS:
            return [bytes(self.size)]
        generator = random.Random(_SEED)
        count = max(1, min(POOL_VALUES_MAX, POOL_BYTES_MAX // max(self.size, 1)))
        if self.kind is PayloadKind.RANDOM:
            return [generator.randbytes(self.size) for _ in range(count)]
        text = _text(generator, self.size)
        starts = (generator.randrange(len(text) - self.size) for _ in range(count))
        return [text[start : start + self.size] for start in starts]


def _lines(path: Path) -> list[bytes]:
    lines = path.read_bytes().split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise ConfigurationError(f"{path} has no lines to send")
    return lines


def _text(generator: random.Random, size: int) -> bytes:
    """Return a generated text longer than `size`. Substrings of the text become values."""
    text = " ".join(generator.choices(_WORDS.split(), k=_TEXT_WORDS)).encode()
    return text * (size // len(text) + 2)


def lists_of(values: list[bytes], count: int) -> list[list[bytes]]:
    """Return lists of exactly `count` values that together contain each value of the pool at least once.

    >>> lists_of([b"a", b"b", b"c"], 2)
    [[b'a', b'b'], [b'c', b'a']]
    """
    endless = itertools.cycle(values)
    return [list(itertools.islice(endless, count)) for _ in range(-(-len(values) // count))]


def list_length(values: list[bytes], records_max: int) -> int:
    """Return the number of values for one call: at most `records_max`, and at most `LIST_BYTES_MAX` bytes."""
    mean_bytes = max(1, sum(map(len, values)) // len(values))
    return max(1, min(records_max, LIST_BYTES_MAX // mean_bytes))


def cycle_lists(values: list[bytes], count: int) -> Iterator[list[bytes]]:
    return itertools.cycle(lists_of(values, count))
