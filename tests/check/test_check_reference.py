# SPDX-License-Identifier: Apache-2.0
"""The checker against a reference that searches a graph: on random programs it finds a race exactly where there
is one, and reports no pair that is ordered. The mbarrier unit against a state machine of a few lines."""

from __future__ import annotations

import random

import numpy as np
import pytest
from check_ptx import COMMIT, DESCRIPTORS, FILL, HEADER, MMA, check
from reference_order import Op, Order, Program, random_program, random_tensor_program

from porter.ptx.parser import parse_module
from porter.sim import GlobalMemory, Launch, Options, Outcome, pack_params, simulate

SEEDS = range(60)


def as_ptx(program: Program, start: str, text: dict[str, str], end: str = "ret;") -> str:
    """One stretch of code for each warp; sets the operations' lines."""
    lines = HEADER.format(target="sm_100a").count("\n")
    out = start.strip().split("\n")
    for warp in range(program.blocks * program.warps):
        out.append(f"setp.eq.u32 %p9, %r98, {warp}; @%p9 bra WARP{warp};")
    for warp in range(program.blocks * program.warps):
        out.append(f"WARP{warp}:")
        for number, op in enumerate(program.of(warp)):
            out.append(_instruction(op, text, f"L{warp}_{number}"))
            op.line = lines + len(out)
        out.append(end if end == "ret;" else "bra END;")
    return "\n".join(out) + "\n" + ("" if end == "ret;" else "END: " + end)


def _instruction(op: Op, text: dict[str, str], label: str) -> str:
    relaxed = op.relaxed
    fields = {
        "label": label,
        "offset": 4 * op.place[1],
        "mbarrier": 8 * op.place[1],
        "flag": 1024 + 4 * op.place[1],
        "parity": op.instance & 1,
        "scope": op.scope,
        "arrive": ".relaxed.cta" if relaxed else "",
        "wait": ".relaxed.cta" if relaxed else "",
        "release": "relaxed" if relaxed else "release",
        "acquire": "relaxed" if relaxed else "acquire",
    }
    key = f"{op.kind} {'shared' if op.place[0].startswith('shared') else op.place[0]}".strip()
    template = text.get(key, text.get(op.kind, ""))
    for name, value in fields.items():
        template = template.replace("{" + name + "}", str(value))
    return template


MEMORY = {
    "load shared": "ld.shared.u32 %r4, [%r2+{offset}];",
    "store shared": "st.shared.u32 [%r2+{offset}], %r0;",
    "load global": "ld.global.u32 %r4, [%d1+{offset}];",
    "store global": "st.global.u32 [%d1+{offset}], %r0;",
    "bar": "bar.sync 0;",
    "arrive": "mbarrier.arrive{arrive}.shared::cta.b64 %d9, [%r8];",
    "wait": "{label}: mbarrier.try_wait.parity{wait}.shared::cta.b64 %p6, [%r8], {parity}; @!%p6 bra {label};",
    "set": "st.{release}.{scope}.global.u32 [%d1+{flag}], 1;",
    "spin": "{label}: ld.{acquire}.{scope}.global.u32 %r5, [%d1+{flag}]; setp.eq.u32 %p6, %r5, 0; @%p6 bra {label};",
    "fence": "fence.acq_rel.{scope};",
}
START = """mov.u32 %r97, %ctaid.x; shl.b32 %r98, %r97, 1; add.u32 %r98, %r98, %r1;
@%p0 mbarrier.init.shared.b64 [%r8], 64;
@%p0 st.shared.u32 [%r2], 0; @%p0 st.shared.u32 [%r2+4], 0; bar.sync 0;
"""


def pairs(outcome: Outcome, ids: set[str]) -> set[tuple[int, int]]:
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    found = set()
    for hazard in outcome.hazards:
        if hazard.kind.id in ids and hazard.first is not None:
            one, other = hazard.first.ptx_line, hazard.second.ptx_line
            found.add((min(one, other), max(one, other)))
    return found


