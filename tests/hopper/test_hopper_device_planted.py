# SPDX-License-Identifier: Apache-2.0
"""Mistakes planted in the library that lowered kernels call: some check of this folder notices each."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lowered_ptx
import numpy as np
import pytest
import test_hopper_execution as execution
import test_hopper_traps as traps
from lowered_ptx import lowered_module, parsed_library, run
from tensor_kernel import COMMIT, Tensor, descriptor, inputs, mma

from porter.build.toolchain import find_host_compiler, find_toolkit
from porter.diagnostics import PorterError
from porter.sim import Launch, Options
from porter.verify.gpu import emulation

try:
    find_host_compiler()
    find_toolkit()
except PorterError as error:
    pytest.skip(error.diagnostic.message, allow_module_level=True)


def products(*names: str, mode: str = "deferred") -> str:
    """Which of the forms in test_hopper_execution give other values than the original."""
    pair = names[0].startswith("pair")
    forms = [f for f in (execution.PAIR_FORMS if pair else [*execution.FORMS, *execution.EXTENDED]) if f.name in names]
    if len(forms) != len(names):
        raise ValueError(names)
    extended = any(f in execution.EXTENDED for f in forms)
    tensor, places = execution.kernel(forms, 2 if pair else 1, 512 if extended else 32)
    given = execution.codes(tensor) if extended else None
    return str(execution.wrong(tensor, places, mode, given) or "")


def trap(name: str) -> str:
    traps.test_a_mistake_traps_where_it_was_made(name)
    return ""


def hazards() -> str:
    """What is not ordered while threads take turns at the products of a CTA."""
    tensor, _ = execution.kernel([f for f in execution.FORMS if f.name == "f16 with scale-input-d"], columns=32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lowered_ptx, "Options", lambda **kept: Options(mode="checking", **kept))
        found = run(lowered_module(tensor.text), tensor.launch, inputs(tensor, 1), tensor.out_bytes, mode="deferred")
    return "; ".join(str(h) for h in found.outcome.hazards)


Check = Callable[[], str]


@dataclass(frozen=True)
class Mistake:
    """The first `right` of a file becomes `wrong`."""

    name: str
    file: str
    right: str
    wrong: str
    check: Check


def quick(mistake: Mistake) -> Any:
    return pytest.param(mistake, id=mistake.name)


def slow(mistake: Mistake) -> Any:
    return pytest.param(mistake, id=mistake.name, marks=pytest.mark.slow)


def refilled() -> str:
    """Columns that are taken a second time hold no values of the first."""
    test_columns_taken_again_hold_nan()
    return ""


def in_order() -> str:
    """A copy into an accumulator comes after the product onto it."""
    test_a_copy_comes_after_the_products_before_it()
    return ""


def freed_early() -> str:
    traps.test_free_before_the_products_are_done()
    return ""


def over_by_threads() -> str:
    """A product of 8-bit floats, which no warp computes with mma.sync, is written over D."""
    body = mma("cta_group::1.kind::f8f6f4", execution.A, execution.B, execution.idesc(64, 8, 0, 1), 0)
    tensor = Tensor(body + COMMIT, columns=32)
    return str(execution.wrong(tensor, {"over": slice(0, 8)}) or "")


def steps() -> str:
    execution.test_products_onto_one_accumulator_keep_their_order()
    return ""


def pair_copies() -> str:
    execution.test_tensor_copies_of_a_pair(True, "deferred", "late")
    return ""


def one(name: str, mode: str = "deferred") -> Check:
    return lambda: products(name, mode=mode)


def stops(name: str) -> Check:
    return lambda: trap(name)


F16, HALF, MX = "f16 with scale-input-d", "f16 M=64 in the odd half lanes", "mxf8f6f4"
MISTAKES = [
    quick(Mistake("lane quarter not checked", "management.cuh", "lane / 32 != quarter", "lane / 32 >= 4",
                  stops("another warp's quarter"))),
    quick(Mistake("column bound not checked", "state.cuh", "high = (first + count - 1) / kUnit", "high = first / kUnit",
                  stops("past the allocation"))),
    quick(Mistake("alloc after relinquish not checked", "management.cuh", "if (c.relinquished) stop",
                  "if (c.relinquished > 1) stop", stops("alloc after relinquish"))),
    slow(Mistake("wrong swizzle", "operands.cuh", "address >> 3 & 0x70", "address >> 3 & 0x60", one(F16))),
    slow(Mistake("wrong stride of rows", "operands.cuh", "row / 8 * r.sbo + chunk * 16", "row / 8 * r.lbo + chunk * 16",
                 one(F16))),
    slow(Mistake("accumulate flag dropped by a warp", "warp.cuh", "bool add = enable & 1;", "bool add = true;",
                 one("bf16 with A negated, over D"))),
    slow(Mistake("accumulate flag dropped by threads", "arithmetic.cuh", "double c = enable ? accumulator",
                 "double c = true ? accumulator", over_by_threads)),
    slow(Mistake("accumulate flag of a joined step dropped", "library.cu", "item.enable |= made.enable << item.count;",
                 "item.enable |= 1u << item.count;", steps)),
    slow(Mistake("scale-input-d dropped", "arithmetic.cuh", "if (shift) c *= power(-(int)shift);", "", one(F16))),
    slow(Mistake("scale factor doubled", "product.cuh", "power((int)code - 127)", "power((int)code - 126)", one(MX))),
    slow(Mistake("scale factors of another row", "product.cuh", "lane / 32 * 32 + row % 32",
                 "lane / 32 * 32 + row % 16", one(MX))),
    slow(Mistake("other half of the lanes", "product.cuh", "w.p.half ? t.row * 2 + w.lane", "w.p.half ? t.row * 2",
                 one(HALF))),
    slow(Mistake("disabled lanes written", "product.cuh", "return !(i.mask", "return true || !(i.mask",
                 one("lanes left alone"))),
    slow(Mistake("commit arrives at once", "library.cu", "if (porter_host.mode == kDeferred) {\n    Item item = {};",
                 "if (false) {\n    Item item = {};", one(F16))),
    slow(Mistake("commit does not close the step before it", "library.cu",
                 "issue(Cta& c, const Item& made) {\n  close_open(c);", "issue(Cta& c, const Item& made) {", one(F16))),
    slow(Mistake("operation read without acquire", "state.cuh", "ld.acquire.gpu.u32", "ld.volatile.u32", hazards)),
    slow(Mistake("operation handed over without release", "library.cu",
                 "if (open) store_release(&queued(open - 1).ready, open);", "if (open) queued(open - 1).ready = open;",
                 hazards)),
    slow(Mistake("pending products not checked", "management.cuh", "if (pending) stop", "if (pending > 99) stop",
                 freed_early)),
    slow(Mistake("columns keep their values", "management.cuh", "*cell(memory, row, start + k) = 0xFFFFFFFFu;", ";",
                 refilled)),
    slow(Mistake("copy does not wait for products", "library.cu",
                 "use_group(c, group, site);\n  if (porter_host.mode == kDeferred) drain(c);\n  // Narrow",
                 "use_group(c, group, site);\n  // Narrow", in_order)),
    slow(Mistake("wrong peer of a pair", "product.cuh", "cta_of_rank(rank + 1)", "cta_of_rank(rank)",
                 one("pair M=128"))),
    slow(Mistake("B of the other CTA not used", "product.cuh", "which = w.pair && n >= half",
                 "which = w.pair && n > w.p.n", one("pair M=128"))),
    slow(Mistake("multicast commit to one CTA", "library.cu", "if (!(multicast >> rank & 1)) continue;",
                 "if (rank) continue;", one("pair M=128"))),
    slow(Mistake("parity of forwarded copies kept", "pairs.cuh", "peek(f.parity) ^ 1", "peek(f.parity)", pair_copies)),
    slow(Mistake("bytes forwarded to the same CTA", "pairs.cuh", '"r"(barrier & kOffset), "r"(to ^ 1)',
                 '"r"(barrier & kOffset), "r"(to)', pair_copies)),
]  # fmt: skip


def use(patch: pytest.MonkeyPatch, library: str) -> None:
    """Lowered kernels call `library`, until the patch is undone and `forget` is called."""
    patch.setattr(lowered_ptx, "library", lambda: library)
    forget()


def forget() -> None:
    parsed_library.cache_clear()
    lowered_module.cache_clear()


def broken(mistake: Mistake, folder: Path, patch: pytest.MonkeyPatch) -> str:
    """The library with a mistake in it, as PTX."""
    shutil.copytree(emulation.LIBRARY_SOURCE.parent, folder)
    file = folder / mistake.file
    text = file.read_text()
    assert mistake.right in text
    file.write_text(text.replace(mistake.right, mistake.wrong, 1))
    patch.setattr(emulation, "LIBRARY_SOURCE", folder / emulation.LIBRARY_SOURCE.name)
    return emulation.library_ptx(find_toolkit())


@pytest.mark.spread(3)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_noticed(mistake: Mistake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = broken(mistake, tmp_path / "device", monkeypatch)
    try:
        use(monkeypatch, library)
        try:
            noticed = mistake.check()
        except AssertionError as failed:
            noticed = str(failed) or "an assertion"
    finally:
        forget()
    assert noticed


@pytest.mark.slow
def test_the_right_library_has_no_hazards() -> None:
    assert hazards() == ""


@pytest.mark.slow
def test_columns_taken_again_hold_nan() -> None:
    store = "mov.u32 %r11, 7; tcgen05.st.sync.aligned.32x32b.x1.b32 [%r7], {%r11}; tcgen05.wait::st.sync.aligned;"
    again = f"bar.sync 0; @%p1 bra AGAIN; {traps.DEALLOC} %r6, 64; {traps.TAKE} AGAIN: bar.sync 0;"
    read = f"{traps.LD} [%r7]; tcgen05.wait::ld.sync.aligned;"
    out = "ld.param.u64 %d0, [out]; mul.wide.u32 %d1, %r0, 4; add.u64 %d0, %d0, %d1; st.global.u32 [%d0], %r11;"
    found = run(lowered_module(traps.kernel(traps.TAKE, store + again + read + out)), Launch((1, 1, 1), (128, 1, 1)),
                [np.zeros(4, np.uint32)], 512, mode="deferred")  # fmt: skip
    assert found.ok, found.why
    assert np.isnan(found.output.view(np.float32)).all()


@pytest.mark.slow
def test_a_copy_comes_after_the_products_before_it() -> None:
    """tcgen05.mma and tcgen05.cp of one thread are carried out in order (PTX ISA 9.7.16.6.2)."""
    word = execution.idesc(128, 8)
    body = mma("cta_group::1.kind::f16", execution.A, execution.B, word, 1)
    body += f"add.u64 %d10, %d9, {descriptor(0, 2048, 128, execution.NONE)};"
    body += "tcgen05.cp.cta_group::1.128x256b [%r6], %d10;" + COMMIT
    assert execution.wrong(Tensor(body, columns=32), {"copied": slice(0, 8)}) == []
