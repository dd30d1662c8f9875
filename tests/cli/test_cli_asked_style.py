# SPDX-License-Identifier: Apache-2.0
"""Commands that look at a port make it in the style that is asked for, in that of `porter port` where nobody says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fakes_cli import porter

from porter.cli.context import current
from porter.cli.making import Ports
from porter.diagnostics import Code, PorterError

KERNEL = Path(__file__).parents[2] / "corpus" / "cute_gemm_ws" / "cute_gemm_ws.cu"


@pytest.mark.parametrize(("asked", "style"), [((), "auto"), (("--style", "idiomatic"), "idiomatic")])
@pytest.mark.parametrize("command", ["build", "hazards"])
def test_the_port_has_the_style_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, command: str, asked: tuple[str, ...], style: str | None
) -> None:
    seen = []

    def noted(*_: Any, **__: Any) -> Any:
        seen.append(current().style)
        raise PorterError(Code.NO_TOOLKIT)

    monkeypatch.setattr(Ports, "of_file", noted)
    only = ("--only", "port") if command == "hazards" else ()
    porter(command, *asked, *only, KERNEL, code=None)
    assert set(seen) == {style}
