"""The audit in the clients: two interceptors that count and report, and the functions that compare counts with logs."""
