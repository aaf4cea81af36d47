"""Histories: what clients of a log did and saw, and the proof that the log kept its promises, or where it did not.

    history = History("run.history")
    producer = RecordedProducer(history, barnabas.Producer(bootstrap, acks="all"), "producer 1")
    consumer = RecordedConsumer(history, barnabas.Consumer(bootstrap), "consumer 1")
    ...                                     # send and poll, while brokers are killed
    read_to_the_end(history, bootstrap, ["clicks"])
    history.close()
    print(check("run.history"))

Each value is sent once, so a value tells which send it came from. Seven things must never happen (`Anomaly`); they
are those that Jepsen's checker for logs looks for. The history is a file of SQLite: 10^7 operations are checked with
the memory of a small program, and whoever wants to know more can ask it questions in SQL.

The parts: `history_file` (the file and its writer), `recorded_clients` (producers and consumers that record what they
do), `checker` (the anomalies), `report` and `timeline` (the findings as text and as a drawing).
From the command line: `python -m barnabas.laboratory.history run.history --picture run.svg`.
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
