# --- a block has an SM for itself


def _ahead(program: _Program) -> None:
    """Nothing changes its place."""


def _share(emitter: _Emitter, told: dict[str, Any]) -> None:
    """Nothing is asked for."""
