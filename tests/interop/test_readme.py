"""The README's Python snippets run as they stand, but for the address of the broker."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
TIMEOUT_S = 60


def run_snippet(code: str, bootstrap: str) -> str:
    """Run a snippet and return what it printed; one that never ends is stopped after its first line."""
    program = code.replace("localhost:9092", bootstrap)
    command = [sys.executable, "-u", "-c", program]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    watchdog = threading.Timer(TIMEOUT_S, process.kill)
    watchdog.start()
    try:
        if "for record in" in code:
            line = process.stdout.readline()
            assert line, process.communicate()[1]
            return line
        out, err = process.communicate()
        assert process.returncode == 0, err
        return out
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()


def snippet_with(text: str) -> str:
    (snippet,) = [code for code in SNIPPETS if text in code]
    return snippet


def test_other_clients_snippets_produce_and_consume(broker) -> None:
    run_snippet(snippet_with("from confluent_kafka"), broker.bootstrap)
    assert run_snippet(snippet_with("from kafka"), broker.bootstrap) == "b'member-42' b'/jobs/17'\n"
    run_snippet(snippet_with("from aiokafka"), broker.bootstrap)


def test_snippets_with_columns_and_for_asyncio_do_what_they_say(broker) -> None:
    assert run_snippet(snippet_with("send_arrow"), broker.bootstrap).startswith("2 ['topic', 'partition', 'offset'")
    offset, records = run_snippet(snippet_with("AsyncProducer"), broker.bootstrap).splitlines()
    assert offset == "0"
    assert "value=b'/jobs/17'" in records


def test_own_clients_snippet_produces_and_consumes(broker) -> None:
    assert "topic='clicks', partition=0, offset=0" in run_snippet(snippet_with("barnabas.Producer"), broker.bootstrap)
