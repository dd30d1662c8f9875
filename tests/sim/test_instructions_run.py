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


EXECUTED = [s for s in survey(FORMS) if s.executed]


@pytest.mark.parametrize("support", EXECUTED, ids=lambda s: f"{s.form.pattern[:60]}")
def test_a_form_called_executed_runs(support: Support) -> None:
    sample = support.executed[0]
    outcome = run_trial(trial(sample.text, sample.target))
    opcode = sample.text.split()[0].rstrip(";")
    if opcode in ("trap", "brkpt"):
        assert outcome.findings[0].code is Code.SIM_TRAP
        return
    assert outcome.status == "ok", (sample.text, [str(f) for f in outcome.findings])
    assert outcome.stats.opcodes.get(opcode) or opcode.startswith("call")
