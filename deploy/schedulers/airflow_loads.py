"""Airflow: loads of a topic, as a task and as an asset.

Copy this file into the folder of DAGs. It needs no package of Barnabas in Airflow's environment: it runs the command
that BARNABAS names. BARNABAS_BOOTSTRAP is the address of the brokers, BARNABAS_WAREHOUSE the folder of the tables.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, asset, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

log = logging.getLogger(__name__)

BARNABAS = os.environ.get("BARNABAS", "/opt/barnabas/bin/barnabas")
WAREHOUSE = os.environ.get("BARNABAS_WAREHOUSE", "/var/lib/barnabas-loads/warehouse")
RETRIES = {
    "retries": int(os.environ.get("BARNABAS_RETRIES", "5")),
    "retry_delay": timedelta(seconds=float(os.environ.get("BARNABAS_RETRY_DELAY_S", "60"))),
    "execution_timeout": timedelta(minutes=30),
}
NOTHING_NEW, RETRYABLE = 3, (4, 5)
LOAD_ID = "{{ dag.dag_id }}-{{ dag_run.logical_date or run_id }}"
"""The id of a load: that of the interval, so that a run that is deleted and created again has the same id."""


def load(topic: str, load_id: str, *options: str) -> dict[str, Any]:
    """Load a topic, and return the document about the load.

    :param load_id: the same id for each try, so that a repetition loads nothing twice.
    :raises AirflowException: another process is loading, or a server does not answer. Airflow tries again.
    :raises AirflowFailException: no retry helps.
    :raises AirflowSkipException: there are no new records (`--fail-when-empty`).
    """
    command = [BARNABAS, "load", topic, "--warehouse", WAREHOUSE, "--format", "json", "--json", "--run-id", load_id]
    done = subprocess.run([*command, *options], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == 0:
        document: dict[str, Any] = json.loads(done.stdout)
        log.info("loaded %d records: %s", document["records"], done.stdout)
        return document
    if done.returncode == NOTHING_NEW:
        raise AirflowSkipException(f"no new records of {topic}")
    reason = f"exit code {done.returncode}: {done.stdout}"
    if done.returncode in RETRYABLE:
        raise AirflowException(reason)
    raise AirflowFailException(reason)


with DAG(
    "load_clicks",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args=RETRIES,
):
    PythonOperator(task_id="load", python_callable=load, op_args=["clicks", LOAD_ID])


@asset(schedule="@daily", uri="barnabas://warehouse/views")
@task(**RETRIES)
def views(dag_run: Any = None) -> dict[str, Any]:
    """The table of the topic `views`; DAGs with this asset as their schedule run after each load of new records."""
    return load("views", f"views-{dag_run.logical_date or dag_run.run_id}", "--fail-when-empty")
