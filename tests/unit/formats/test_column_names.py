"""Names of columns: those of a table, whose own ones no field takes."""

from __future__ import annotations

from barnabas.formats.column_names import RESERVED, column_names
from barnabas.spark.table_schema import EVENT_DAY, EVENT_TIME, KAFKA_COLUMNS, VALUE_FORM


def test_no_field_has_the_name_of_one_of_a_tables_own_columns() -> None:
    own = {*KAFKA_COLUMNS, VALUE_FORM, EVENT_TIME, EVENT_DAY}
    assert own == RESERVED
    assert not own.intersection(column_names(own).values())
