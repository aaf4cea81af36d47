"""Dagster: the table of a topic as an asset, and a table of its days as a partitioned asset.

`dagster dev -f dagster_loads.py` serves this file. It needs no package of Barnabas in Dagster's environment: it runs
the command that BARNABAS names. BARNABAS_BOOTSTRAP is the address of the brokers, BARNABAS_WAREHOUSE the folder of the
tables.
"""

import json
import os
import subprocess
from typing import Any

import dagster

BARNABAS = os.environ.get("BARNABAS", "/opt/barnabas/bin/barnabas")
WAREHOUSE = os.environ.get("BARNABAS_WAREHOUSE", "/var/lib/barnabas-loads/warehouse")
RETRIES_MAX = int(os.environ.get("BARNABAS_RETRIES", "5"))
RETRY_DELAY_S = float(os.environ.get("BARNABAS_RETRY_DELAY_S", "60"))
TIMEOUT_S = float(os.environ.get("BARNABAS_TIMEOUT_S", "1800"))
"""The time limit of a load. Afterwards, the table is either loaded or unchanged."""
RETRYABLE = (4, 5)
"""The exit codes after which the same command may succeed: another process is loading, or a server does not answer."""


def load(topic: str, *options: str) -> dagster.MaterializeResult:
    """Load a topic.

    :raises dagster.RetryRequested: another process is loading, a server does not answer, or the time limit is over.
    :raises dagster.Failure: no retry helps.
    """
    command = [BARNABAS, "load", topic, "--warehouse", WAREHOUSE, "--format", "json", "--json", *options]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise dagster.RetryRequested(max_retries=RETRIES_MAX, seconds_to_wait=RETRY_DELAY_S) from error
    if done.returncode in RETRYABLE:
        raise dagster.RetryRequested(max_retries=RETRIES_MAX, seconds_to_wait=RETRY_DELAY_S)
    if done.returncode != 0:
        raise dagster.Failure(f"exit code {done.returncode}: {done.stdout}", allow_retries=False)
    document: dict[str, Any] = json.loads(done.stdout)
    (table,) = document["tables"]
    return dagster.MaterializeResult(
        metadata={
            "dagster/row_count": document["records"],
            "outcome": table["outcome"],
            "snapshot": str(table["snapshot_id"]),
            "ranges": dagster.MetadataValue.json(table["ranges"]),
        }
    )


@dagster.asset
def clicks(context: dagster.AssetExecutionContext) -> dagster.MaterializeResult:
    """The table of all clicks: each run adds the new ones."""
    return load("clicks", "--run-id", context.run_id)


@dagster.asset(partitions_def=dagster.DailyPartitionsDefinition(start_date="2026-01-01"))
def clicks_by_day(context: dagster.AssetExecutionContext) -> dagster.MaterializeResult:
    """A table of backfills only: each partition is a day of clicks, in any order."""
    day = context.partition_time_window
    span = ("--from", day.start.isoformat(), "--to", day.end.isoformat())
    return load("clicks", "--table", "clicks_by_day", *span, "--run-id", f"clicks_by_day-{context.partition_key}")


hourly = dagster.ScheduleDefinition(
    name="hourly", target=dagster.AssetSelection.assets(clicks), cron_schedule="0 * * * *"
)
daily = dagster.build_schedule_from_partitioned_job(
    dagster.define_asset_job("days", selection=[clicks_by_day]), hour_of_day=1
)
defs = dagster.Definitions(assets=[clicks, clicks_by_day], schedules=[hourly, daily])
