"""Reports as data: a table, remarks and the panels of a picture. `barnabas.spark.reports` computes them."""

from __future__ import annotations
