"""The client programs of peers. Each has the options of `barnabas perf` and prints one line of JSON like it."""
