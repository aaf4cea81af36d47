"""What a report is: a table, remarks and panels of a picture. How Spark finds them is in `barnabas.spark.reports`."""

from __future__ import annotations
