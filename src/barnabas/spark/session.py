"""A local Spark session that starts quickly and prints nothing.

The output of the JVM (its warnings, log4j) goes to a file. Nothing depends on this session: all of `barnabas.spark`
takes any `SparkSession`, for example the one that `spark-submit` set up on a cluster.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import TimeoutExpired
from tempfile import TemporaryFile, gettempdir
from threading import current_thread, main_thread
from typing import IO, BinaryIO

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from barnabas.spark import class_archive, fast_worker_start
from barnabas.spark.errors import SparkFailedError
from barnabas.spark.fast_worker_start import environment_set
from barnabas.spark.java import find_java_home
from barnabas.spark.java_errors import main_line, spark_errors_as
from barnabas.stop_signals import signals_held, stop_signals

log = logging.getLogger(__name__)

Sessions = Callable[[], SparkSession]
"""Returns the Spark session, the same one at each call. A load without new records never calls it."""

QUIET_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    # Tables have many small files. A Spark job with a task per file takes longer than a listing on the driver.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
}
END_TIMEOUT_S = 10.0
WORDS_BYTES_MAX = 1024 * 1024
"""The maximum size of the JVM output that is searched for the reason of a failed start, in bytes."""
LOCAL_SETTINGS = {
    # Without these settings Spark looks up the machine's host name, and may fail without a network.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Nothing uses Spark's own warehouse; without this setting Spark creates its directory in the working directory.
    "spark.sql.warehouse.dir": f"{gettempdir()}/barnabas-spark",
}


def local_session(
    name: str = "barnabas", *, master: str = "local[*]", log_file: Path | str | None = None
) -> SparkSession:
    """Return the active Spark session, or start a local one.

        spark = barnabas.spark.local_session("report")

    :param name: The application name in Spark's UI and logs.
    :param master: The master URL, as for `spark-submit --master`.
    :param log_file: The file that the JVM's output is appended to; None discards the output.
    :raises JavaNotFoundError: This machine has no Java runtime that Spark supports.
    :raises SparkFailedError: Spark did not start; for example, the master does not exist.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    # PySpark 4 warns about an installed pandas 3; nothing here uses pandas.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    _prepare_environment()
    settings = QUIET_SETTINGS | (LOCAL_SETTINGS if master.startswith("local") else {})
    conf = SparkConf().setMaster(master).setAppName(name).setAll(list(settings.items()))
    python = _python_of_workers(master)
    # This setting is for the Python workers that Spark starts on the driver.
    conf.set("spark.pyspark.driver.python", python)
    return _started(conf, python, Path(log_file or os.devnull))


def _started(conf: SparkConf, python: str, log_file: Path) -> SparkSession:
    gateway = None
    try:
        with (
            log_file.open("ab") as output,
            environment_set(os.environ, fast_worker_start.worker_environment()),
            _interrupts_as_before(),
        ):
            # An interrupt during the start would leave a JVM running that nothing stops.
            with signals_held(stop_signals()):
                gateway = _start_java(conf, output)
            with spark_errors_as(SparkFailedError, gateway, _not_started(conf)):
                context = SparkContext(conf=conf, gateway=gateway)
                context.pythonExec = python
                # The default handler prints a traceback if the JVM has ended, but the failed Spark call already reports
                # this.
                context._accumulatorServer.handle_error = _note_lost_update  # type: ignore[method-assign]
                return SparkSession(context)
    except BaseException:
        if gateway is not None:
            _end_java(gateway)
            SparkContext._active_spark_context = None  # PySpark resets this field only if the JVM answers
        raise


def _not_started(conf: SparkConf) -> str:
    return f"Spark did not start with the master {conf.get('spark.master')}: "


def _note_lost_update(request: object, client_address: object) -> None:
    log.debug("cannot read an accumulator update from the JVM; task progress may be too low", exc_info=True)


def _start_java(conf: SparkConf, output: BinaryIO) -> JavaGateway:
    """Start the JVM with the archive of Spark's classes; without the archive if the JVM does not start with it.

    :raises SparkFailedError: The JVM does not start.
    """
    quick = class_archive.archive_environment(Path(os.environ["JAVA_HOME"]))
    with suppress(PySparkRuntimeError), environment_set(os.environ, quick):
        return _launched(conf, output)
    if quick:
        with suppress(PySparkRuntimeError):
            gateway = _launched(conf, output)
            # The JVM ignores an archive that does not match, but fails on some damaged archives.
            log.warning(
                "the JVM does not start with %s; it runs without these options", quick[class_archive.JAVA_OPTIONS]
            )
            return gateway
    with TemporaryFile() as words:  # start the JVM a third time, to capture the reason of the failure
        try:
            return _launched(conf, words)
        except PySparkRuntimeError as error:
            words.seek(0)
            reason = main_line(words.read(WORDS_BYTES_MAX).decode(errors="replace"))
            raise SparkFailedError(f"{_not_started(conf)}{reason}") from error


