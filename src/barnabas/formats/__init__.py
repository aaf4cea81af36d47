"""What values mean: fields of JSON, lines of logs by pattern, and times in the forms in which people write them.

Pure functions on Arrow arrays, for loads and for `barnabas ship` alike; no Spark, no brokers. Whatever the values
are, each function takes them: what cannot be decoded is null in the columns, and is told with a reason.
"""
