"""Queue, workers, retries, events and leader election. Knows no particular controller."""
