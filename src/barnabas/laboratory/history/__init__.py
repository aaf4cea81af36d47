"""Histories: records of all operations of clients on a log, and a check that the log kept its guarantees.

    history = History("run.history")
    producer = RecordedProducer(history, barnabas.Producer(bootstrap, acks="all"), "producer 1")
    consumer = RecordedConsumer(history, barnabas.Consumer(bootstrap), "consumer 1")
    ...                                     # send and poll, while brokers are killed
    read_to_the_end(history, bootstrap, ["clicks"])
    history.close()
    print(check("run.history"))

Each value is sent only once, so a value identifies its send. The check detects the same anomalies (`Anomaly`) as
Jepsen's checker for logs. The history is an SQLite file: the check of 10^7 operations takes little memory, and SQL
queries can examine the file further.

The parts: `history_file` (the file and its writer), `recorded_clients` (producers and consumers that record their
operations), `checker` (the anomalies), `report` and `timeline` (the findings as text and as a drawing). The command
line: `python -m barnabas.laboratory.history run.history --picture run.svg`.
"""

from barnabas.laboratory.history.checker import Anomaly, Finding, Report, check
from barnabas.laboratory.history.history_file import History, Outcome, Send, Value
from barnabas.laboratory.history.recorded_clients import RecordedConsumer, RecordedProducer, outcome_of, read_to_the_end
from barnabas.laboratory.history.timeline import picture

__all__ = [
    "Anomaly",
    "Finding",
    "History",
    "Outcome",
    "RecordedConsumer",
    "RecordedProducer",
    "Report",
    "Send",
    "Value",
    "check",
    "outcome_of",
    "picture",
    "read_to_the_end",
]
