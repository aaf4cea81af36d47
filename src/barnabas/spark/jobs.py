"""Runs a function over many items as the tasks of one Spark job, and reports the progress.

Spark Connect has no RDDs. In its sessions each item is a row in a partition of its own, and `mapInArrow` runs the
function.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from threading import Event, Thread
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import Accumulator, SparkContext, TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from barnabas.spark.errors import LoadError
from barnabas.spark.java_errors import SPARK_ERRORS, gateway_of, spark_errors_as
from barnabas.spark.lost_interrupts import interrupt_behind
from barnabas.spark.worker_gc import freeze_imports
from barnabas.spark.worker_python import context_of, worker_python

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

POLL_INTERVAL_S = 0.2
_ATTEMPTS_HERE = count()
CONNECT_TASKS = 8
"""The approximate number of tasks in a Spark Connect session, which does not report its parallelism."""


def parallelism(spark: SparkSession) -> int:
    """Return the number of tasks that the session runs at a time; `CONNECT_TASKS` for Spark Connect."""
    context = context_of(spark)
    return CONNECT_TASKS if context is None else context.defaultParallelism


def is_local(spark: SparkSession) -> bool:
    """Return whether the executors are threads of the driver's JVM, and so see the same files and addresses."""
    context = context_of(spark)
    return context is not None and str(context.master).startswith("local")


def run_tasks(
    spark: SparkSession,
    items: Sequence[ItemT],
    work: Callable[[ItemT, int], ResultT],
    *,
    weight: Callable[[ItemT], int],
    on_done: Callable[[int], None],
) -> list[ResultT]:
    """Return `work(item, attempt id)` of each item, in the order of the items. Each item is a Spark task.

    :param work: Runs on the executors. An attempt id is unique to one attempt of one task.
    :param weight: Returns the share of an item in the progress, for example its number of records.
    :param on_done: Called with the total weight of the completed tasks, from another thread.
    :raises ConfigurationError: The executors run a Python without this package.
    :raises LoadError: A task raised an exception, or Spark failed.
    """
    context = context_of(spark)
    with spark_errors_as(LoadError, gateway_of(spark), "a Spark task failed: "):
        if context is None:
            return _run_as_rows(spark, items, work, sum(map(weight, items)), on_done)
        return _run_as_rdd(spark, context, items, work, weight, on_done)


def run_here(
    items: Sequence[ItemT],
    work: Callable[[ItemT, int], ResultT],
    *,
    weight: Callable[[ItemT], int],
    on_done: Callable[[int], None],
) -> list[ResultT]:
    """Run the items one after the other in this process, without Spark. The arguments are those of `run_tasks`.

    :raises LoadError: A task raised an exception.
    """
    results, done = [], 0
    for item in items:
        try:
            results.append(work(item, next(_ATTEMPTS_HERE)))
        except Exception as error:
            raise LoadError(f"a task failed: {type(error).__name__}: {error}") from error
        done += weight(item)
        on_done(done)
    return results


def _run_as_rdd(
    spark: SparkSession,
    context: SparkContext,
    items: Sequence[ItemT],
    work: Callable[[ItemT, int], ResultT],
    weight: Callable[[ItemT], int],
    on_done: Callable[[int], None],
) -> list[ResultT]:
    done = context.accumulator(0)

    def run_one(item: ItemT) -> ResultT:
        freeze_imports()
        result = work(item, _attempt_id())
        done.add(weight(item))
        return result

    with worker_python(spark), _watch(done, on_done):
        try:
            return context.parallelize(items, len(items)).map(run_one).collect()
        except BaseException as error:
            if interrupt_behind(error) or not isinstance(error, SPARK_ERRORS):
                with suppress(*SPARK_ERRORS):  # ignore errors of the cancellation: the original error is raised
                    context.cancelAllJobs()
            raise


def _run_as_rows(
    spark: Any,
    items: Sequence[ItemT],
    work: Callable[[ItemT, int], ResultT],
    total: int,
    on_done: Callable[[int], None],
) -> list[ResultT]:
    """Run the items as the rows of a DataFrame.

    :param spark: A Spark Connect session; its class is not `SparkSession`.
    """

    def run_some(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_imports()
        for batch in batches:
            for number in batch.column("id").to_pylist():
                result = pickle.dumps(work(items[number], _attempt_id()))
                yield pa.record_batch({"number": pa.array([number], pa.int64()), "result": pa.array([result])})

    def report_progress(stages: Any, **_more: Any) -> None:
        for stage in stages or ():
            on_done(total * stage.num_completed_tasks // max(stage.num_tasks, 1))

    frame = spark.range(0, len(items), 1, len(items)).mapInArrow(run_some, "number bigint, result binary")
    spark.registerProgressHandler(report_progress)
    try:
        rows = frame.collect()
    except BaseException as error:
        if not isinstance(error, PySparkException):
            spark.interruptAll()
        raise
    finally:
        spark.removeProgressHandler(report_progress)
    results = {row["number"]: row["result"] for row in rows}
    return [pickle.loads(results[number]) for number in range(len(items))]


def _attempt_id() -> int:
    task = TaskContext.get()
    return task.taskAttemptId() if task else 0


@contextmanager
def _watch(done: Accumulator[int], on_done: Callable[[int], None]) -> Iterator[None]:
    """Return a context manager that calls `on_done` when the completed weight changes, at most once per
    `POLL_INTERVAL_S`.
    """
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
