"""How clients end that nobody closes: dropped, at the end of the program, in forked children."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import barnabas

TIMEOUT_S = 60

FORKS = {
    "ends": "sys.exit(0)",
    "closes": "client.close()",
    "closes-twice": "client.close(); client.close(); sys.exit(0)",
    "drops": "del client; gc.collect()",
    "uses": """
try:
    use(client)
except barnabas.ClosedError as error:
    assert "of which this one is a fork" in str(error) and error.__context__ is None, repr(error)
else:
    sys.exit("that was no error")
""",
}


IGNORED = "ignore:This process:DeprecationWarning"
"""The warning of `os.fork` in a process with several threads, since Python 3.12."""


def python(program: str, *, check: bool = True, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    run = subprocess.run(
        [sys.executable, "-W", IGNORED, *options, "-c", program],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert not check or run.returncode == 0, run.stderr
    return run


def values_of(bootstrap: str, topic: str) -> list[bytes | None]:
    with barnabas.Admin(bootstrap) as admin:
        end = admin.end_offsets([(topic, 0)])[topic, 0]
    with barnabas.Consumer(bootstrap) as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek_to_beginning()
        values: list[bytes | None] = []
        while len(values) < end:
            values += [record.value for record in consumer.poll()]
    return values


def test_a_producer_that_is_dropped_delivers_what_was_sent_warns_and_ends_its_thread(
    bootstrap: str, topic: str
) -> None:
    run = python(
        f"""
import threading, barnabas
producer = barnabas.Producer({bootstrap!r}, linger_ms=5000)
for number in range(100):
    delivery = producer.send({topic!r}, b"%d" % number, partition=0)
[thread] = [each for each in threading.enumerate() if each.name == "barnabas-producer"]
del producer
thread.join()
assert delivery.result(0).offset == 99
""",
        options=("-W", "always"),
    )
    assert "ResourceWarning: a Producer was dropped without close()" in run.stderr
    assert values_of(bootstrap, topic) == [b"%d" % number for number in range(100)]


@pytest.mark.parametrize("made", ["an Admin({0!r})", "a RangeReader({0!r}, {1!r}, 0, 0, 0)"])
def test_other_clients_that_are_dropped_warn_and_end_their_thread(bootstrap: str, topic: str, made: str) -> None:
    run = python(
        f"""
import threading, barnabas
from barnabas import Admin
from barnabas.client.range_reader import RangeReader
client = {made.split(" ", 1)[1].format(bootstrap, topic)}
[thread] = [each for each in threading.enumerate() if each.name.startswith("barnabas-")]
del client
thread.join()
""",
        options=("-W", "always"),
    )
    assert f"ResourceWarning: {made.split('(', maxsplit=1)[0]} was dropped without close()" in run.stderr


def test_who_holds_send_alone_holds_the_producer(bootstrap: str, topic: str) -> None:
    python(f"""
import threading, barnabas
send = barnabas.Producer({bootstrap!r}).send
for number in range(3):
    delivery = send({topic!r}, b"%d" % number, partition=0)
assert delivery.result().offset == 2
[thread] = [each for each in threading.enumerate() if each.name == "barnabas-producer"]
del send
thread.join()
""")


@pytest.mark.parametrize("leaves", ["pass", "sys.exit(3)", "raise ValueError"])
def test_the_end_of_the_program_delivers_what_was_sent(bootstrap: str, topic: str, leaves: str) -> None:
    python(
        f"""
import sys, barnabas
producer = barnabas.Producer({bootstrap!r}, linger_ms=5000)
for number in range(100):
    producer.send({topic!r}, b"%d" % number, partition=0)
{leaves}
""",
        check=False,
    )
    assert len(values_of(bootstrap, topic)) == 100


OUTLIVE = {
    "a thread": ("threading.main_thread().join()", "threading.Thread(target=work).start()"),
    "an executor's": ("while not pool._shutdown: time.sleep(0.01)", "executor.submit(work)"),
}


@pytest.mark.parametrize("who", OUTLIVE)
def test_a_thread_that_outlives_the_main_thread_sends_and_closes(bootstrap: str, topic: str, who: str) -> None:
    wait, begin = OUTLIVE[who]
    run = python(f"""
