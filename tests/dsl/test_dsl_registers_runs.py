# SPDX-License-Identifier: Apache-2.0
"""Forms of attention and of a GEMM in CuTe DSL whose operand A comes from registers: traced, ported in Blackwell's own
words, compiled, run, compared. What is planted in a port is refused by these runs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from porter.build.port_plan import PortPlan
from porter.cli.porting import traces_of
from porter.diagnostics import Code
from porter.passes.dsl.port import port_python
from porter.verify.builder import ToolkitBuilder
from porter.verify.proof import Claim, Proof, prove

CORPUS = Path(__file__).resolve().parents[2] / "corpus" / "dsl_attention"

pytestmark = [pytest.mark.slow, pytest.mark.spread(4)]

Change = tuple[str, str]
PV = """                for k_block in cutlass.range_constexpr(cute.size(tOrP, mode=[2])):
                    cute.gemm(
                        pv_mma,
                        acc_o,
                        tOrP[(None, None, k_block)],
                        tOrV[(None, None, k_block, v_state.index)],
                        acc_o,
                    )
"""
MADE = "            tOrP = cute.make_rmem_tensor(self.operand_layout(acc_s.layout), self.dtype)\n"
FILLED = "                # The accumulator's registers are in the order of the operand's.\n"
ATOM = """            store_atom = sm90_utils.sm90_get_smem_store_op(
                self.o_layout, elem_ty_d=self.dtype, elem_ty_acc=self.acc_dtype
            )
