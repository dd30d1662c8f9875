# SPDX-License-Identifier: Apache-2.0
"""`--layouts`: which styles take it, and what it asks for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes_cli import porter

from porter.cli.context import Session
from porter.cli.porting import port_options
from porter.tune.styles import SM100, STYLES

CORPUS = Path(__file__).parents[2] / "corpus"


def test_the_compat_style_has_layouts_of_its_own() -> None:
    asked = ("port", "--style", "compat", "--layouts", "sm100", CORPUS / "dsl_gemm/dsl_gemm.py")
    assert "--layouts" in porter("--no-config", *asked, code=2).output


@pytest.mark.parametrize("style", [s for s in STYLES if s != "compat"])
def test_every_other_style_has_the_step_on_request_alone(style: str) -> None:
    session = replace(Session(), style=style)
    assert "sm100-layouts" not in port_options(session).native
    assert "sm100-layouts" in port_options(replace(session, layouts=SM100)).native
    assert ("mma-warp" in port_options(session).native) is (style in ("auto", "native"))
