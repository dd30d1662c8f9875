# SPDX-License-Identifier: Apache-2.0
"""A Triton file needs no port: that is said, by every command that is given one."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from porter.cli.main import main

BODY = "def add(x, y, n: tl.constexpr):\n    tl.store(y, tl.load(x) + 1)\n"
TRITON = {
    "qualified": f"import triton\nimport triton.language as tl\n\n@triton.jit\n{BODY}",
    "imported": f"from triton import jit\nimport triton.language as tl\n\n@jit\n{BODY}",
    "with options": f"import triton\nimport triton.language as tl\n\n@triton.jit(debug=True)\n{BODY}",
    "tuned": "import triton\nimport triton.language as tl\n\n"
    f"@triton.autotune(configs=[triton.Config({{}}, num_warps=8)], key=[])\n@triton.jit\n{BODY}",
    "in a block": "try:\n    import triton\nfinally:\n    pass\nif triton:\n    @triton.jit\n    def f(x): pass\n",
}
OTHERS = {
    "no kernel": "import triton\nprint(triton.__version__)\n",
    "another jit": f"from numba import jit\n\n@jit\n{BODY}",
    "only named": "# @triton.jit\nprint('import triton')\n",
    "Gluon, which names Hopper's instructions": "import triton.experimental.gluon\n\n@triton.jit\ndef f(x): pass\n",
    "empty": "",
}


@pytest.mark.parametrize("command", ["scan", "port", "plan"])
@pytest.mark.parametrize("name", TRITON)
def test_what_triton_compiles_is_said_to_need_no_port(tmp_path: Path, name: str, command: str) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(TRITON[name])
    outcome = CliRunner().invoke(main, [command, str(path)])
    assert outcome.exit_code == 0
    assert "PT0019" in outcome.output
    assert "num_stages" in outcome.output


@pytest.mark.parametrize("name", OTHERS)
def test_other_python_is_not_taken_for_it(tmp_path: Path, name: str) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(OTHERS[name])
    outcome = CliRunner().invoke(main, ["port", str(path)])
    assert outcome.exit_code == 2
    assert "PT0010" in outcome.output
