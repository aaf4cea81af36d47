"""Reads a page of a broker or a console at a fixed rate, like Prometheus or an open browser."""

from __future__ import annotations

import threading
import urllib.request
from types import TracebackType
from typing import Self

from bench.processes import ClientError

SCRAPE_TIMEOUT_S = 60.0


def scrape(port: int, page: str = "/metrics") -> bytes:
    """Read a page once."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{page}", timeout=SCRAPE_TIMEOUT_S) as answer:
        text: bytes = answer.read()
    return text


class Scraper:
    """A thread that reads a page until the `with` block ends.

    :param port: the port of `barnabas up --http` or of a console.
    :ivar count: the number of successful scrapes.
    """

    def __init__(self, port: int, page: str, per_s: float) -> None:
        self._port = port
        self._page = page
        self._interval_s = 1 / per_s
        self.count = 0
        self._problem: Exception | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scraper", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(SCRAPE_TIMEOUT_S)
        if kind is None and (self._problem is not None or not self.count):
            raise ClientError(f"cannot read {self._page}: {self._problem}")

    def _run(self) -> None:
        try:
            while not self.count or not self._ended.wait(self._interval_s):
                scrape(self._port, self._page)
                self.count += 1
        except Exception as problem:  # noqa: BLE001 - `__exit__` raises it
            self._problem = problem
