# SPDX-License-Identifier: Apache-2.0
"""wgmma.mma_async.sp: exact products, and the words of an H200."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from core_ptx import upload
from sparse_wgmma import FAMILIES, FORMS, Form, Inputs, inputs, kernel

from porter.diagnostics import Code
from porter.ptx.parser import parse_module
from porter.ptx.sparse import chunk_elements, logical_offset
from porter.ptx.types import ElementType as T
from porter.sim import GlobalMemory, Launch, Options, Outcome, pack_params, simulate
from porter.sim.datapath.wgmma import tile_of_registers

# Recorded on an H200 (driver 580, ptxas 13.0): SHA-256 of the D registers of all families with seed 0, by form.
RECORDED = [
    "4343f895c65e21c5a3ae5e016b66b4c5",
    "ed2e05a1517e866b07ae21aa4bf19bd0",
    "6c83dc89a0bdf045829a55156fe7b982",
    "10f39b63b8121b7393085b9a66c897e1",
    "52cda5cdc13effadfe6825c5dda265d4",
    "52cda5cdc13effadfe6825c5dda265d4",
    "1c40b4671479444b4791cab2fa27e87f",
    "68dc36fcaf8b792580954a93ad504074",
    "35ac2b06142f73ab05f9a1acd89f563e",
    "6b6300bb6b78a4f86010c56f387ce3e0",
    "4a9ff420de1724b1df1d1e121c9f9686",
    "df8e8dadb868d4b4a2ce1424b54669cb",
]


def run(form: Form, given: Inputs, **options: object) -> tuple[Outcome, np.ndarray]:
    memory = GlobalMemory()
    places = [upload(memory, array) for array in (given.ba, given.areg, given.meta, given.din)]
    out = memory.alloc(given.din.nbytes)
    module = parse_module(kernel(form))
    params = pack_params(module.function("k"), [*places, out])
    outcome = simulate(module, "k", Launch((1, 1, 1), (128, 1, 1)), params, memory, Options(seed=1, **options))
    return outcome, memory.read(out, given.din.nbytes).view(np.uint32).reshape(given.din.shape)


def digest(form: Form, arithmetic: str) -> str:
    words = [run(form, inputs(form, family, 0), arithmetic=arithmetic)[1].tobytes() for family in FAMILIES]
    return hashlib.sha256(b"".join(words)).hexdigest()[:32]


@pytest.mark.parametrize("number", range(len(FORMS)))
def test_words_of_an_h200(number: int) -> None:
    assert digest(FORMS[number], "exact") == RECORDED[number]


def test_other_arithmetic_misses_the_words() -> None:
    assert digest(FORMS[0], "float64") != RECORDED[0]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form.opcode[32:]}-{form.selector}-{form.registers}")
@pytest.mark.parametrize("schedule", ["eager", "late"])
def test_products_of_small_numbers(form: Form, schedule: str) -> None:
    """Against the definition: stored elements at the places that the metadata gives, zeros elsewhere."""
    given = inputs(form, "integers", 5)
    bits, k = form.a_type.bits, form.op.k
    a = np.zeros((64, k))
    width = chunk_elements(bits)
    for row in range(64):
        for i in range(k // 2):
            chunk, stored = divmod(i, width // 2)
            place = chunk * width + int(logical_offset(int(given.nibbles[row, chunk]), stored, bits))
            a[row, place] = float(given.stored[row, i])
    given.din[:] = 0
    outcome, got = run(form, given, schedule=schedule, arithmetic="float64")
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    words = tile_of_registers(got.T, 64, form.d_type)
    if form.d_type is T.F16:
        tile = words.astype(np.uint16).view(np.float16).astype(float)
    else:
        tile = words.view(np.int32 if form.d_type is T.S32 else np.float32).astype(float)
    np.testing.assert_array_equal(tile, (-1 if form.negate else 1) * a @ given.b.astype(float).T)


def test_checking_mode_sees_what_is_read() -> None:
    """Half of A is there, at the end of what was written: only its bytes count."""
    form = FORMS[0]
    given = inputs(form, "integers", 1)
    outcome, _ = run(form, given, mode="checking", level="strict", schedule="late")
    assert outcome.status == "ok"
    assert not outcome.hazards, [str(h) for h in outcome.hazards]


def test_metadata_without_meaning_stops_the_run() -> None:
    form = FORMS[0]
    given = inputs(form, "integers", 1)
    given.meta[:] = 0
    outcome, _ = run(form, given)
    assert outcome.findings[0].code is Code.SIM_DESCRIPTOR
    assert "0b0000 of row 0" in outcome.findings[0].message
