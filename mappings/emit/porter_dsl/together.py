# --- all threads come to the MMAs


def _of(kind: type[_Wide], told: dict[str, Any], program: _Program, warpgroups: list[int], *more: Any) -> _Wide:
    """The emitter of a kind."""
    return kind(program, *more)