import concurrent.futures.thread as pool, threading, time, barnabas
# The address is a name: looking one up takes another thread, which there must be at the end of the program, too.
producer = barnabas.Producer({bootstrap.replace("127.0.0.1", "localhost")!r}, linger_ms=5000)
executor = pool.ThreadPoolExecutor()
def work():
    {wait}
    try:
        for number in range(100):
            producer.send({topic!r}, b"%d" % number, partition=0)
        producer.close()
    except BaseException as error:
        print(repr(error))
{begin}
""")
    assert run.stdout == run.stderr == ""
    assert values_of(bootstrap, topic) == [b"%d" % number for number in range(100)]


def test_a_second_ctrl_c_ends_the_wait_for_what_cannot_be_delivered() -> None:
    # Nobody listens on that port, so that the record has to wait for `delivery_timeout_ms`.
    program = """
import barnabas, sys
producer = barnabas.Producer("127.0.0.1:1", delivery_timeout_ms=3_600_000, enable_idempotence=False, acks=1)
accumulator = producer._engine.accumulator
accumulator.append(accumulator.set_partitions("t", 1, [0]), 0, 1, None, b"left", ())
import barnabas.client.client_lifecycle as life
life.SILENCE_S = 0.01
"""
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = ""
    while "press Ctrl-C to exit now" not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    process.send_signal(signal.SIGINT)
    said = process.stderr.read()
    assert process.wait(TIMEOUT_S) == 0
    process.stderr.close()
    assert "1 records were not acknowledged and may be lost" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("what", FORKS)
@pytest.mark.parametrize("client", ["Producer", "Admin"])
def test_a_forked_child_ends_as_if_there_were_no_client(bootstrap: str, topic: str, client: str, what: str) -> None:
    use = {"Producer": f"client.send({topic!r}, b'v')", "Admin": "client.list_topics()"}[client]
    # The address is a name: looking one up has left threads behind that the child did not have, and died of.
    address = bootstrap.replace("127.0.0.1", "localhost")
    program = f"""
import gc, os, sys, barnabas
def use(client):
    {use}
client = barnabas.{client}({address!r})
use(client)
child = os.fork()
if child == 0:
    {FORKS[what].strip().replace(chr(10), chr(10) + "    ")}
else:
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    use(client)
    client.close()
    print("child:", code)
"""
    run = python(program)
    assert run.stdout == "child: 0\n"
    assert run.stderr == ""


def test_a_child_that_leaves_the_with_block_of_its_parent_raises_nothing(bootstrap: str, topic: str) -> None:
    run = python(f"""
import os, barnabas
with barnabas.Producer({bootstrap!r}, linger_ms=5000) as producer:
    producer.send({topic!r}, b"once")
    child = os.fork()
if child:
    print("child:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""")
    assert run.stdout == "child: 0\n"
    assert run.stderr == ""
    assert values_of(bootstrap, topic) == [b"once"]


def test_a_forked_child_drops_its_copy_of_an_asynchronous_consumer_without_a_word() -> None:
    run = python(
        """
import asyncio, gc, os, barnabas
async def main():
    consumer = barnabas.AsyncConsumer("127.0.0.1:1")
    await consumer.start()
    child = os.fork()
    if child == 0:
        try:
            consumer.subscribe("t")
        except barnabas.ClosedError as error:
            code = 0 if "of which this one is a fork" in str(error) else 1
        del consumer
        gc.collect()
        os._exit(code)
    print("child:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    await consumer.close()
asyncio.run(main())
""",
        options=("-W", "always::ResourceWarning"),
    )
    assert run.stdout == "child: 0\n"
    assert "ResourceWarning" not in run.stderr


def test_children_of_multiprocessing_have_producers_of_their_own(bootstrap: str, topic: str, tmp_path: Path) -> None:
    run = python(f"""
import multiprocessing, barnabas
producer = barnabas.Producer({bootstrap!r})
producer.send({topic!r}, b"parent").result()
def work():
    barnabas.Producer({bootstrap!r}, linger_ms=5000).send({topic!r}, b"child").result()
    left = barnabas.Producer({bootstrap!r}, linger_ms=5000)
    left.send({topic!r}, b"left")
    global keep
    keep = left
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
print("child:", child.exitcode)
""")
    assert run.stdout == "child: 0\n"
    assert values_of(bootstrap, topic) == [b"parent", b"child", b"left"]
