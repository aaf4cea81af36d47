"""A local Spark session that starts without noise.

The JVM's own output (its warnings, log4j's) goes to a file. Use of this session is optional: everything here
takes any `SparkSession`, so on a cluster the session is the one that `spark-submit` set up.
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
from barnabas.stop_signals import stop_signals

log = logging.getLogger(__name__)

Sessions = Callable[[], SparkSession]
"""Gives a session when it is needed, the same each time: a load of nothing new needs none."""

QUIET_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    # Tables have many small files; to look them up with a Spark job of a task each takes longer than all else.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
}
END_TIMEOUT_S = 10.0
WORDS_BYTES_MAX = 1024 * 1024
"""So much of what Java says before it ends is looked through for the reason."""
LOCAL_SETTINGS = {
    # Without these, Spark looks for the machine's name on its networks, and may fail without any.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # A table store of Spark's own is not used; without this it would appear in the working folder.
    "spark.sql.warehouse.dir": f"{gettempdir()}/barnabas-spark",
}


def local_session(
    name: str = "barnabas", *, master: str = "local[*]", log_file: Path | str | None = None
) -> SparkSession:
    """Return the running session, or start one.

    Args:
        name: shown in Spark's own pages and logs.
        master: as for `spark-submit --master`.
        log_file: appended to with what the JVM prints; None drops it.

    :raises JavaNotFoundError: no Java runtime that Spark can use.
    :raises SparkFailedError: Spark did not start; there may be no such master.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    # PySpark 4 warns of pandas 3 where it is installed; nothing here uses pandas.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    _prepare_environment()
    settings = QUIET_SETTINGS | (LOCAL_SETTINGS if master.startswith("local") else {})
    conf = SparkConf().setMaster(master).setAppName(name).setAll(list(settings.items()))
    python = _python_of_workers(master)
    # The workers that Spark starts on the driver for itself.
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
            # An interrupt half way would leave a JVM behind that nobody knows of.
            with _signals_held():
                gateway = _start_java(conf, output)
            with spark_errors_as(SparkFailedError, gateway, _not_started(conf)):
                context = SparkContext(conf=conf, gateway=gateway)
                context.pythonExec = python
                # Its own prints a traceback where the JVM is gone; who asked something of Spark hears of that.
                context._accumulatorServer.handle_error = _note_lost_update  # type: ignore[method-assign]
                return SparkSession(context)
    except BaseException:
        if gateway is not None:
            _end_java(gateway)
            SparkContext._active_spark_context = None  # PySpark forgets it only where Java answers
        raise


def _not_started(conf: SparkConf) -> str:
    return f"Spark did not start with the master {conf.get('spark.master')}: "


def _note_lost_update(request: object, client_address: object) -> None:
    log.debug("the JVM has not told how far a task is", exc_info=True)


def _start_java(conf: SparkConf, output: BinaryIO) -> JavaGateway:
    """Start the JVM, with the archive of Spark's classes where there is one: without, if it cannot start with that.

    :raises SparkFailedError: it does not start.
    """
    quick = class_archive.archive_environment(Path(os.environ["JAVA_HOME"]))
    with suppress(PySparkRuntimeError), environment_set(os.environ, quick):
        return _launched(conf, output)
    if quick:
        with suppress(PySparkRuntimeError):
            gateway = _launched(conf, output)
            # Java leaves aside an archive that does not fit, but not each damaged one.
            log.warning("Java does not start with %s", quick[class_archive.JAVA_OPTIONS])
            return gateway
    with TemporaryFile() as words:  # once more, to hear why
        try:
            return _launched(conf, words)
        except PySparkRuntimeError as error:
            words.seek(0)
            told = main_line(words.read(WORDS_BYTES_MAX).decode(errors="replace"))
            raise SparkFailedError(f"{_not_started(conf)}{told}") from error


def _launched(conf: SparkConf, output: IO[bytes]) -> JavaGateway:
    return launch_gateway(conf, {"stdout": output, "stderr": output})  # type: ignore[no-untyped-call]


@contextmanager
def _signals_held() -> Iterator[None]:
    """Keep stop signals back, and deliver them afterwards. Signals come to the main thread only."""
    if current_thread() is not main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in stop_signals()}
    for number in before:
        signal.signal(number, lambda number, _frame: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for held in dict.fromkeys(came):
            signal.raise_signal(held)


@contextmanager
def _interrupts_as_before() -> Iterator[None]:
    """Take Ctrl-C back from PySpark, which would ask Java to cancel all jobs wherever it comes."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class LocalSessions:
    """Gives the session of a master: the one that runs, or a new one where there is none or its JVM is dead.

    What is too little to be shared out needs none where executors are this machine's too (`is_this_machine`).

    :param name: shown in Spark's own pages and logs. `master`: as for `spark-submit --master`.
    """

    def __init__(self, name: str, master: str = "local[*]") -> None:
        self._name = name
        self._master = master
        self._session: SparkSession | None = None

    @property
    def is_this_machine(self) -> bool:
        """Whether the executors are here, with this Python's packages, its files and its addresses."""
        return self._master.startswith("local") and os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable

    def __call__(self) -> SparkSession:
        """Return the session.

        :raises JavaNotFoundError: no Java runtime that Spark can use.
        """
        if self._session is not None and not is_alive(self._session):
            self.close()
        if self._session is None:
            self._session = local_session(self._name, master=self._master)
        return self._session

    def close(self) -> None:
        """Stop what was started."""
        session, self._session = self._session, None
        if session is not None:
            stop_session(session)


def is_alive(session: SparkSession) -> bool:
    """Whether a session can still run something: its JVM answers, and nobody has stopped Spark in it."""
    gateway = session.sparkContext._gateway
    process = None if gateway is None else gateway.proc
    if process is not None and process.poll() is not None:
        return False
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except (Py4JError, OSError, AttributeError):  # stopped here, it has no `_jsc` any more
        return False


def stop_session(session: SparkSession, timeout_s: float = END_TIMEOUT_S) -> None:
    """Stop a session and its JVM, and wait until the JVM has ended; also where it has ended by itself.

    Spark alone leaves the JVM running until this process ends.
    """
    gateway = session.sparkContext._gateway
    # A JVM that is dead does not answer; PySpark forgets it all the same, and warns.
    with suppress(Py4JError, OSError), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Unable to cleanly shutdown Spark JVM process")
        session.stop()
    _forget(session)
    if gateway is not None:
        _end_java(gateway, timeout_s)


def _end_java(gateway: JavaGateway, timeout_s: float = END_TIMEOUT_S) -> None:
    """End the JVM, and have PySpark start another one next time."""
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
        except TimeoutExpired:  # it waits for a cluster that does not answer
            process.kill()
            process.wait()


def _forget(session: SparkSession) -> None:
    """Make PySpark start anew next time. What it does so itself when it stops, it does not where the JVM is dead."""
    if SparkSession._instantiatedSession is session:
        SparkSession._instantiatedSession = None
    if SparkSession._activeSession is session:
        SparkSession._activeSession = None
    if SparkContext._active_spark_context is session.sparkContext:
        SparkContext._active_spark_context = None


def _prepare_environment() -> None:
    """Say which Java and which Python: this one, as the workers need the packages that are here."""
    os.environ["JAVA_HOME"] = str(find_java_home(os.environ))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def _python_of_workers(master: str) -> str:
    """Return what the workers run: the Python that was chosen, in the quick way where it is this one."""
    chosen = os.environ["PYSPARK_PYTHON"]
    return fast_worker_start.fast_worker_python() if master.startswith("local") and chosen == sys.executable else chosen
