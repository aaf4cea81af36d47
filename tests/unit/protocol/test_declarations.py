"""Every declared message, compared with the message definitions that kafka-python ships (Kafka's own JSON)."""

from __future__ import annotations

import json
import re
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

from barnabas.protocol.apis import declared_apis
from barnabas.protocol.declare import (
    LATEST,
    ZERO_UUID,
    Array,
    FieldSpec,
    Nested,
    Nullable,
    WireType,
    api_name,
    fields_of,
    message_of,
    response_of,
)
from barnabas.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from barnabas.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from barnabas.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from barnabas.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from barnabas.protocol.messages.read_share_group_state import ReadShareGroupStateRequest, ReadShareGroupStateResponse
from barnabas.protocol.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse

WITHOUT_DEFINITION = {
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
}
"""kafka-python has no telemetry and no groups of the types `consumer` and `share`: `test_telemetry_messages.py` and
`test_share_group_messages.py` have frames of these messages.
"""

DECLARED = [
    *(cls for api in declared_apis().values() for cls in (api.request, api.response) if cls not in WITHOUT_DEFINITION),
    ConsumerProtocolSubscription,
    ConsumerProtocolAssignment,
]


def definition(name: str) -> dict[str, Any]:
    resource = f"kafka/protocol/schemas/resources/{name}.json"
    text = Path(str(distribution("kafka-python").locate_file(resource))).read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return loaded


def versions(text: str) -> tuple[int, int]:
    if text == "none":
        return LATEST, LATEST
    if text.endswith("+"):
        return int(text[:-1]), LATEST
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def default_of(field: dict[str, Any]) -> Any:
    given = field.get("default")
    kind = field["type"]
    if given == "null":
        return None
    if kind.startswith("[]"):
        return []
    if kind in {"string", "uuid", "bytes"}:
        return {"string": given or "", "uuid": ZERO_UUID, "bytes": b""}[kind]
    if kind == "bool":
        return given in {True, "true"}
    return int(str(given or 0), 0)


def check_fields(cls: type, wanted: list[dict[str, Any]], structs: dict[str, Any], last: range, where: str) -> None:
    """Compare the fields that some declared version has; a field that begins later is not ours to have."""
    here = [f for f in wanted if _overlaps(versions(f["versions"]), last)]
    specs = fields_of(cls)
    assert [spec.name for spec in specs] == [snake_case(f["name"]) for f in here], where
    for spec, field in zip(specs, here, strict=True):
        check_field(spec, field, structs, last, f"{where}.{spec.name}")


def _overlaps(span: tuple[int, int], declared: range) -> bool:
    return span[0] < declared.stop and span[1] >= declared.start


def present_in(span: tuple[int, int], declared: range) -> set[int]:
    return {version for version in declared if span[0] <= version <= span[1]}


def check_field(spec: FieldSpec, field: dict[str, Any], structs: dict[str, Any], declared: range, where: str) -> None:
    present = present_in((spec.since, spec.until), declared)
    assert present == present_in(versions(field["versions"]), declared), where
    nullable = present_in(versions(field.get("nullableVersions", "none")), declared) & present
    inner: WireType = spec.kind
    if isinstance(inner, Nullable):
        assert {version for version in present if version >= inner.since} == nullable, where
        inner = inner.inner
    else:
        assert not nullable, where
    element = inner.element if isinstance(inner, Array) else inner.struct if isinstance(inner, Nested) else None
    if isinstance(element, type):  # structs may have better names here
        assert field["type"].startswith("[]") == isinstance(inner, Array), where
    else:
        assert inner.name == field["type"], where
    if present != set(declared):
        assert spec.ignorable == bool(field.get("ignorable", False)), where
    assert spec.tag == field.get("tag"), where
    check_default(spec, field, declared, where)
    if isinstance(element, type):
        below = field.get("fields") or structs[field["type"].removeprefix("[]")]["fields"]
        check_fields(element, below, structs, declared, where)


def check_default(spec: FieldSpec, field: dict[str, Any], declared: range, where: str) -> None:
    absent_somewhere = any(not spec.present(version) for version in declared)
    if isinstance(spec.kind, Nested):
        assert spec.default_value() == spec.kind.struct(), where
    elif absent_somewhere or not spec.required:
        assert spec.default_value() == default_of(field), where
    else:
        assert field.get("default") in {None, ""} or spec.required, where


@pytest.mark.parametrize("cls", DECLARED, ids=lambda cls: cls.__name__)
def test_declaration_is_kafkas(cls: type) -> None:
    wanted = definition(cls.__name__)
    spec = message_of(cls)
    structs = {struct["name"]: struct for struct in wanted.get("commonStructs", [])}
    assert spec.api_key == wanted.get("apiKey")
    flexible = versions(wanted["flexibleVersions"])[0]
    assert min(spec.flexible_since, LATEST) == flexible
    assert spec.versions.stop - 1 <= versions(wanted["validVersions"])[1]
    check_fields(cls, wanted["fields"], structs, spec.versions, cls.__name__)


def test_response_and_name_follow_from_the_request() -> None:
    assert response_of(HeartbeatRequest) is HeartbeatResponse
    assert api_name(HeartbeatRequest) == "Heartbeat"
