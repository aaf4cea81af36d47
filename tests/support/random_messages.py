"""Random requests for the fuzzer: right in their structure, wild in their values, and then damaged."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from typing import Any

from barnabas.protocol.apis import Api, declared_apis
from barnabas.protocol.codec import Buffer, request_frame
from barnabas.protocol.declare import (
    Array,
    Blob,
    FieldSpec,
    Fixed,
    Nested,
    Nullable,
    RecordBytes,
    Text,
    WireType,
    fields_of,
)
from barnabas.records import BatchBuilder, Compression

NAMES = ["", "t", "t0", "clicks", "a/b", "..", "x" * 300, "\x00", "é", "consumer", "range", "member-1"]
BITS = {"b": 8, "h": 16, "i": 32, "q": 64}


class RandomMessages:
    """Makes request frames from a seed.

    :param apis: those that `frame` chooses from.
    """

    def __init__(self, seed: int, apis: Iterable[Api] = ()) -> None:
        self.random = random.Random(seed)
        self._apis = list(apis) or list(declared_apis().values())
        self._batches = [self._batch(kind) for kind in Compression]

    def frame(self) -> bytes:
        """Return the next request frame, without its size; about half of them are damaged."""
        api = self.random.choice(self._apis)
        version = self.random.choice(api.versions)
        chunks = request_frame(self.struct(api.request, version), version, self.random.randrange(2**31), "fuzz")
        whole = b"".join(bytes(chunk) for chunk in chunks if isinstance(chunk, Buffer))
        frame = bytearray(whole[4:])
        while self.random.random() < 0.5:
            self._damage(frame)
        return bytes(frame)

    def struct(self, cls: type, version: int) -> Any:
        return cls(**{spec.name: self._field(spec, version) for spec in fields_of(cls)})

    def _field(self, spec: FieldSpec, version: int) -> Any:
        return self._value(spec.kind, version) if spec.present(version) else spec.default_value()

    def _value(self, kind: WireType | type, version: int) -> Any:
        choose = self.random
        value: Any
        match kind:
            case Nullable(inner=inner, since=since):
                value = None if version >= since and choose.random() < 0.2 else self._value(inner, version)
            case Nested(struct=cls):
                value = self.struct(cls, version)
            case Array(element=element):
                value = [self._value(element, version) for _ in range(choose.choice([0, 1, 1, 2]))]
            case Text():
                value = choose.choice(NAMES)
            case RecordBytes():
                value = choose.choice(self._batches)
            case Blob():
                value = choose.randbytes(choose.choice([0, 1, 20]))
            case Fixed(code="?"):
                value = choose.random() < 0.5
            case Fixed(code="16s"):
                value = choose.choice([bytes(16), choose.randbytes(16)])
            case Fixed(code="H"):
                value = choose.choice([0, 1, 9092, 2**16 - 1])
            case Fixed(code="d"):
                value = choose.choice([0.0, 1.0, 0.5, -1.0, 1e308, float("inf"), float("nan")])
            case Fixed(code=code):
                half = 2 ** (BITS[code] - 1)
                value = choose.choice([0, 0, 0, 1, 1, 2, -1, -2, -3, 100, half - 1, -half, choose.randrange(half)])
                value = max(-half, min(value, half - 1))
            case _:
                assert isinstance(kind, type)
                value = self.struct(kind, version)
        return value

    def _batch(self, kind: Compression) -> bytes:
        builder = BatchBuilder(kind)
        for number in range(3):
            builder.append(1_000 + number, b"key", b"value" * 20, [("h", None)])
        return bytes(builder.build(7, 0, 0))

    def _damage(self, frame: bytearray) -> None:
        if not frame:
            return
        position = self.random.randrange(len(frame))
        match self.random.randrange(5):
            case 0:
                frame[position] ^= 1 << self.random.randrange(8)
            case 1:
                del frame[position:]
            case 2:
                frame[position:position] = self.random.randbytes(self.random.randrange(1, 9))
            case 3:
                del frame[position : position + self.random.randrange(1, 9)]
            case _:
                wild = self.random.choice([-1, -2, 2**31 - 1, -(2**31), 0, 1_000_000])
                frame[position : position + 4] = struct.pack(">i", wild)
