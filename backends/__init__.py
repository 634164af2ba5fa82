"""Generating: the built-in batched engine and clients of external engines."""