"""
COPY = "cute.make_tiled_copy_S(store_atom, cute.make_tiled_copy_C_atom(matrix_atom, pv_mma))"
BY_HALVES = """                for half in cutlass.range_constexpr(2):
                    for k_block in cutlass.range_constexpr(cute.size(tOrP, mode=[2]) // 2):
                        at = half * (cute.size(tOrP, mode=[2]) // 2) + k_block
                        cute.gemm(pv_mma, acc_o, tOrP[None, None, at], tOrV[None, None, at, v_state.index], acc_o)
"""
BY_KEYWORD = """                for k_block in cutlass.range_constexpr(cute.size(tOrP, mode=[2])):
                    b = tOrV[None, None, k_block, v_state.index]
                    cute.gemm(pv_mma, d=acc_o, a=tOrP[None, None, k_block], b=b, c=acc_o)
"""
KEPT = """            kept = pv_mma.make_fragment_C(pv_thr.partition_shape_C(self.pv_tile[:2]))
            kept.fill(0.0)
"""
OWN = """            own = tidx - 128 * warpgroup_idx
            qk_thr = """
FORMS: dict[str, tuple[Change, ...]] = {
    "32 keys at a time": (("block_n: int = 64", "block_n: int = 32"),),
    "128 keys at a time": (("block_n: int = 64", "block_n: int = 128"),),
    "three stages": (("stages: int = 2", "stages: int = 3"),),
    "one warpgroup": (("self.consumers = 2", "self.consumers = 1"),),
    "three warpgroups": (("self.consumers = 2", "self.consumers = 3"),),
    "other names": (("acc_s", "scores"), ("acc_o", "out"), ("tOrP", "weights"), ("pv_mma", "second"),
                    ("qk_mma", "first"), ("tidx", "thread")),
    "one call for all blocks of K": ((PV, """                cute.gemm(
                    pv_mma, acc_o, tOrP, tOrV[(None, None, None, v_state.index)], acc_o
                )
"""),),
    "blocks of K in two loops": ((PV, BY_HALVES),),
    "probabilities that are made at each turn": ((MADE, ""), (FILLED, MADE.replace(" " * 12, " " * 16) + FILLED)),
    "an else": (("        if warpgroup_idx > 0:\n", "        else:\n"),),
    "a loading warpgroup by its warps": (("if warpgroup_idx == 0:", "if warp_idx < 4:"),
                                         ("if warpgroup_idx > 0:", "if not warp_idx < 4:")),
    "the thread by a name": (("            qk_thr = ", OWN),
                             ("get_slice(tidx % 128)", "get_slice(own)")),
    "operands by keyword": ((PV, BY_KEYWORD),),
    "a store that is made of the MMA": ((COPY, "cute.make_tiled_copy_C(store_atom, pv_mma)"),),
    "more registers like the sums": (("            tOrP = ", KEPT + "            tOrP = "),
                                     ("                # O += P V\n", f"{' ' * 16}kept.store(kept.load() * 0.0)\n")),
    "while": (("            for tile in cutlass.range(key_tiles, unroll=1):\n                # S",
               "            tile = cutlass.Int32(0)\n            while tile < key_tiles:\n                # S"),
              ("                v_loads.consumer_release(v_state)\n",
               "                tile = tile + 1\n                v_loads.consumer_release(v_state)\n")),
}  # fmt: skip


def written(changes: tuple[Change, ...], to: Path) -> Path:
    text = (CORPUS / "dsl_attention.py").read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    for name in ("case.yaml", "reference.py"):
        shutil.copy(CORPUS / name, to / name)
    path = to / "dsl_attention.py"
    path.write_text(text)
    return path


def proof_of(path: Path, *plants: Change) -> Proof:
    """The proof of the port of a file, with changes of it."""
    ported = port_python(path, traces=traces_of)
    left = [d.message for d in ported.diagnostics if d.code is Code.IDIOM_LEFT]
    assert ported.idiomatic, left
    text = ported.files[str(path)].decode()
    assert "porter" not in text
    for right, wrong in plants:
        assert text.count(right) >= 1, right
        text = text.replace(right, wrong)
    return prove(Claim(path, ported.kernels, PortPlan(files={str(path): text.encode()}), dsl=True), ToolkitBuilder())


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_attention(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORTER_TRUST", "1")
    proof = proof_of(written(FORMS[form], tmp_path))
    assert not proof.missing
    assert proof.sizes == 2


BARRIER = "                team_ready.arrive_and_wait()\n"
WAIT = "                cute.arch.mbarrier_wait(team_done, team_phase)\n"
STORED = "                cute.copy(store_acc_o, acc_o_held, acc_o_to)\n"
PLANTS: dict[str, tuple[Change, ...]] = {
    "MMAs ahead of what they multiply": ((BARRIER, ""),),
    "sums that nobody waits for": ((WAIT, ""),),
    "a wait that looks for the phase before": (("team_phase = cutlass.Int32(0)", "team_phase = cutlass.Int32(1)"),),
    "probabilities that stay in registers": (("                cute.copy(store_a, tOrP_held, tOrP_to)\n", ""),),
    "sums that are not scaled": ((STORED, ""),),
    "sums that are not loaded": (("                cute.copy(load_acc_o, acc_o_from, acc_o_held)\n", ""),),
    "stores that nobody waits for": (("                cute.arch.fence_view_async_tmem_store()\n", ""),),
    "loads that nobody waits for": (("                cute.arch.fence_view_async_tmem_load()\n", ""),),
    "columns of both warpgroups": (("team * sum(team_columns)", "0 * team * sum(team_columns)"),),
    "an operand in the columns of sums": (("sum(team_columns[:2])", "team_columns[0]"),),
    "a mbarrier of both warpgroups": (("team_done = mma_done + team", "team_done = mma_done + 0 * team"),),
    "a barrier of both warpgroups": (("barrier_id=4 + team,", "barrier_id=4,"),),
    "MMAs of every warp": (("% 4 == 0\n            team_phase", "% 4 >= 0\n            team_phase"),),
    "columns that are given back early": (("            tmem_barrier.arrive_and_wait()\n", ""),),
}  # fmt: skip


@pytest.mark.parametrize("plant", PLANTS)
def test_runs_refuse_what_is_wrong(plant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORTER_TRUST", "1")
    missing = proof_of(written((), tmp_path), *PLANTS[plant]).missing
    assert re.search(r"hazard|differs|did not finish|memory|within", missing), missing


GEMM = Path(__file__).with_name("registers_gemm.py")
CASE = """
version: 1
description: A converted in registers
kernel: registers_gemm.py
entry: MixedGemm
sizes: {M: 128, N: 256, K: 320}
other_sizes: [{M: 100, N: 128, K: 64}]
mutate_sizes: {M: 128, N: 128, K: 320}
multiples: {M: 1, N: 1, K: 16}
constants: {BN: %s}
dsl: {init: {tile_n: BN}, call: [A, B, C, stream]}
tensors:
  A: {dtype: %s, shape: [M, K], role: input}
  B: {dtype: %s, shape: [N, K], role: input}
  C: {dtype: f32, shape: [M, N], role: output}
reduction: K
reference: "2 * A @ B.T"
accumulate: f32
"""
LOOP = """                for k_block in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
                    cute.gemm(
                        tiled_mma,
                        acc,
                        tCrA[(None, None, k_block)],
                        tCrB[(None, None, k_block, state.index)],
                        acc,
                    )
                    tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
"""
BEGINS = "            tiled_mma.set(warpgroup.Field.ACCUMULATE, False)\n"
FENCE = "                warpgroup.fence()\n"
COPIED = "                cute.autovec_copy(tCsA[(None, None, None, self.warpgroups * state.index + team)], bytes_a)\n"
BY_ELEMENT = """                for i in cutlass.range_constexpr(cute.size(bytes_a)):
                    bytes_a[i] = tCsA[(None, None, None, self.warpgroups * state.index + team)][i]
"""
BYTES = "            bytes_a = cute.make_rmem_tensor(tCsA[(None, None, None, 0)].shape, sA.element_type)\n"
MATRICES = """            op = cute.nvgpu.warp.LdMatrix8x8x16bOp(False, 4)
            copy_a = cute.make_tiled_copy_A(cute.make_copy_atom(op, sA.element_type), tiled_mma)
            tCsA_copy = copy_a.get_slice(tidx % 128).partition_S(sA)
"""
BY_MATRICES = """                at = (None, None, None, self.warpgroups * state.index + team)
                cute.copy(copy_a, tCsA_copy[at], copy_a.retile(bytes_a))
"""
RS_FORMS: dict[str, tuple[int, str, str, tuple[Change, ...]]] = {
    "bytes": (128, "s8", "f16", ()),
    "64 columns": (64, "s8", "f16", ()),
    "16 columns": (16, "s8", "bf16", ()),
    "256 columns": (256, "s8", "f16", (("self.warpgroups = 2", "self.warpgroups = 1"),)),
    "three warpgroups": (128, "s8", "f16", (("self.warpgroups = 2", "self.warpgroups = 3"),)),
    "bytes without a sign": (128, "u8", "f16", ()),
    "one type": (128, "bf16", "bf16", ()),
    "k tiles of 128": (32, "s8", "f16", (("self.tile_k = 64", "self.tile_k = 128"),)),
    "k tiles of 32": (128, "s8", "f16", (("self.tile_k = 64", "self.tile_k = 32"),)),
    "matrices": (128, "f16", "f16", ((BYTES, BYTES + MATRICES), (COPIED, BY_MATRICES))),
    "element by element": (128, "s8", "f16", ((COPIED, BY_ELEMENT),)),
    "registers of the operand's shape": (128, "s8", "f16", (
        ("tiled_mma.make_fragment_A(tCsA[(None, None, None, 0)])",
         "cute.make_rmem_tensor(tiled_mma.partition_shape_A((64, self.tile_k)), self.dtype)"),)),
    "one call for all blocks of K": (128, "s8", "f16", (
        (LOOP, """                cute.gemm(tiled_mma, acc, tCrA, tCrB[(None, None, None, state.index)], acc)
                tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
"""),)),
    "sums that begin with zeros": (128, "s8", "f16", (
        (BEGINS, "            acc.fill(0.0)\n" + BEGINS.replace("False", "True")),)),
    "sums that begin in the first turn": (128, "s8", "f16", (
        ("for _ in cutlass.range(k_tiles", "for k_tile in cutlass.range(k_tiles"), (BEGINS, ""),
        (FENCE, f"{' ' * 16}tiled_mma.set(warpgroup.Field.ACCUMULATE, k_tile != 0)\n{FENCE}"))),
    "other names": (128, "s8", "f16", (("acc", "sums"), ("tCrA", "operand"), ("thr_mma", "mine"),
                                       ("team", "part_of"), ("loads", "ring"))),
}  # fmt: skip


@pytest.mark.parametrize("form", RS_FORMS)
def test_forms_of_a_gemm(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORTER_TRUST", "1")
    columns, a, b, changes = RS_FORMS[form]
    text = GEMM.read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    path = tmp_path / GEMM.name
    path.write_text(text)
    (tmp_path / "case.yaml").write_text(CASE % (columns, a, b))
    proof = proof_of(path)
    assert not proof.missing
    assert proof.sizes == 2
