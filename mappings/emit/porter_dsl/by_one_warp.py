# --- one warp of those that multiply runs the loop of MMAs


def _of(kind: type[_Wide], told: dict[str, Any], program: _Program, warpgroups: list[int], *more: Any) -> _Wide:
    """The emitter of a kind, in which one warp multiplies where that can be."""
    try:
        release = _release_of(kind, program, warpgroups)
    except _Left as left:
        _without(told, "release", left)
        return kind(program, *more)
    told["steps"] = ["release"]
    return _released(kind, release, program, *more)
