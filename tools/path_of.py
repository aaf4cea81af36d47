"""Print the modules that a produced and a fetched record pass through, in client and broker.

    .venv/bin/python tools/path_of.py

A broker, a producer and a consumer run in this process. A profile function records the modules of Barnabas whose
functions run between `send` and its acknowledgement, and between `seek` and the record that `poll` returns.
Connections, metadata and templates already exist, as in the steady state.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import barnabas
from barnabas import Admin, Consumer, Producer, TopicPartition
from barnabas.broker.broker import Broker
from barnabas.broker.settings.static import BrokerConfig

PACKAGE = Path(barnabas.__file__).parent
TOPIC = "clicks"
BESIDE_REQUESTS = frozenset({"broker/background_tasks.py", "broker/leader_election.py", "broker/loop_watch.py"})
"""The modules of periodic tasks, which run independently of requests."""
REPETITIONS = 3
"""The number of records before the measured record."""
START_TIMEOUT_S = 60.0


class CalledModules:
    """Records the modules of Barnabas whose functions are called during an action, by any thread."""

    def __init__(self) -> None:
        self._files: set[str] | None = None

    def profile(self, frame: FrameType, event: str, _argument: object) -> None:
        """Record the module of a called function (`sys.setprofile`)."""
        if event == "call" and self._files is not None:
            self._files.add(frame.f_code.co_filename)

    def during(self, action: Callable[[], object]) -> list[str]:
        """Return the modules that are called during an action, as paths relative to the package."""
        files = self._files = set()
        action()
        self._files = None
        paths = (Path(each) for each in files)
        return sorted(
            {str(path.relative_to(PACKAGE)) for path in paths if path.is_relative_to(PACKAGE)} - BESIDE_REQUESTS
        )


@contextmanager
def running_broker(called: CalledModules) -> Iterator[str]:
    """Run a broker on a thread with a profile function. Yield its address."""
    loop = asyncio.new_event_loop()

    def run() -> None:
        sys.setprofile(called.profile)
        asyncio.set_event_loop(loop)
        loop.run_forever()

    thread = threading.Thread(target=run, name="broker")
    thread.start()
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(BrokerConfig(port=0, data=folder))
        try:
            asyncio.run_coroutine_threadsafe(broker.start(), loop).result(START_TIMEOUT_S)
            yield f"127.0.0.1:{broker.port}"
            asyncio.run_coroutine_threadsafe(broker.stop(), loop).result(START_TIMEOUT_S)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


def paths() -> dict[str, list[str]]:
    """Return the modules on the path of a record, by `produce` and `fetch`."""
    called = CalledModules()
    threading.setprofile(called.profile)
    sys.setprofile(called.profile)
    try:
        with running_broker(called) as address:
            return _measure(called, address)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _measure(called: CalledModules, address: str) -> dict[str, list[str]]:
    with Admin(address) as admin:
        admin.create_topic(TOPIC)
    with Producer(address) as producer:

        def send() -> None:
            producer.send(TOPIC, b"value").result()

        for _ in range(REPETITIONS):
            send()
        produce = called.during(send)
    partition = TopicPartition(TOPIC, 0)
    with Consumer(address) as consumer:

        def poll() -> None:
            consumer.seek(partition, 0)
            while not consumer.poll(timeout_s=1.0):
                pass

        consumer.assign([partition])
        for _ in range(REPETITIONS):
            poll()
        fetch = called.during(poll)
    return {"produce": produce, "fetch": fetch}


def main() -> int:
    """Print the modules of both paths and their number."""
    for name, modules in paths().items():
        sys.stdout.write("\n  ".join([f"{name}: {len(modules)} modules", *modules]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
