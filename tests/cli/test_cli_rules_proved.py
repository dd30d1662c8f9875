# SPDX-License-Identifier: Apache-2.0
"""`porter rules test` compiles and runs what examples ask for with `compile` and `verify`."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes_cli import porter

from porter.build.toolchain import search_toolkits
from porter.diagnostics import Code, PorterError
from porter.rules.load import load_rules

pytestmark = pytest.mark.skipif(next(iter(search_toolkits(None)), None) is None, reason="no CUDA compiler")
RULES = """\
schema: 2
library: house
rules:
  - id: HOUSE100
    title: Scale of the house
    recognize: house::old_scale($X)
    replace: TEXT
    safety: safe
    reason: The sister is the same.
    examples:
      - PROOF
        before: |
          #include <cstdint>
          namespace house {
          __device__ float old_scale(float x) { return 2 * x; }
          __device__ float new_scale(float x) { return x + x; }
          __device__ float half_scale(float x) { return x; }
          }
          __global__ void k(float* out) { out[threadIdx.x] = house::old_scale(threadIdx.x * BY); }
          int main() {
            float* out;
            cudaMalloc(&out, 128);
            k<<<1, 32>>>(out);
            return cudaDeviceSynchronize();
          }
        expect: ["= TEXT"]
"""
COMPILE, VERIFY = "compile: sm_100a", "verify: true"
NEW = "house::new_scale($X)"


def write(tmp_path: Path, proof: str, text: str = NEW, by: str = "1") -> Path:
    shown = text.replace("$X", f"threadIdx.x * {by}")
    rules = RULES.replace("= TEXT", f"= {shown}").replace("TEXT", text).replace("PROOF", proof).replace("BY", by)
    path = tmp_path / "house.yaml"
    path.write_text(rules)
    return path


@pytest.mark.parametrize(
    ("proof", "text", "by", "code", "said"),
    [
        (COMPILE, NEW, "1", 0, "all hold"),
        (COMPILE, "house::no_scale($X)", "1", 1, "no_scale"),
        (COMPILE.replace("100a", "103a"), NEW, "1", 0, "all hold"),
    ],
)
def test_the_port_is_compiled(tmp_path: Path, proof: str, text: str, by: str, code: int, said: str) -> None:
    assert said in porter("rules", "test", write(tmp_path, proof, text, by), code=code).output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("proof", "text", "by", "code", "said"),
    [
        (VERIFY, NEW, "1", 0, "all hold"),
        (f"{COMPILE}\n        {VERIFY}", NEW, "3", 0, "all hold"),
        (VERIFY, "house::half_scale($X)", "1", 1, "PT5"),
        (VERIFY, "house::half_scale($X)", "0", 0, "all hold"),
    ],
)
def test_original_and_port_are_run(tmp_path: Path, proof: str, text: str, by: str, code: int, said: str) -> None:
    assert said in porter("rules", "test", write(tmp_path, proof, text, by), code=code).output


def test_a_rule_is_as_safe_as_it_is_proved(tmp_path: Path) -> None:
    for proof, safety in ((VERIFY, "safe"), (COMPILE, "review"), ("verify: false", "review")):
        rules = [r for r in load_rules([str(write(tmp_path, proof))]) if r.id == "HOUSE100"]
        assert [r.safety.value for r in rules] == [safety]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("int main()", "int run()", "has no main()"),
        ("before: |", "file: a.cuh\n        before: |", "of a .cu file"),
        ("library: house", "library: house\nlanguage: python", "of a .cu file"),
        (VERIFY, "compile: sm_90a", "sm_90a"),
        (VERIFY, "compile: compute_100a", "compute_100a"),
        (VERIFY, "verify: 1", "boolean"),
    ],
)
def test_what_cannot_be_proved_is_one_message(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = write(tmp_path, VERIFY)
    text = path.read_text()
    if "python" in new:
        text = text.replace("house::old_scale", "house.old_scale")
    path.write_text(text.replace(old, new))
    with pytest.raises(PorterError) as caught:
        load_rules([str(path)])
    assert caught.value.diagnostic.code is Code.RULE_FILE
    assert said in caught.value.diagnostic.message
