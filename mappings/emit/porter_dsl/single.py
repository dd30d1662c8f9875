# --- each CTA multiplies by itself


def _detached(told: dict[str, Any], kind: type[_Wide], parts: dict[str, Any], program: _Program, *more: Any) -> _Wide:
    """The emitter of a kind, in which a warp of its own multiplies; `parts` are what it is made of."""
    return _with_parts({_Joined: _JoinedApart, _Stacked: _StackedApart}[kind], parts, program, *more)
