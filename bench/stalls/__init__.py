"""`python -m bench.stalls` measures how long the requests of one client delay all other clients of a broker."""
