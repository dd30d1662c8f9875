# SPDX-License-Identifier: Apache-2.0
"""Instructions of Hopper in the simulator against digests of what an H200 wrote for the same kernels and inputs.

docs/results/h200-instructions.json has them, each of 2048 rows of inputs; scripts/gpu_instructions.py made it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from instructions.trial_inputs import MAPS, VALUES, input_bytes
from instructions.trials import ROW, trial

from porter.ptx.parser import parse_module
from porter.sim import GlobalMemory, Launch, Options, pack_params, simulate
from porter.sim.codegen import RUNTIME

RECORD = json.loads(
    (Path(__file__).resolve().parents[2] / "docs" / "results" / "h200-instructions.json").read_text("utf-8")
)
WORDS: dict[str, str] = RECORD["words"]
INPUT = input_bytes()
PARTS = 32


def digest(text: str) -> str | None:
    """None for what the simulator does not execute."""
    found = trial(text, "sm_90a")
    memory = GlobalMemory()
    source, out = memory.alloc(MAPS + 4096), memory.alloc(VALUES * ROW + 4096, fill=0)
    memory.write(source, np.frombuffer(INPUT, np.uint8))
    module = parse_module(found.ptx)
    launch = Launch((found.blocks, 1, 1), (found.threads, 1, 1))
    params = pack_params(module.function("k"), [source, out, bytes(64)])
    outcome = simulate(module, "k", launch, params, memory, Options(arithmetic="exact"))
    if outcome.status == "incomplete":
        return None
    if outcome.status != "ok":
        return str(outcome.findings[0])
    return hashlib.sha256(memory.read(out, VALUES * ROW).tobytes()).hexdigest()[:16]


def different(texts: list[str]) -> list[str]:
    """Those with other results; what is not executed may only be products with sparse A and those of quads."""
    found = []
    for text in texts:
        word = digest(text)
        if word is None and not text.startswith(("mma.sp", "mma.sync.aligned.m8n8k4.")):
            found.append(f"not executed: {text}")
        elif word is not None and word != WORDS[text]:
            found.append(text)
    return found


def test_the_inputs_are_those_of_the_record() -> None:
    assert hashlib.sha256(INPUT).hexdigest() == RECORD["inputs"]
    assert len(WORDS) > 1500


def test_a_part_of_the_words() -> None:
    """An eighth of the instructions, spread over all families."""
    assert not different(list(WORDS)[::8])


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_all_words(part: int) -> None:
    assert not different(list(WORDS)[part::PARTS])


def test_other_results_have_other_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    text = next(t for t in WORDS if t.startswith("popc.b32"))
    assert digest(text) == WORDS[text]
    monkeypatch.setitem(RUNTIME, "popc", lambda x: np.bitwise_count(x >> 1).astype(np.uint32))
    assert digest(text) != WORDS[text]