@pytest.mark.parametrize("schedule", ["late", "random"])
@pytest.mark.parametrize("seed", SEEDS)
def test_races_over_memory(seed: int, schedule: str) -> None:
    rng = random.Random(seed)
    program = random_program(rng, rng.choice((15, 30, 60)))
    body = as_ptx(program, START, MEMORY)
    wanted = Order(program).races()
    outcome = check(body, threads=64, grid=program.blocks, cluster=program.cluster, schedule=schedule, seed=seed)
    found = pairs(outcome, {"G1", "G2", "G3"})
    assert found <= wanted
    assert bool(found) == bool(wanted)


TENSOR = {
    "mma": "@%p0 " + MMA.format(enable="%p3").replace("[%r10]", "[%r9{tile}]"),
    "commit": "@%p0 " + COMMIT.replace("[%r8]", "[%r96+{mbarrier}]"),
    "wait": MEMORY["wait"].replace("[%r8]", "[%r96+{mbarrier}]"),
    "ld": "tcgen05.ld.sync.aligned.16x256b.x1.b32 {%r40, %r41, %r42, %r43}, [%r1{tile}];",
    "st": "tcgen05.st.sync.aligned.16x256b.x1.b32 [%r1{tile}], {%r4, %r5, %r6, %r7};",
    "wait_ld": "tcgen05.wait::ld.sync.aligned;",
    "wait_st": "tcgen05.wait::st.sync.aligned;",
    "before": "tcgen05.fence::before_thread_sync;",
    "after": "tcgen05.fence::after_thread_sync;",
    "bar": "bar.sync 0;",
}
TENSOR_START = (
    "add.u32 %r96, %r2, 4096;\n"
    + "\n".join(f"@%p0 mbarrier.init.shared.b64 [%r96+{8 * i}], 1;" for i in range(45))
    + """
fence.mbarrier_init.release.cluster;
@!%p1 bra NOALLOC; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r9], 32; NOALLOC:
bar.sync 0; tcgen05.fence::after_thread_sync; ld.shared.u32 %r10, [%r9];
"""
    + FILL
    + DESCRIPTORS
    + """fence.proxy.async.shared::cta; bar.sync 0;
add.u32 %r91, %r10, 16; mov.u32 %r90, %r10; add.u32 %r14, %r13, 16; mov.u32 %r98, %r1;
"""
)
FREE = "@!%p1 bra OUT; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 32; OUT: ret;"
_TENSOR_IDS = {"H1", "H2", "H3", "H4", "H5", "H6"}


@pytest.mark.parametrize("schedule", ["late", "eager"])
@pytest.mark.parametrize("seed", SEEDS)
def test_orders_of_tensor_memory(seed: int, schedule: str) -> None:
    rng = random.Random(seed)
    program = random_tensor_program(rng, rng.choice((8, 16, 40)))
    text = dict(TENSOR)
    for kind, names in (("mma", ("0", "1")), ("ld", ("3", "4")), ("st", ("3", "4"))):
        for tile in (0, 1):
            text[f"{kind} tile{tile}"] = TENSOR[kind].replace("{tile}", names[tile])
    for op in program.ops:
        if op.place[0] == "tile":
            op.place = f"tile{op.place[1]}", 0
    body = as_ptx(program, TENSOR_START, text, FREE)
    wanted = {(min(p), max(p)) for p in Order(program).tensor_races()}
    outcome = check(body, schedule=schedule)
    found = pairs(outcome, _TENSOR_IDS)
    assert found <= wanted
    assert bool(found) == bool(wanted)


def test_the_random_programs_are_of_both_kinds() -> None:
    """Otherwise agreement would mean little."""
    for make, races in ((random_program, Order.races), (random_tensor_program, Order.tensor_races)):
        verdicts = []
        for seed in SEEDS:
            rng = random.Random(seed)
            lengths = (15, 30, 60) if make is random_program else (8, 16, 40)
            program = make(rng, rng.choice(lengths))
            for number, op in enumerate(program.ops):
                op.line = number
            verdicts.append(bool(races(Order(program))))
        assert 12 <= sum(verdicts) <= len(verdicts) - 12


# The unit itself ----------------------------------------------------------------------------------------


