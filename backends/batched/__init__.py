"""The built-in engine: a supervised worker process that batches concurrent requests."""
