"""`barnabas produce -s` and `barnabas consume -s`: records with schemas, as confluent-kafka reads and writes them."""

from __future__ import annotations

import base64
import http.client
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.interop.conftest import CLIENTS
from tests.support.fake_registry import avro_record
from tests.support.reading import read_topic
from tests.support.registry_process import RegistryProcess

COMMAND = [sys.executable, "-m", "barnabas.cli.main"]
TIMEOUT_S = 60
CLICK = {
    "type": "record",
    "name": "Click",
    "namespace": "web",
    "fields": [
        {"name": "page", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "member", "type": ["null", "long"], "default": None},
    ],
}
CLICK_PROTO = """
syntax = "proto3";
package web;
message Other { string a = 1; }
message Click { string page = 1; int64 member_id = 2; repeated string tags = 3; }
"""
LINES = [{"page": "/jobs ż", "at": 1_359_644_400_000, "member": 42}, {"page": "/", "at": 0, "member": None}]

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def registry(shared_broker, tmp_path_factory) -> Iterator[RegistryProcess]:
    process = RegistryProcess(shared_broker.bootstrap, tmp_path_factory.mktemp("registry") / "registry.log")
    yield process
    process.close()


@pytest.fixture
def run(shared_broker) -> Run:
    """Runs the command to its end; expects the exit code 0 unless told another."""

    def run_command(*arguments: object, given: str = "", code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*COMMAND, *map(str, arguments)],
            input=given,
            capture_output=True,
            text=True,
            env={**os.environ, "BARNABAS_BOOTSTRAP": shared_broker.bootstrap},
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done

    return run_command


def as_lines(values: list[object]) -> str:
    return "".join(f"{json.dumps(each)}\n" for each in values)


def test_avro_lines_are_records_of_confluent_kafka_both_ways(run: Run, registry, topic, bootstrap) -> None:
    registry.register(f"{topic}-value", CLICK)
    run("produce", topic, "-s", "value=avro", "-r", registry.url, "-k", "u", given=as_lines(LINES))
    client = SchemaRegistryClient({"url": registry.url})
    context = SerializationContext(topic, MessageField.VALUE)
    theirs = AvroSerializer(client, json.dumps(CLICK))({"page": "/theirs", "at": 5, "member": None}, context)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, theirs, key=b"u")
    assert producer.flush(TIMEOUT_S) == 0
    shown = run("consume", topic, "-e", "-s", "value=avro", "-r", registry.url, "-K", "=").stdout.splitlines()
    assert [json.loads(line.removeprefix("u=")) for line in shown] == [
        *LINES,
        {"page": "/theirs", "at": 5, "member": None},
    ]
    as_json = run("consume", topic, "-c", 1, "-s", "value=avro", "-r", registry.url, "-J").stdout
    assert (json.loads(as_json)["key"], json.loads(as_json)["payload"]) == ("u", LINES[0])
    stored = [event.value for _, event in read_topic(CLIENTS[0], bootstrap, topic, 3)]
    assert AvroDeserializer(client)(stored[0], context)["page"] == LINES[0]["page"]


class GuardedSchemas(BaseHTTPRequestHandler):
    """Answers requests for a schema that have the credentials of alice."""

    def do_GET(self) -> None:
        expected = f"Basic {base64.b64encode(b'alice:s3cret').decode()}"
        status = http.client.OK if self.headers["Authorization"] == expected else http.client.UNAUTHORIZED
        found = {"schema": json.dumps(CLICK)} if status == http.client.OK else {"error_code": 40101, "message": "who?"}
        body = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_details: object) -> None:
        """Print nothing."""


def test_profile_contains_the_registry_and_its_credentials(run: Run, topic, bootstrap, tmp_path: Path) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, avro_record(7, CLICK, LINES[0]))
    assert producer.flush(TIMEOUT_S) == 0
    (tmp_path / "password.txt").write_text("s3cret\n")
    with ThreadingHTTPServer(("127.0.0.1", 0), GuardedSchemas) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            url = f"http://127.0.0.1:{server.server_address[1]}"
            profile = tmp_path / "profile.toml"
            password = f"${{file:{tmp_path}/password.txt}}"
            profile.write_text(f'[schema.registry]\nurl = "{url}"\nusername = "alice"\npassword = "{password}"\n')
            shown = run("consume", topic, "-e", "-s", "value=avro", "--profile", profile).stdout
            refused = run("consume", topic, "-e", "-s", "value=avro", "-r", url, code=1)
        finally:
            server.shutdown()
    assert json.loads(shown) == LINES[0]
    assert (refused.stdout, refused.stderr) == ("", "barnabas: who? (40101)\n")


