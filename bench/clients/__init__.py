"""The clients of the peers, each a program with the flags of `barnabas perf` that prints one line of JSON like it."""