class ReferenceMbarrier:
    """PTX ISA 9.7.13.15.5: a phase is complete when no arrivals and no bytes are pending."""

    def __init__(self, count: int) -> None:
        self.count = self.pending = count
        self.bytes = self.phase = 0

    def _settle(self) -> None:
        if self.pending == 0 and self.bytes == 0:
            self.phase, self.pending = self.phase + 1, self.count

    def arrive(self, count: int = 1, expect: int = 0, drop: bool = False) -> int:
        """Returns the pending count before."""
        before = self.pending
        self.bytes += expect
        self.pending -= count
        self.count -= count if drop else 0
        self._settle()
        return before

    def transaction(self, nbytes: int) -> None:
        """expect_tx, or complete_tx if negative."""
        self.bytes += nbytes
        self._settle()


def random_steps(rng: random.Random, length: int) -> tuple[int, list[str], list[int]]:
    """An initial count, instructions that each leave a number in %r50, and the numbers."""
    start = rng.choice((1, 2, 3, 7))
    unit = ReferenceMbarrier(start)
    steps, wanted = [], []
    for _ in range(length):
        # A count that drops to zero ends the object's use.
        kind = rng.choice(("arrive", "arrive_expect", "expect", "complete", "test", "drop"))
        if kind == "arrive":
            count = rng.randint(1, unit.pending) if unit.pending else 1
            if count > unit.pending:
                continue
            steps.append(f"mbarrier.arrive.shared.b64 %d9, [%r8], {count}; "
                         "mbarrier.pending_count.b64 %r50, %d9;")  # fmt: skip
            wanted.append(unit.arrive(count))
        elif kind == "arrive_expect" and unit.pending:
            nbytes = 16 * rng.randint(1, 4)
            steps.append(f"mbarrier.arrive.expect_tx.shared.b64 %d9, [%r8], {nbytes}; "
                         "mbarrier.pending_count.b64 %r50, %d9;")  # fmt: skip
            wanted.append(unit.arrive(1, nbytes))
        elif kind == "expect":
            steps.append("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r8], 32; mov.u32 %r50, 5;")
            unit.transaction(32)
            wanted.append(5)
        elif kind == "complete" and unit.bytes:
            steps.append(f"mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r8], {unit.bytes}; mov.u32 %r50, 6;")
            unit.transaction(-unit.bytes)
            wanted.append(6)
        elif kind == "drop" and unit.count > 1 and unit.pending:
            steps.append("mbarrier.arrive_drop.shared.b64 %d9, [%r8]; mbarrier.pending_count.b64 %r50, %d9;")
            wanted.append(unit.arrive(drop=True))
        elif kind == "test" and unit.phase:
            # Of the phase before, which is complete, so that nobody has to wait.
            parity = unit.phase - 1 & 1
            steps.append(f"mbarrier.test_wait.parity.shared.b64 %p6, [%r8], {parity}; selp.u32 %r50, 1, 0, %p6;")
            wanted.append(1)
    # In the end: is the phase that goes on reported as incomplete?
    steps.append(f"mbarrier.test_wait.parity.shared.b64 %p6, [%r8], {unit.phase & 1}; selp.u32 %r50, 1, 0, %p6;")
    wanted.append(0)
    return start, steps, wanted


@pytest.mark.parametrize("seed", range(40))
def test_the_mbarrier_unit_is_the_state_machine(seed: int) -> None:
    start, steps, wanted = random_steps(random.Random(seed), 60)
    stores = [f"{step} st.global.u32 [%d1+{4 * i}], %r50;" for i, step in enumerate(steps)]
    body = f"@!%p0 bra END; mbarrier.init.shared.b64 [%r8], {start};\n" + "\n".join(stores) + "\nEND: ret;"
    memory = GlobalMemory()
    source, out = memory.alloc(64), memory.alloc(4096, fill=0)
    module = parse_module(HEADER.format(target="sm_90a") + body + "\n}\n")
    params = pack_params(module.function("kernel"), [source, out])
    outcome = simulate(module, "kernel", Launch((1, 1, 1), (32, 1, 1), dynamic_smem=64), params, memory, Options())
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert memory.read(out, 4 * len(wanted)).view(np.uint32).tolist() == wanted
