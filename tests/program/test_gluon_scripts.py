# SPDX-License-Identifier: Apache-2.0
"""Scripts that launch Gluon's kernels: tcgen05, warps apart, work that is handed out, values compared with NumPy's.

Fences and barriers of threads are Triton's own; what a script can get wrong are its mbarriers.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from porter.cli.main import main

SCRIPT = Path(__file__).resolve().parent.parent / "foreign" / "gluon_script.py"
KERNELS = ("elements", "copies", "product", "warps apart", "handed out")

pytestmark = [
    pytest.mark.external,
    pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed"),
]


def ran(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(main, list(words))
    assert done.exit_code == code, done.output
    return done.output


@pytest.mark.parametrize("schedule", ["late", "eager", "random"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_values_and_hazards(kernel: str, schedule: str) -> None:
    """The script compares values, and fails where they differ."""
    ran("hazards", "--trust", "--schedule", schedule, "--triton", str(SCRIPT), "--", kernel)


def test_all_are_proved() -> None:
    text = ran("hazards", "--trust", "--prove", "--triton", str(SCRIPT))
    assert len(re.findall(r": proved", text)) == len(KERNELS)


@pytest.mark.parametrize(
    ("kernel", "was", "now", "told"),
    [
        ("copies", "expect(landed, x.block_type.nbytes)", "expect(landed, x.block_type.nbytes // 2)", "deadlock"),
        ("copies", "mbarrier.wait(landed, 0)\n", "mbarrier.wait(landed, 1)\n", "H17"),
        ("product", "        mbarrier.wait(landed, phase)\n", "", "H17"),
        ("product", "        mbarrier.wait(done, phase)\n", "", "H18"),
        ("product", "col_stride=1))\n    phase = 0", "col_stride=1))\n    phase = 1", "H17"),
        ("warps apart", "        tcgen05_commit(free.index(stage))\n", "", "deadlock"),
        ("warps apart", "(step // STAGES & 1) ^ 1", "0", "deadlock"),
        ("warps apart", "    mbarrier.wait(done, 0)\n    out", "    out", "H1"),
        ("handed out", "        mbarrier.wait(answered, phase)\n", "", "H17"),
        ("handed out", "mbarrier.expect(answered, 16)", "mbarrier.expect(answered, 32)", "deadlock"),
    ],
)
def test_mistakes_in_scripts(tmp_path: Path, kernel: str, was: str, now: str, told: str) -> None:
    text = SCRIPT.read_text("utf-8")
    assert was in text
    (tmp_path / SCRIPT.name).write_text(text.replace(was, now), "utf-8")
    (tmp_path / "triton_script.py").write_text(SCRIPT.with_name("triton_script.py").read_text("utf-8"), "utf-8")
    assert told in ran("hazards", "--trust", "--triton", str(tmp_path / SCRIPT.name), "--", kernel, code=5)


def test_a_script_that_fails_ahead_of_its_launches(tmp_path: Path) -> None:
    """As where a kernel does not compile."""
    failing = tmp_path / "failing.py"
    failing.write_text('print("about to fail")\nraise SystemExit("no such tile")\n')
    text = ran("hazards", "--trust", "--triton", str(failing), code=5)
    assert "returned 1" in text
    assert "no such tile" in text
    proof = ran("hazards", "--trust", "--prove", "--triton", str(failing), code=5)
    assert "PT5910" in proof
    assert "no such tile" in proof
    idle = tmp_path / "idle.py"
    idle.write_text("print(1)\n")
    assert "launches no kernel" in ran("hazards", "--trust", "--triton", str(idle), code=2)
