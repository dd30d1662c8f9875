# --- a block has an SM for itself


def _ahead(kernel: _Kernel, function: ir.Operation) -> None:
    """Nothing changes its place."""


def _share(emitter: _Emitter, told: dict[str, Any]) -> None:
    """Nothing is asked for."""
