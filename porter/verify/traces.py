# SPDX-License-Identifier: Apache-2.0
"""What kernels of CuTe DSL do while they are traced, as the cases beside them call them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from porter.build.dsl import DslCompiled
from porter.diagnostics import PorterError
from porter.verify.builder import ORIGINAL_ARCH
from porter.verify.dsl import calls_of
from porter.verify.problem import bind
from porter.verify.proof import cases_that_run


def traced(path: Path, names: Sequence[str]) -> list[DslCompiled] | str:
    """The originals of all cases of a file at their own sizes, with the calls of these names; or why there are none."""
    try:
        cases, missing = cases_that_run(path, (), dsl=True)
        return missing or [calls_of(bind(case), ORIGINAL_ARCH, names) for case in cases]
    except PorterError as error:
        return f"it could not be traced: {error.diagnostic.message}"
