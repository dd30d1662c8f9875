# --- a block has an SM for itself


def _share(emitter: _Emitter, told: dict[str, Any]) -> None:
    """Nothing is asked for."""