def _launched(conf: SparkConf, output: IO[bytes]) -> JavaGateway:
    return launch_gateway(conf, {"stdout": output, "stderr": output})  # type: ignore[no-untyped-call]


@contextmanager
def _interrupts_as_before() -> Iterator[None]:
    """Restore the SIGINT handler afterwards. PySpark's handler would cancel all Spark jobs on each Ctrl-C."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class LocalSessions:
    """A function that returns the local Spark session, and starts it at the first call.

    A new session is started if none runs, or if its JVM has ended. A load with little work runs without a session if
    the executors would run on this machine (`is_this_machine`).

        sessions = barnabas.spark.LocalSessions("nightly")
        try:
            barnabas.spark.load("clicks", bootstrap="localhost:9092", warehouse="./warehouse", spark=sessions)
        finally:
            sessions.close()

    :param name: The application name in Spark's UI and logs.
    :param master: The master URL, as for `spark-submit --master`.
    """

    def __init__(self, name: str, master: str = "local[*]") -> None:
        self._name = name
        self._master = master
        self._session: SparkSession | None = None

    @property
    def is_this_machine(self) -> bool:
        """True if the executors run on this machine, with this Python's packages."""
        return self._master.startswith("local") and os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable

    def __call__(self) -> SparkSession:
        """Return the session; start it if none runs.

        :raises JavaNotFoundError: This machine has no Java runtime that Spark supports.
        :raises SparkFailedError: Spark did not start.
        """
        if self._session is not None and not is_alive(self._session):
            self.close()
        if self._session is None:
            self._session = local_session(self._name, master=self._master)
        return self._session

    def close(self) -> None:
        """Stop the session that this object started."""
        session, self._session = self._session, None
        if session is not None:
            stop_session(session)


def is_alive(session: SparkSession) -> bool:
    """Return whether a session can run jobs: its JVM answers, and its Spark context is not stopped.

    :param session: A session of `local_session`, not of Spark Connect.
    """
    gateway = session.sparkContext._gateway
    process = None if gateway is None else gateway.proc
    if process is not None and process.poll() is not None:
        return False
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except (Py4JError, OSError, AttributeError):  # a session stopped in this process has no `_jsc`
        return False


def stop_session(session: SparkSession, timeout_s: float = END_TIMEOUT_S) -> None:
    """Stop a session and its JVM, and wait until the JVM has ended.

    `SparkSession.stop` leaves the JVM running until this process ends. The JVM may have ended before.

        spark = barnabas.spark.local_session()
        barnabas.spark.stop_session(spark)

    :param session: A session of `local_session`.
    :param timeout_s: The time that the JVM has to end, in seconds. Then it is killed.
    """
    gateway = session.sparkContext._gateway
    # An ended JVM does not answer. PySpark then prints a warning; it needs no action.
    with suppress(Py4JError, OSError), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Unable to cleanly shutdown Spark JVM process")
        session.stop()
    _forget(session)
    if gateway is not None:
        _end_java(gateway, timeout_s)


def _end_java(gateway: JavaGateway, timeout_s: float = END_TIMEOUT_S) -> None:
    """Stop the JVM, and reset PySpark so that the next session starts a new JVM."""
    gateway.shutdown()
    if SparkContext._gateway is gateway:
        SparkContext._gateway = None
        SparkContext._jvm = None
    process = gateway.proc
    if process is not None:
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(timeout_s)
        except TimeoutExpired:  # the JVM does not end while it waits for an unreachable cluster
            process.kill()
            process.wait()


def _forget(session: SparkSession) -> None:
    """Reset PySpark's references to a session. `SparkSession.stop` does not do so if the JVM has ended."""
    if SparkSession._instantiatedSession is session:
        SparkSession._instantiatedSession = None
    if SparkSession._activeSession is session:
        SparkSession._activeSession = None
    if SparkContext._active_spark_context is session.sparkContext:
        SparkContext._active_spark_context = None


def _prepare_environment() -> None:
    """Set the Java and the Python of Spark. The workers run this Python, because they need its packages."""
    os.environ["JAVA_HOME"] = str(find_java_home(os.environ))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def _python_of_workers(master: str) -> str:
    """Return the command of the Python workers: `PYSPARK_PYTHON`, or its fast starter if it is this Python."""
    chosen = os.environ["PYSPARK_PYTHON"]
    return fast_worker_start.fast_worker_python() if master.startswith("local") and chosen == sys.executable else chosen
