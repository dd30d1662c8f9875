# --- one accumulator

BUFFERS = 1
"""Accumulators that tiles of a block take turns with."""
