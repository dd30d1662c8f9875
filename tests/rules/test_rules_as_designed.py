# SPDX-License-Identifier: Apache-2.0
"""Rules of users as docs/rules.md promises them: under 25 lines each, with their examples."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.passes.rule_examples import differences, try_examples
from porter.rules.load import read_rule_file

FENCE = 'asm volatile("wgmma.fence.sync.aligned;" ::: "memory");'
WAIT = 'asm volatile("wgmma.commit_group.sync.aligned;"); asm volatile("wgmma.wait_group.sync.aligned 0;");'
RENAMED = """\
schema: 2
library: acme
scope: [acme]
rules:
  - id: ACME100
    title: House multiply
    recognize: 'acme::mma<$N>($D, $A, $B)'
    where: {N: const, D: name}
    as: {mma: {shape: 'm64n${N}k16', types: f32.f16.f16, d: $D, a: $A, b: $B}}
    emit: 'acme::umma<$N>($tile, $A, $B);'
    needs: [tile]
    request: {include: acme/umma.cuh}
    safety: review
    reason: acme 2.0 has the sister of each multiply.
    examples:
      - with: {acme/mma.cuh: 'namespace acme { template <int N> __device__ void mma(float (&d)[N / 2], T a, T b); }'}
        before: |
          #include "acme/mma.cuh"
          __global__ void __launch_bounds__(128) k(float* o, T a, T b) {
            float c[32] = {}; FENCE acme::mma<64>(c, a, b); WAIT o[0] = c[0]; }
        expect: ['acme::umma<64>(c_tmem, a, b);', 'tcgen05::load(c, c_tmem);']
      - near: 'acme::mma<64>(acc[0], a, b);'
"""
FRAGMENT = """\
schema: 2
library: cute
scope: [cute]
rules:
  - id: ACME200
    title: Fragment of an accumulator
    recognize: ['partition_fragment_C($MMA, $TILE)']
    where: {MMA: {type: 'cute::TiledMMA'}}
    as: {tile: {name: $LHS, mma: $MMA, shape: $TILE}}
    emit: 'tcgen05::accumulator($state, $MMA, partition_fragment_C($MMA, $TILE), $column)'
    needs: [state, column]
    request: {include: tcgen05_cute.cuh}
    safety: safe
    reason: The fragment stays; its iterator carries the tile in Tensor Memory.
    examples:
      - before: |
          using namespace cute;
          template <class A> __global__ void __launch_bounds__(128) k(TiledMMA<A> m, T a, T b, float* o) {
            Tensor acc = partition_fragment_C(m, shape); warpgroup_arrive(); gemm(m, a, b, acc);
            warpgroup_commit_batch(); warpgroup_wait<0>(); o[0] = acc(0); }
        expect: ['Tensor acc = tcgen05::accumulator(tc, m, partition_fragment_C(m, shape), 0)', tcgen05_cute.cuh]
      - near: 'partition_fragment_C(m)'
"""
REFUSED = """\
schema: 2
library: acme
scope: [acme]
rules:
  - id: ACME900
    title: Split accumulators
    recognize: 'acme::mma_split<$N, $P>($$$ARGS)'
    refuse:
      code: RULE_REFUSED
      what: 'a multiply that spreads one accumulator over $P warpgroups'
      advice: 'Call acme::mma<${N}> once a warpgroup, or keep this kernel for sm_90a.'
    safety: sketch
    reason: Tensor Memory tiles belong to one warpgroup.
    examples:
      - before: "__device__ void f() { acme::mma_split<64, 2>(c, a, b); }\\n"
        diagnostics: [RULE_REFUSED]
"""


@pytest.mark.parametrize("text", [RENAMED, FRAGMENT, REFUSED], ids=["a wrapper", "a fragment", "a refusal"])
def test_a_rule_and_its_examples(tmp_path: Path, text: str) -> None:
    assert len(text.splitlines()) < 25
    (tmp_path / "acme.yaml").write_text(text.replace("FENCE", FENCE).replace("WAIT", WAIT))
    rules = read_rule_file(tmp_path / "acme.yaml")
    tried = list(try_examples(rules, (str(tmp_path),)))
    assert [list(differences(t.rule, t.example, t.found)) for t in tried] == [[]] * len(rules[0].examples)
