# --- two accumulators

BUFFERS = 2
"""Accumulators that tiles of a block take turns with."""
