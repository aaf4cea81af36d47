"""The audit in the clients: interceptors that count and report records, and functions that compare counts with logs."""
