"""`barnabas sql` on a real broker: what is read of it, and the command as people and programs use it."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import barnabas
from barnabas.formats.times import TIME_TYPE
from barnabas.sql.duckdb_engine import DuckDbEngine
from barnabas.sql.sampling import ValueOptions
from barnabas.sql.topics import Topics
from tests.support.registry_process import RegistryProcess

pytest.importorskip("duckdb")

COMMAND = [sys.executable, "-m", "barnabas.cli.main", "sql"]
TIMEOUT_S = 60
PARTITIONS = 3
RECORDS = 3_000
BEGAN_MS = 1_700_000_000_000
SCHEMA = (
    '{"type": "record", "name": "Click", "fields": [{"name": "page", "type": "string"}, {"name": "ms", "type": "int"}]}'
)


@pytest.fixture(scope="module")
def clicks(shared_broker) -> str:
    """A topic with a dot and a dash in its name, and a record a second in one partition after the other."""
    name = "web.clicks-1"
    with barnabas.Admin(shared_broker.bootstrap) as admin:
        admin.create_topic(name, partitions=PARTITIONS, config={"retention.ms": "-1"})
    with barnabas.Producer(shared_broker.bootstrap) as producer:
        for number in range(RECORDS):
            value = json.dumps({"page": f"/{number % 10}", "ms": number}).encode()
            producer.send(name, value, partition=number % PARTITIONS, timestamp_ms=BEGAN_MS + number * 1_000)
    return name


@pytest.fixture
def topics(bootstrap: str) -> Iterator[Topics]:
    with Topics(bootstrap, ValueOptions()) as found:
        yield found


def run(bootstrap: str, *arguments: str, given: str = "", code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*COMMAND, "-b", bootstrap, *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def rows(engine: DuckDbEngine, query: str) -> list[dict[str, object]]:
    return [row for batch in engine.run(query).batches for row in batch.to_pylist()]


def test_conditions_on_time_and_place_narrow_what_the_brokers_are_asked_for(topics, clicks: str) -> None:
    table = topics.get(clicks)
    per_partition = RECORDS // PARTITIONS
    late = datetime.fromtimestamp(BEGAN_MS / 1000 + RECORDS - 30, UTC)
    narrowed = topics.ranges(table, ds.field("timestamp") >= ds.scalar(late).cast(TIME_TYPE))
    assert {(tp.partition, each.start_offset, each.end_offset) for tp, each in narrowed.items()} == {
        (partition, per_partition - 10, per_partition) for partition in range(PARTITIONS)
    }
    ((tp, wanted),) = topics.ranges(table, (ds.field("partition") == 1) & (ds.field("offset") < 5)).items()
    assert (tp.partition, wanted.start_offset, wanted.end_offset) == (1, 0, 5)
    assert topics.ranges(table, ds.field("timestamp") > ds.scalar(datetime(2199, 1, 1, tzinfo=UTC))) == {}


def test_every_record_is_a_row_with_the_fields_of_its_value(topics, clicks: str) -> None:
    with DuckDbEngine(topics) as engine:
        (counted,) = rows(engine, f'select count(*) n, sum(ms) ms, count(distinct "partition") p from "{clicks}"')
        assert counted == {"n": RECORDS, "ms": sum(range(RECORDS)), "p": PARTITIONS}
        (first,) = rows(engine, f'select * from "{clicks}" where ms = 2999')
        assert (first["topic"], first["partition"], first["offset"], first["page"]) == (clicks, 2, 999, "/9")
        assert first["timestamp"] == datetime.fromtimestamp(BEGAN_MS / 1000 + 2999, UTC)


def test_records_that_were_deleted_meanwhile_are_passed_over(topics, bootstrap: str, topic: str) -> None:
    with barnabas.Producer(bootstrap) as producer:
        producer.send_many(topic, [b'{"n": 1}'] * 10)
    with barnabas.Admin(bootstrap) as admin, DuckDbEngine(topics) as engine:
        table = topics.get(topic)
        reading = topics.read(table, ["offset"], None)
        admin.delete_records({(topic, 0): 4})
        assert [offset for batch in reading for offset in batch.column(0).to_pylist()] == [4, 5, 6, 7, 8, 9]
        assert rows(engine, f'select min("offset") first from "{topic}"') == [{"first": 4}]


@cache
def person_class() -> Any:
    """Return the class of a message with a name."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="sql_person.proto", package="web", syntax="proto3")
    message = file.message_type.add(name="Person")
    message.field.add(name="name", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("web.Person"))


def test_avro_and_protobuf_have_the_columns_of_their_schemas(bootstrap: str, topic: str, tmp_path: Path) -> None:
    pytest.importorskip("pyruhvro")
    people = f"{topic}-people"
    registry = RegistryProcess(bootstrap, tmp_path / "registry.log")
    try:
        serializer = barnabas.AvroSerializer(barnabas.SchemaRegistry(registry.url), SCHEMA)
        with barnabas.Producer(bootstrap, value_serializer=serializer) as producer:
            producer.send(topic, {"page": "/jobs", "ms": 5}, headers=[("trace", b"7")])
        serializer = barnabas.ProtobufSerializer(barnabas.SchemaRegistry(registry.url), person_class())
        with barnabas.Producer(bootstrap, value_serializer=serializer) as producer:
            producer.send(people, person_class()(name="Ann"))
        with Topics(bootstrap, ValueOptions(registry=registry.url)) as topics, DuckDbEngine(topics) as engine:
            assert topics.get(topic).rows.values.format == "avro"
            assert rows(engine, f'select page, ms + 1 as later from "{topic}"') == [{"page": "/jobs", "later": 6}]
            assert rows(engine, f"""select headers['trace'] as trace from "{topic}" where headers is not null""") == [
                {"trace": "7"}
            ]
            assert topics.get(people).rows.values.format == "protobuf"
            assert rows(engine, f'select name from "{people}"') == [{"name": "Ann"}]
    finally:
        registry.process.kill()
        registry.process.communicate()


