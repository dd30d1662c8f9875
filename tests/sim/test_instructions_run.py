# SPDX-License-Identifier: Apache-2.0
"""Every instruction form that docs/instructions.md calls executed runs in the simulator."""

from __future__ import annotations

import numpy as np
import pytest
from instructions.simulated import Support, survey
from instructions.trial_inputs import MAPS, VALUES, input_bytes, tensor_maps
from instructions.trials import MULTIMEM, ROW, Trial, trial

from porter.diagnostics import Code
from porter.ptx.parser import parse_module
from porter.ptx.table import FORMS
from porter.sim import GlobalMemory, Launch, Outcome, pack_params, simulate

INPUT = np.frombuffer(input_bytes(), np.uint8)


def run_trial(found: Trial) -> Outcome:
    memory = GlobalMemory()
    source, out = memory.alloc(MAPS + (1 << 20)), memory.alloc(VALUES * ROW + 4096, fill=0)
    memory.multicast([out], VALUES * ROW + 4096, out + MULTIMEM)
    memory.write(source, INPUT)
    memory.write(source + MAPS, tensor_maps(source))
    module = parse_module(found.ptx)
    launch = Launch((found.cluster, 1, 1), (found.threads, 1, 1), (found.cluster, 1, 1))
    return simulate(module, "k", launch, pack_params(module.function("k"), [source, out, bytes(64)]), memory)


PARTS = 24
"""Surveyed each where it runs: to try all forms where tests are collected takes each process ten seconds."""


@pytest.mark.parametrize("part", range(PARTS))
def test_forms_called_executed_run(part: int) -> None:
    executed = [s for s in survey(FORMS[part::PARTS]) if s.executed]
    assert len(executed) > 10
    wrong = {s.form.pattern: said for s in executed if (said := what_goes_wrong(s))}
    assert not wrong


def what_goes_wrong(support: Support) -> str:
    sample = support.executed[0]
    outcome = run_trial(trial(sample.text, sample.target))
    opcode = sample.text.split()[0].rstrip(";")
    if opcode in ("trap", "brkpt"):
        return "" if outcome.findings[0].code is Code.SIM_TRAP else f"{sample.text} {outcome.findings[0]}"
    if outcome.status != "ok":
        return f"{sample.text} {[str(f) for f in outcome.findings]}"
    return "" if outcome.stats.opcodes.get(opcode) or opcode.startswith("call") else f"{sample.text} is not counted"
