"""Decisions: pure, synchronous, without I/O. Clock and randomness are passed in."""
