"""Records with schemas in the console, beside a real broker and a real registry."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
from pathlib import Path
from urllib.parse import quote

from google.protobuf.wrappers_pb2 import StringValue

import barnabas as client
from tests.support.broker_process import BrokerProcess
from tests.support.console_process import running_console
from tests.support.reading import TIMEOUT_S
from tests.support.registry_process import RegistryProcess

CLICK = {
    "type": "record",
    "name": "Click",
    "fields": [{"name": "page", "type": "string"}, {"name": "user", "type": {"type": "map", "values": "long"}}],
}


def test_records_are_decoded_by_the_registry(broker: BrokerProcess, tmp_path: Path) -> None:
    registry = RegistryProcess(broker.bootstrap, tmp_path / "registry.log")
    with contextlib.ExitStack() as stopping:
        stopping.callback(registry.close)
        schemas = client.SchemaRegistry(registry.url)
        avro = client.AvroSerializer(schemas, CLICK)
        with client.Admin(broker.bootstrap) as admin:
            admin.create_topic("clicks")
        with client.Producer(broker.bootstrap) as producer:
            for number in range(3):
                value = avro.serialize({"page": f"/<b>{number}", "user": {"id": number}}, "clicks")
                key = client.ProtobufSerializer(schemas, StringValue).serialize(StringValue(value="me"), "clicks", True)
                producer.send("clicks", value, key=key)
            as_json = client.JsonSerializer(schemas, {"type": "object", "title": "c"}, subject_name=lambda *_: "json")
            producer.send("clicks", as_json.serialize({"page": "/json"}, "clicks"))
            producer.send("clicks", b"\0\0\0\xff\xff???")
        console = stopping.enter_context(running_console(broker.bootstrap, "--registry", registry.url))
        page = console.page("/records?topic=clicks")
        assert "{&#34;page&#34;: &#34;/&lt;b&gt;0&#34;, &#34;user&#34;: {&#34;id&#34;: 0}}" in page
        assert "<b>page</b>: &#34;/json&#34;" in page
        assert "the registry has no schema 65535" in page
        assert f"-s key=protobuf -s value=json -r {registry.url}" in page  # the newest decoded key and value
        assert {"/schema?name=clicks-value&amp;version=1", "/schema?name=clicks-key&amp;version=1"} <= set(
            re.findall(r'href="(/schema[^"]+)"', page)
        )
        assert "<h1>clicks-value" in console.page("/schema?name=clicks-value&version=1")
        found = console.page("/records?topic=clicks&from=beginning&path=user.id&equals=2")
        assert "1 record," in found
        assert "left out 1 value that was not decoded: the registry has no schema 65535" in found
        assert "<b>user</b>" in console.page("/record?topic=clicks&partition=0&offset=0")
        connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=TIMEOUT_S)
        with contextlib.closing(connection), client.Producer(broker.bootstrap) as producer:
            connection.request("GET", "/records/live?topic=clicks")
            response = connection.getresponse()
            response.readline()
            producer.send("clicks", avro.serialize({"page": "/live", "user": {}}, "clicks")).result()
            lines: list[dict[str, dict[str, object]]] = []
            while not lines:
                line = response.readline().decode()
                if line.startswith("data: "):
                    lines = json.loads(line[6:])["records"]
        live = lines[0]["value"]
        assert live["text"] == '{"page": "/live", "user": {}}'
        assert live["tree"] == ["", "{2}", [["page", '"/live"', []], ["user", "{0}", []]]]
        assert live["schemaLink"] == f"/schema?name={quote('clicks-value')}&version=1"
        registry.kill()
        assert "/&lt;b&gt;0" in console.page("/records?topic=clicks")  # known schemas need no registry
    with running_console(broker.bootstrap, "--registry", registry.url) as console:
        page = console.page("/records?topic=clicks")
        assert "no schema registry responds" in page
        assert "\\x00\\x00\\x00" in page
