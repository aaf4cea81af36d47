"""The broker's settings of log compaction that are not defaults of topics' settings: their bounds are Kafka's."""

from __future__ import annotations

import sys

from barnabas.broker.settings.rules import Rule, number, small, whole

CLEANER_RULES: dict[str, Rule] = {
    "log.cleaner.backoff.ms": whole(),
    "log.cleaner.dedupe.buffer.size": whole(),
    "log.cleaner.io.buffer.load.factor": number(),
    "log.cleaner.io.buffer.size": small(),
    "log.cleaner.io.max.bytes.per.second": number(0.0, sys.float_info.max),
    "log.cleaner.threads": small(),
}
"""Each can be changed while the broker runs."""

BUFFER_BYTES_PER_THREAD_MIN = 1024 * 1024
"""What each thread needs of `log.cleaner.dedupe.buffer.size`."""