def test_key_and_value_of_a_schema_file_are_registered(run: Run, registry, topic, tmp_path: Path) -> None:
    (tmp_path / "key.avsc").write_text('"long"')
    (tmp_path / "value.avsc").write_text(json.dumps(CLICK))
    schemas = ["--key-schema", tmp_path / "key.avsc", "--value-schema", tmp_path / "value.avsc"]
    given = f"7\t{json.dumps(LINES[0])}\n"
    run("produce", topic, "-s", "avro", "-r", registry.url, "-K", "\\t", *schemas, given=given)
    assert registry.get(f"/subjects/{topic}-key/versions/latest")["schema"] == '"long"'
    assert run("consume", topic, "-e", "-s", "avro", "-r", registry.url, "-K", "\\t").stdout.split("\t")[0] == "7"


def test_json_lines_are_validated(run: Run, registry, topic) -> None:
    schema = {"type": "object", "properties": {"page": {"type": "string"}}, "required": ["page"]}
    registry.register(f"{topic}-value", schema, schemaType="JSON")
    given = as_lines([{"page": "/a"}, {"page": 1}, {"page": "/b"}])
    done = run("produce", topic, "-s", "value=json", "-r", registry.url, given=given, code=1)
    assert "line 2: value: the value does not fit its schema at $.page: 1 is not of type 'string'" in done.stderr
    assert "1 line before it: sent" in done.stderr
    run("produce", topic, given='{"page":"/plain"}\n')
    shown = run("consume", topic, "-e", "-s", "value=json").stdout
    assert [json.loads(line) for line in shown.splitlines()] == [{"page": "/a"}, {"page": "/plain"}]


def test_protobuf_lines_are_messages_of_the_named_type(run: Run, registry, topic, tmp_path: Path) -> None:
    (tmp_path / "click.proto").write_text(CLICK_PROTO)
    message = {"page": "/jobs", "member_id": "42", "tags": ["a", "b"]}
    options = ["-s", "value=protobuf:web.Click", "-r", registry.url]
    run("produce", topic, *options, "--value-schema", tmp_path / "click.proto", given=as_lines([message]))
    shown = run("consume", topic, "-e", "-s", "value=protobuf", "-r", registry.url).stdout
    assert json.loads(shown) == message
    done = run("produce", topic, "-s", "value=protobuf:web.Clik", "-r", registry.url, given="{}\n", code=1)
    assert "the schema has no message 'web.Clik'; it has web.Click, web.Other" in done.stderr
    done = run("produce", topic, *options, given='{"pages": 1}\n', code=1)
    assert "line 1: value: the value does not fit web.Click" in done.stderr


def test_values_that_cannot_be_decoded_are_printed_and_reported(run: Run, registry, topic) -> None:
    registry.register(f"{topic}-value", CLICK)
    options = ["-s", "value=avro", "-r", registry.url]
    run("produce", topic, given="plain\n")
    run("produce", topic, *options, given=as_lines(LINES[:1]))
    run("produce", topic, "-Z", given="\n")
    run("produce", topic, given="".join(f"{number}\n" for number in range(11)))
    done = run("consume", topic, "-e", "-Z", *options, code=1)
    lines = done.stdout.splitlines()
    assert (lines[0], json.loads(lines[1]), lines[2], lines[3]) == ("plain", LINES[0], "NULL", "0")
    assert len(lines) == 14
    assert f"{topic}-0 offset 0: cannot decode the value: the first byte is 112 instead of 0" in done.stderr
    assert len(done.stderr.splitlines()) == 11
    assert done.stderr.endswith("could not decode 12 keys or values\n")


def test_missing_subject_and_other_kind_of_schema_are_errors(run: Run, registry, topic) -> None:
    options = ["-s", "value=avro", "-r", registry.url]
    assert f"Subject '{topic}-value' not found" in run("produce", topic, *options, given="{}\n", code=1).stderr
    registry.register(f"{topic}-value", {"type": "object"}, schemaType="JSON")
    done = run("produce", topic, *options, given="{}\n", code=2)
    assert done.stderr == f"barnabas: the schema of subject {topic}-value is of type JSON, not AVRO\n"
