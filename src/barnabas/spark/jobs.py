"""Runs one function over many items as the tasks of one Spark job, and tells how far it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import TypeVar

from py4j.protocol import Py4JError
from pyspark import Accumulator, TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from barnabas.spark.errors import LoadError
from barnabas.spark.worker_python import worker_python

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

POLL_INTERVAL_S = 0.2


def run_tasks(
    spark: SparkSession,
    items: Sequence[ItemT],
    work: Callable[[ItemT, int], ResultT],
    *,
    weight: Callable[[ItemT], int],
    on_done: Callable[[int], None],
) -> list[ResultT]:
    """Return `work(item, attempt id)` of each item, in their order; each is a Spark task of its own.

    :param work: runs on the executors; an attempt id is unique to one attempt of one task.
    :param weight: how much of the whole an item is.
    :param on_done: called with the weight done so far, from another thread.
    :raises ConfigurationError: the executors run a Python without this package.
    :raises LoadError: a task failed with an exception, or Spark did.
    """
    context = spark.sparkContext
    done = context.accumulator(0)

    def run_one(item: ItemT) -> ResultT:
        task = TaskContext.get()
        result = work(item, task.taskAttemptId() if task else 0)
        done.add(weight(item))
        return result

    with worker_python(spark), _watch(done, on_done):
        try:
            return context.parallelize(items, len(items)).map(run_one).collect()
        except (Py4JError, PySparkException) as error:
            raise LoadError(f"a Spark task failed: {_last_line(str(error))}") from error
        except BaseException:
            context.cancelAllJobs()
            raise


@contextmanager
def _watch(done: Accumulator[int], on_done: Callable[[int], None]) -> Iterator[None]:
    """Report what is done while the context lasts, at most every `POLL_INTERVAL_S`."""
    ended = Event()

    def watch() -> None:
        reported = 0
        while not ended.wait(POLL_INTERVAL_S):
            if done.value != reported:
                reported = done.value
                on_done(reported)

    thread = Thread(target=watch, name="barnabas-load-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _last_line(text: str) -> str:
    """Return the last line of the Python traceback inside Spark's message, which says what went wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [line for line in lines if "Error: " in line and not line.startswith(("at ", "org.", "Caused", "java"))]
    return (python or lines or ["no message"])[-1]
