# SPDX-License-Identifier: Apache-2.0
"""A fixture for pytest: `porter_verify("kernels/gemm.cu")` fails where a port is not what its original is.

It is `porter verify` in a process of its own, with the environment's trust: code that sources bring along runs only
where PORTER_TRUST=1 says so.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from porter.report.answers import answer

Verify = Callable[..., dict[str, Any]]


@pytest.fixture
def porter_verify() -> Verify:
    """Verifies a kernel that has a case beside it; gives the answer (`porter/report/schemas/answer.schema.json`)."""
    return verified


def verified(kernel: str | Path, port: str | Path | None = None, *options: str) -> dict[str, Any]:
    """Verify a kernel with its case, and fail the test where the verdict is neither clean nor review.

    Args:
        port: a finished port; without one Porter makes it.
        options: further options of `porter verify`.
    """
    words = [sys.executable, "-m", "porter", "--format", "json", "verify", *options]
    words += ["--port", str(port)] if port is not None else []
    done = subprocess.run([*words, "--", str(kernel)], capture_output=True, text=True, check=False)
    try:
        document = json.loads(done.stdout)
    except ValueError:
        pytest.fail(f"porter verify {kernel}: {done.stderr.strip() or done.stdout.strip()}", pytrace=False)
    found = answer(document)
    if document["exit_code"] != 0:
        pytest.fail(f"porter verify {kernel}: {said(found)}", pytrace=False)
    return found


def said(found: dict[str, Any]) -> str:
    """An answer for people: the verdict, a line for each cause, what was not run."""
    lines = [str(found.get("verdict", found["kind"]))]
    for cause in found.get("causes", ()):
        at = cause.get("at", "")
        where = ", ".join(at) if isinstance(at, list) else at
        missing = f"; missing: {cause['missing']}" if cause.get("missing") else ""
        lines.append(f"  {cause['id']} {cause['what']}{missing}{f' ({where})' if where else ''}")
    return "\n".join([*lines, *(f"  {line}" for line in found.get("coverage", ()))])
