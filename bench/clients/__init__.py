"""The client programs of peers. Each program has the options of `barnabas perf`, and also prints its results as one
line of JSON."""
