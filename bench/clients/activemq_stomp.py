"""The stomp.py client of ActiveMQ: persistent messages to a queue, no receipts, automatic acknowledgements."""

# mypy: disable-error-code="import-untyped,import-not-found"

from __future__ import annotations

import itertools
import threading
from typing import Any

import stomp

from bench.clients.request import IDLE_LIMIT_S, Request, new_meter, parse_request, print_report

STRETCH_RECORDS = 200
RECEIPT = "last"
PREFETCH = "1000"


class Receipts(stomp.ConnectionListener):  # type: ignore[misc,unused-ignore]
    """A listener that waits for the receipt of the last message."""

    def __init__(self) -> None:
        self.came = threading.Event()

    def on_receipt(self, frame: Any) -> None:
        del frame
        self.came.set()


class Taking(stomp.ConnectionListener):  # type: ignore[misc,unused-ignore]
    """A listener that counts messages."""

    def __init__(self, request: Request) -> None:
        self.meter = new_meter()
        self.got = 0
        self.ended = threading.Event()
        self._request = request

    def on_message(self, frame: Any) -> None:
        del frame
        if not self.got:
            self.meter.begin()
        self.got += 1
        if self.got % STRETCH_RECORDS == 0:
            self.meter.add(STRETCH_RECORDS, STRETCH_RECORDS * self._request.size)
        if self.got >= self._request.records:
            self.ended.set()


def connect(request: Request, listener: Any) -> Any:
    """Open a connection with a listener."""
    connection = stomp.Connection12([request.host_and_port], auto_content_length=True)
    connection.set_listener("bench", listener)
    connection.connect(wait=True)
    return connection


def produce(request: Request) -> None:
    """Send one message per call. Only the last message requests a receipt."""
    receipts = Receipts()
    connection = connect(request, receipts)
    endless = itertools.cycle(request.values())
    queue = f"/queue/{request.topic}"
    meter = new_meter()
    meter.begin()
    for begin in range(0, request.records, STRETCH_RECORDS):
        count = min(STRETCH_RECORDS, request.records - begin)
        is_last = begin + count >= request.records
        for value in itertools.islice(endless, count - is_last):
            connection.send(queue, value, headers={"persistent": "true"})
        if is_last:
            connection.send(queue, next(endless), headers={"persistent": "true", "receipt": RECEIPT})
        meter.add(count, count * request.size)
    if not receipts.came.wait(IDLE_LIMIT_S):
        raise TimeoutError("the broker sent no receipt for the last message")
    print_report(meter.end())
    connection.disconnect()


def consume(request: Request) -> None:
    """Receive messages with automatic acknowledgements. The clock starts at the first message."""
    taking = Taking(request)
    connection = connect(request, taking)
    connection.subscribe(f"/queue/{request.topic}", id="1", ack="auto", headers={"activemq.prefetchSize": PREFETCH})
    before = -1
    while not taking.ended.wait(IDLE_LIMIT_S):
        if taking.got == before:
            raise TimeoutError(f"no message arrived for {IDLE_LIMIT_S:.0f} s")
        before = taking.got
    print_report(taking.meter.end())
    connection.disconnect()


def main() -> None:
    """Run the command line."""
    request = parse_request()
    {"produce": produce, "consume": consume}[request.action](request)


if __name__ == "__main__":
    main()
