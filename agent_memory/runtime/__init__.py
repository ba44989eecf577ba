"""How flows run for sync and for async callers: the only place that knows threads and event loops."""
