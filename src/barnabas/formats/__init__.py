"""The formats of values: fields of JSON, lines of logs by pattern, and times in common notations.

The functions take and return Arrow arrays and do no I/O. Loads and `barnabas ship` share them. Functions do not fail
because of a value. A value that cannot be decoded is null in the columns, and the result contains a reason for it.
"""