def test_the_command_prints_tables_json_and_csv(bootstrap: str, clicks: str) -> None:
    query = f'select page, count(*) as n from "{clicks}" where ms < 100 group by page order by page limit 2'
    assert run(bootstrap, query).stdout == "page   n\n/0    10\n/1    10\n"
    assert run(bootstrap, "--csv", given=query).stdout == "page,n\n/0,10\n/1,10\n"
    as_json = run(bootstrap, f"{query}; select 2.5::double as x, null as y", "--json").stdout
    assert [json.loads(line) for line in as_json.splitlines()] == [
        {"page": "/0", "n": 10},
        {"page": "/1", "n": 10},
        {"x": 2.5, "y": None},
    ]


def test_what_is_wrong_is_told_in_a_line(bootstrap: str, clicks: str, tmp_path: Path) -> None:
    assert f"did you mean '{clicks}'?" in run(bootstrap, 'select * from "web.clicks"', code=1).stderr
    refused = run(bootstrap, f"copy (select 1) to '{tmp_path / 'out'}'", code=1).stderr
    assert refused.startswith("barnabas: only queries are allowed")
    assert not (tmp_path / "out").exists()
    assert "no broker responds" in run("127.0.0.1:1", "select 1", code=1).stderr


def test_it_ends_when_its_reader_has_seen_enough(bootstrap: str, clicks: str) -> None:
    query = f'select a.ms from "{clicks}" a, "{clicks}" b'
    process = subprocess.Popen(
        [*COMMAND, "-b", bootstrap, query, "--csv"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert process.stderr
    assert process.stdout.readline() == "ms\n"
    process.stdout.close()
    assert process.wait(TIMEOUT_S) == 141
    assert process.stderr.read() == ""
    process.stderr.close()


def test_watching_asks_again_until_it_is_stopped(bootstrap: str, topic: str) -> None:
    with barnabas.Producer(bootstrap) as producer:
        producer.send(topic, b'{"n": 1}')
        producer.flush()
        query = f'select count(*) as n from "{topic}"'
        command = [*COMMAND, "-b", bootstrap, query, "--json", "--watch", "0.1"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout
        assert json.loads(process.stdout.readline()) == {"n": 1}
        producer.send(topic, b'{"n": 2}')
        producer.flush()
        assert any(json.loads(line) == {"n": 2} for line in process.stdout)
    process.send_signal(signal.SIGTERM)
    assert process.wait(TIMEOUT_S) == 143
    process.stdout.close()


class Terminal:
    """The command at a terminal."""

    def __init__(self, bootstrap: str, state: Path) -> None:
        self.master, slave = pty.openpty()
        environment = {**os.environ, "XDG_STATE_HOME": str(state), "TERM": "dumb"}
        self.process = subprocess.Popen(
            [*COMMAND, "-b", bootstrap],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
        )
        os.close(slave)
        self.seen = ""

    def wait_for(self, text: str) -> str:
        """Return what came up to a text that is to come."""
        while text not in self.seen:
            ready, _, _ = select.select([self.master], [], [], TIMEOUT_S)
            assert ready, self.seen
            self.seen += os.read(self.master, 65_536).decode(errors="replace")
        before, _, self.seen = self.seen.partition(text)
        return before

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self.master, text.encode())

    def close(self) -> None:
        """End it, however it stands."""
        self.process.kill()
        self.process.wait()
        os.close(self.master)


def test_at_the_prompt_ctrl_c_ends_a_query_and_ctrl_d_leaves(bootstrap: str, clicks: str, tmp_path: Path) -> None:
    terminal = Terminal(bootstrap, tmp_path)
    try:
        terminal.wait_for("barnabas> ")
        terminal.type(".schema web.clicks-1\n")
        assert "timestamp" in terminal.wait_for("values are json")
        terminal.type(f'select count(*) as n\nfrom "{clicks}";\n')
        assert "3000" in terminal.wait_for("(1 row, ")
        terminal.type("select nothing;\n")
        terminal.wait_for('"nothing" was not found')
        terminal.type(f'select a.ms + 7000000 as far from "{clicks}" a, "{clicks}" b, "{clicks}" c;\n')
        terminal.wait_for("\n7000")  # its rows come
        os.kill(terminal.process.pid, signal.SIGINT)
        terminal.wait_for("interrupted")
        terminal.wait_for("barnabas> ")
        terminal.type(".tables\n")
        terminal.wait_for(clicks)
        terminal.wait_for("barnabas> ")
        terminal.type("\x04")
        assert terminal.process.wait(TIMEOUT_S) == 0
        assert "select nothing;" in (tmp_path / "barnabas" / "sql_history").read_text()
    finally:
        terminal.close()


def test_commands_with_a_dot_are_carried_out_from_a_pipe(bootstrap: str, clicks: str) -> None:
    given = f'.tables\nselect count(*) as n from "{clicks}";\n.schema {clicks}\n.quit\nselect 1;\n'
    lines = run(bootstrap, "--csv", given=given).stdout.splitlines()
    assert clicks in lines
    assert lines.index(clicks) < lines.index("n")
    assert any(line.split()[0] == "timestamp" for line in lines if line)
    assert "1" not in lines
