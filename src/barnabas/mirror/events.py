"""The events of a running mirror, for users and programs. A problem is reported once, however long it lasts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Event = Mapping[str, object]
EventSink = Callable[[Event], None]


class EventReporter:
    """Reports a problem when it begins and when it ends, but not in between.

    >>> events = []
    >>> reporter = EventReporter(events.append)
    >>> reporter.problem("clicks", "refused", "it is a circle"); reporter.problem("clicks", "refused", "it is a circle")
    >>> reporter.recovered("clicks"); reporter.recovered("clicks")
    >>> events
    [{'about': 'clicks', 'event': 'refused', 'reason': 'it is a circle'}, {'about': 'clicks', 'event': 'well again'}]
    """

    def __init__(self, sink: EventSink) -> None:
        self._sink = sink
        self._states: dict[str, tuple[str, str]] = {}
        self._left_out: set[str] = set()

    def report(self, about: str, event: str, **more: object) -> None:
        """Report an event."""
        self._sink({"about": about, "event": event, **more})

    def problem(self, about: str, event: str, reason: str) -> None:
        """Report a problem unless it has already been reported."""
        if self._states.get(about) != (event, reason):
            self._states[about] = (event, reason)
            self._sink({"about": about, "event": event, "reason": reason})

    def skipped(self, about: str, reason: str) -> None:
        """Report once that the mirror skips a topic or setting on purpose. This is not a problem."""
        if about not in self._left_out:
            self._left_out.add(about)
            self.report(about, "left out", reason=reason)

    def recovered(self, about: str) -> None:
        """Report the end of a problem, if one was reported."""
        if self._states.pop(about, None) is not None:
            self._sink({"about": about, "event": "well again"})

    def forget(self, about: str) -> None:
        """Drop the problem of a deleted topic or partition, without an event."""
        self._states.pop(about, None)

    @property
    def current_problems(self) -> dict[str, str]:
        """The reason for each current problem, by the topic, partition or task with the problem."""
        return {about: reason for about, (_, reason) in self._states.copy().items()}
