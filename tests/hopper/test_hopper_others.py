# SPDX-License-Identifier: Apache-2.0
"""Instructions outside tcgen05 that Hopper lacks do what they should once they are lowered."""

from __future__ import annotations

import numpy as np
import pytest
from lowered_ptx import Ran, lowered_module, run

from porter.build.toolchain import find_host_compiler, find_toolkit
from porter.diagnostics import PorterError
from porter.sim import Launch

try:
    find_host_compiler()
    find_toolkit()
except PorterError as error:
    pytest.skip(error.diagnostic.message, allow_module_level=True)


def ran(body: str, source: np.ndarray, ctas: int = 1) -> Ran:
    """One warp in each CTA of a cluster; %d0 is the input, %d1 the output, %r0 the thread, %r1 the rank."""
    text = f""".version 9.0
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{{
.reg .b32 %r<40>; .reg .f32 %f<9>; .reg .b64 %d<20>; .reg .pred %p<9>; .reg .b128 %q<2>;
.shared .align 16 .b8 answer[16]; .shared .align 8 .b8 bar[8];
ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, %cluster_ctarank;
{body}
ret;
}}"""
    found = run(lowered_module(text), Launch((ctas, 1, 1), (32, 1, 1), (ctas, 1, 1)), [source], 2048, mode="deferred")
    assert found.ok, found.why
    return found


def test_accesses_of_256_bits() -> None:
    source = np.arange(256, dtype=np.uint32)
    body = """mul.wide.u32 %d2, %r0, 32; add.u64 %d3, %d0, %d2; add.u64 %d2, %d1, %d2;
    ld.global.v8.b32 {%r10, %r11, %r12, %r13, %r14, %r15, %r16, %r17}, [%d3];
    st.global.v8.b32 [%d2+1024], {%r17, %r16, %r15, %r14, %r13, %r12, %r11, %r10};
    ld.global.v4.b64 {%d3, %d4, %d5, %d6}, [%d3]; st.global.v4.b64 [%d2], {%d6, %d5, %d4, %d3};"""
    out = ran(body, source).output.view(np.uint32)
    np.testing.assert_array_equal(out[256:].reshape(32, 8), source.reshape(32, 8)[:, ::-1])
    wide = source.view(np.uint64).reshape(32, 4)
    np.testing.assert_array_equal(out[:256].view(np.uint64).reshape(32, 4), wide[:, ::-1])


REDUX = """mul.wide.u32 %d2, %r0, 4; add.u64 %d3, %d0, %d2; add.u64 %d2, %d1, %d2; ld.global.f32 %f0, [%d3];
setp.lt.u32 %p0, %r0, 16; selp.b32 %r2, 0xFFFF, 0xFFFF0000, %p0; @!%p0 bra HIGH;
redux.sync.{form}.f32 %f1, %f0, %r2; bra DONE;
HIGH: redux.sync.{form}.f32 %f1, %f0, %r2;
DONE: st.global.f32 [%d2], %f1;"""


@pytest.mark.parametrize("form", ["min", "max", "min.abs", "max.NaN", "max.abs.NaN"])
def test_redux_of_floats(form: str) -> None:
    values = np.random.default_rng(3).normal(size=32).astype(np.float32)
    values[20] = np.nan
    out = ran(REDUX.format(form=form), values).output.view(np.float32)[:32]
    parts = np.abs(values) if "abs" in form else values
    plain = np.fmin.reduce if "min" in form else np.fmax.reduce
    for half in (slice(0, 16), slice(16, 32)):
        want = plain(parts[half])
        if "NaN" in form and np.isnan(parts[half]).any():
            assert np.isnan(out[half]).all()
        else:
            assert (out[half] == want).all()


OF_THREE = """mul.wide.u32 %d2, %r0, 12; add.u64 %d3, %d0, %d2; mul.wide.u32 %d2, %r0, 4; add.u64 %d2, %d1, %d2;
ld.global.f32 %f0, [%d3]; ld.global.f32 %f1, [%d3+4]; ld.global.f32 %f2, [%d3+8];
{form}.f32 %f2, %f0, %f1, %f2; st.global.f32 [%d2], %f2;"""


@pytest.mark.parametrize("form", ["min", "max.NaN", "max.abs", "min.ftz.NaN.abs"])
def test_extremes_of_three_floats(form: str) -> None:
    values = np.random.default_rng(5).normal(size=(32, 3)).astype(np.float32)
    values[[3, 4, 5], [0, 1, 2]] = np.nan
    values[6] = np.nan
    parts = np.abs(values) if "abs" in form else values
    plain = (np.minimum if "NaN" in form else np.fmin) if "min" in form else (np.maximum if "NaN" in form else np.fmax)
    out = ran(OF_THREE.format(form=form), values).output.view(np.float32)[:32]
    np.testing.assert_array_equal(out, plain.reduce(parts, axis=1))


CANCEL = """mov.u32 %r2, answer; mov.u32 %r3, bar; setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared.b64 [%r3], 1;
@%p0 fence.mbarrier_init.release.cluster; @%p0 st.shared.u32 [%r2+4], 7;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 16; {who}
@%p1 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes{everywhere}.b128 [%r2], [%r3];
W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], 0; @!%p2 bra W;
ld.shared.v2.u64 {{%d3, %d4}}, [%r2]; mov.b128 %q0, {{%d3, %d4}};
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p3, %q0; selp.u32 %r5, 9, 1, %p3;
ld.shared.u32 %r6, [%r2+4]; add.u32 %r5, %r5, %r6;
mad.lo.u32 %r4, %r1, 32, %r0; mul.wide.u32 %d2, %r4, 4; add.u64 %d2, %d2, %d1; st.global.u32 [%d2], %r5;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"""


@pytest.mark.spread(2)
@pytest.mark.parametrize(("who", "everywhere"), [
    ("mov.pred %p1, %p0;", ""), ("setp.eq.u32 %p1, %r1, 1; and.pred %p1, %p1, %p0;", ".multicast::cluster::all"),
])  # fmt: skip
def test_there_is_nothing_to_cancel(who: str, everywhere: str) -> None:
    found = ran(CANCEL.format(who=who, everywhere=everywhere), np.zeros(4, np.uint32), 2)
    assert found.output.view(np.uint32)[:64].tolist() == [1] * 64
