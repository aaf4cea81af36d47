"""The arrival times of a partition's records, estimated from a bounded number of samples of its end offset."""

from __future__ import annotations

from array import array

POINTS_MAX = 32
"""The maximum number of samples per partition. A sample takes 16 bytes."""


class ArrivalTimes:
    """Samples of the end offset of one log. One thread adds samples, and any thread may read them.

    If there are too many samples, the sample whose neighbors are closest, relative to its age, is removed. So the
    accuracy is seconds for recent times, and hours for times some days ago.

    >>> arrivals = ArrivalTimes()
    >>> for now_s, end_offset in (0.0, 100), (10.0, 100), (20.0, 200), (30.0, 200):
    ...     arrivals.note(now_s, end_offset)
    >>> [arrivals.age_s(offset, now_s=30.0) for offset in (0, 100, 150, 200)]
    [30.0, 20.0, 15.0, 0.0]
    """

    __slots__ = ("_points",)

    def __init__(self) -> None:
        # Times and end offsets alternate in one array, so that other threads can copy them atomically.
        self._points = array("d")

    def note(self, now_s: float, end_offset: int) -> None:
        """Add a sample.

        :param now_s: monotonic seconds.
        """
        points = self._points
        while points and points[-1] > end_offset:  # The log was truncated.
            del points[-2:]
        if len(points) >= 4 and points[-1] == points[-3] == end_offset:
            points[-2] = now_s  # Extend the period without new records instead of adding a sample.
            return
        points.extend((now_s, end_offset))
        if len(points) > 2 * POINTS_MAX:
            self._drop_one(now_s)

    def age_s(self, offset: int, now_s: float) -> float | None:
        """Return the age in seconds of the record at an offset.

        Return 0 if the record does not exist, or None if there are no samples.

        If a record is older than the first sample, return the age of the first sample.
        """
        points = self._points[:]
        if not points:
            return None
        later_s = now_s
        for at in range(len(points) - 2, -1, -2):
            time_s, end_offset = points[at], points[at + 1]
            if end_offset <= offset:
                if at + 2 == len(points):
                    return 0.0
                # Interpolate: records are assumed to arrive evenly between two samples.
                share = (offset - end_offset) / (points[at + 3] - end_offset)
                return now_s - (time_s + share * (later_s - time_s))
            later_s = time_s
        return now_s - points[0]

    def _drop_one(self, now_s: float) -> None:
        points = self._points

        def gap(at: int) -> float:
            return (points[at + 2] - points[at - 2]) / (now_s - points[at] + 1.0)

        at = min(range(2, len(points) - 2, 2), key=gap)
        del points[at : at + 2]
