# SPDX-License-Identifier: Apache-2.0
"""Pipelines as kernels' texts say them: mbarriers with counts and arrivals, rings, copies, roles."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from corpus_kernels import CORPUS

from porter.model.pipeline.facts import Barrier, KernelPipeline, Pipeline
from porter.model.pipeline.frames import place_of, tidy
from porter.model.pipeline.rings import split_index, turn_of
from porter.rules.load import load_rules
from porter.scan.pipeline import pipelines
from porter.verify.case import load_case
from porter.verify.problem import bind

RULES = load_rules()

INIT = 'asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(to_shared(bar)), "r"(count));'
ARRIVE = 'asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(to_shared(bar)) : "memory");'
EXPECT = 'asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(to_shared(bar)), "r"(n));'
WAIT = """asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra L; }"
                 ::"r"(to_shared(bar)), "r"(parity));"""
LOAD = """asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4}], [%2];"
                 ::"r"(to_shared(dst)), "l"(map), "r"(to_shared(bar)), "r"(x), "r"(y) : "memory");"""

HELPERS = f"""
#include <cstdint>
__device__ uint32_t to_shared(const void* p) {{ return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }}
__device__ void init(uint64_t* bar, uint32_t count) {{ {INIT} }}
__device__ void arrive(uint64_t* bar) {{ {ARRIVE} }}
__device__ void expect(uint64_t* bar, uint32_t n) {{ {EXPECT} }}
__device__ void wait(uint64_t* bar, uint32_t parity) {{ {WAIT} }}
__device__ void load(void* dst, const void* map, uint64_t* bar, int x, int y) {{ {LOAD} }}
__device__ bool elect() {{
    uint32_t e;
    asm volatile("{{ .reg .pred p; elect.sync _|p, -1; selp.u32 %0, 1, 0, p; }}" : "=r"(e));
    return e;
}}
"""


def of(folder: Path, body: str, above: str = "", threads: int = 256, helpers: str = HELPERS) -> Pipeline:
    source = folder / "kernel.cu"
    source.write_text(
        f"{helpers}{above}\n__global__ void __launch_bounds__({threads}) k(const void* map, int steps) {{\n{body}\n}}\n"
    )
    (found,) = pipelines(source, RULES)
    return found.pipeline


def barriers(pipeline: Pipeline) -> dict[str, Barrier]:
    return {b.name: b for b in pipeline.barriers}


SPLIT = """
    if (threadIdx.x < 32) {{
        if (elect()) for (int i = 0; i < steps; i++) {{
            wait({empty}, {empty_phase}); expect({full}, 4096); load(tile[{index}], map, {full}, i * 64, 0); {advance}
        }}
    }} else if (threadIdx.x >= 128) {{
        for (int i = 0; i < steps; i++) {{ wait({full}, {phase}); arrive({empty}); {advance} }}
    }}
"""


def split(**words: str) -> str:
    return SPLIT.format(**words)


PLAIN = """
    __shared__ char tile[4][4096];
    __shared__ uint64_t full[4], empty[4];
    if (threadIdx.x == 0) for (int i = 0; i < 4; i++) { init(&full[i], 1); init(&empty[i], 128); }
    __syncthreads();
    int stage = 0, phase = 0;
"""
USUAL = {
    "full": "&full[stage]", "empty": "&empty[stage]", "phase": "phase", "empty_phase": "phase ^ 1", "index": "stage",
    "advance": "if (++stage == 4) { stage = 0; phase ^= 1; }",
}  # fmt: skip

FETCHES = "expect(&full[stage], 4096); load(tile[stage], map, &full[stage], i * 64, 0);"

CLASS = """
struct Barrier {
    uint64_t raw;
    __device__ void start(uint32_t n) { init(&raw, n); }
    __device__ void come() { arrive(&raw); }
    __device__ void await(uint32_t p) { wait(&raw, p); }
    __device__ void bytes(uint32_t n) { expect(&this->raw, n); }
};
"""

VARIANTS = {
    "arrays": ("", PLAIN + split(**USUAL)),
    "modulo": ("", PLAIN + split(**USUAL | {
        "full": "&full[i % 4]", "empty": "&empty[i % 4]", "phase": "i / 4 & 1", "empty_phase": "(i / 4 & 1) ^ 1",
        "index": "i % 4", "advance": ""})),
    "alias": ("", PLAIN.replace("int stage = 0, phase = 0;", "") + split(**USUAL | {
        "full": "&full[s]", "empty": "&empty[s]", "phase": "turn & 1", "empty_phase": "(turn & 1) ^ 1", "index": "s",
        "advance": ""}).replace("i++) {", "i++) { const int s = i % 4; const int turn = i / 4;")),
    "by-reference": ("__device__ void next(int& at, int& turn) { if (++at == 4) { at = 0; turn ^= 1; } }",
                     PLAIN + split(**USUAL | {"advance": "next(stage, phase);"})),
    "class-ring": ("struct Ring { int at = 0; int lap = 0; "
        "__device__ void operator++() { if (++at == 4) { at = 0; lap ^= 1; } } };",
                   PLAIN + "Ring ring;" + split(**USUAL | {
                       "full": "&full[ring.at]", "empty": "&empty[ring.at]", "phase": "ring.lap",
                       "empty_phase": "ring.lap ^ 1", "index": "ring.at", "advance": "++ring;"})),
    "struct": ("struct S { char tile[4][4096]; uint64_t full[4]; uint64_t empty[4]; };", """
    extern __shared__ char raw[];
    S& s = *reinterpret_cast<S*>(raw);
    if (threadIdx.x == 0) for (int i = 0; i < 4; i++) { init(&s.full[i], 1); init(&s.empty[i], 128); }
    __syncthreads();
    int stage = 0, phase = 0;
    """ + split(**USUAL | {"full": "&s.full[stage]", "empty": "&s.empty[stage]"}).replace("load(tile", "load(s.tile")),
    "macro": (
        '#define INIT(b, n) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(to_shared(&(b))), "r"(n))\n'
        '#define ARRIVE(b) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(to_shared(&(b))))\n',
        PLAIN.replace("init(&full[i], 1); init(&empty[i], 128)", "INIT(full[i], 1); INIT(empty[i], 128)")
        + split(**USUAL).replace("arrive(&empty[stage])", "ARRIVE(empty[stage])"),
    ),
    "class": (CLASS, PLAIN.replace("uint64_t full[4], empty[4]", "Barrier full[4], empty[4]")
              .replace("init(&full[i], 1); init(&empty[i], 128)", "full[i].start(1); empty[i].start(128)") + """
    if (threadIdx.x < 32) {
        if (elect()) for (int i = 0; i < steps; i++) {
            empty[stage].await(phase ^ 1); full[stage].bytes(4096); load(tile[stage], map, &full[stage].raw, i * 64, 0);
            if (++stage == 4) { stage = 0; phase ^= 1; }
        }
    } else if (threadIdx.x >= 128) {
        for (int i = 0; i < steps; i++) {
            full[stage].await(phase); empty[stage].come(); if (++stage == 4) { stage = 0; phase ^= 1; }
        }
    }
    """),
    "early-exit": ("", PLAIN + """
    if (threadIdx.x >= 32 && threadIdx.x < 128) return;
    if (threadIdx.x == 0) {
        for (int i = 0; i < steps; i++) {
            wait(&empty[stage], phase ^ 1); expect(&full[stage], 4096); load(tile[stage], map, &full[stage], i * 64, 0);
            if (++stage == 4) { stage = 0; phase ^= 1; }
        }
        return;
    }
    if (threadIdx.x < 32) return;
    for (int i = 0; i < steps; i++) {
        wait(&full[stage], phase); arrive(&empty[stage]); if (++stage == 4) { stage = 0; phase ^= 1; }
    }
    """),
    "lambda": ("", PLAIN + """
    auto fetch = [&](int i) { """ + FETCHES + """ };
    """ + split(**USUAL).replace(FETCHES, "fetch(i);")),
    "addresses": ("", PLAIN.replace("uint64_t full[4], empty[4];", "uint64_t bars[8];").replace(
        "init(&full[i], 1); init(&empty[i], 128)", "init(bars + i, 1); init(bars + 4 + i, 128)") + split(**USUAL)),
    "sums": ("", PLAIN.replace("init(&full[i], 1); init(&empty[i], 128)", "init(full + i, 1); init(empty + i, 128)")
             + split(**USUAL | {"full": "full + stage", "empty": "empty + stage"})),
    "sum-of-a-call": ("__device__ uint64_t* at(uint64_t* bars, int i) { return bars + i; }", PLAIN
                      + split(**USUAL | {"full": "at(full, stage)", "empty": "(at(empty, stage))"})),
    "sum-in-a-variable": ("", PLAIN.replace("init(&empty[i], 128)", "uint64_t* const e = empty + i; init(e, 128)")
                          + split(**USUAL | {"full": "full + stage"})),
    "sum-of-members": ("""
    struct At { int at = 0; int lap = 0; __device__ void operator++() { if (++at == 4) { at = 0; lap ^= 1; } } };
    struct Ring { uint64_t full[4], empty[4];
        __device__ void begin(int many) { for (int i = 0; i < 4; i++) { init(full + i, 1); init(empty + i, many); } }
        __device__ uint64_t* loaded(const At& a) { return full + a.at; }
        __device__ uint64_t* free(const At& a) { return empty + a.at; } };
    """, """
    __shared__ Ring ring; __shared__ char tile[4][4096]; At a;
    if (threadIdx.x == 0) ring.begin(128);
    __syncthreads();
    """ + split(**USUAL | {"full": "ring.loaded(a)", "empty": "ring.free(a)", "phase": "a.lap", "index": "a.at",
                           "empty_phase": "a.lap ^ 1", "advance": "++a;"})),
    "cluster": ("""__device__ void arrive_at(uint64_t* bar, uint32_t cta) {
    asm volatile("{ .reg .b32 r; mapa.shared::cluster.u32 r, %0, %1;"
                 " mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r]; }"
                 ::"r"(to_shared(bar)), "r"(cta)); }""",
                PLAIN + split(**USUAL).replace("arrive(&empty[stage])", "arrive_at(&empty[stage], 1)")),
}  # fmt: skip


@pytest.mark.parametrize("name", [n for n in VARIANTS if n != "addresses"])
def test_a_ring_is_read_however_it_is_written(tmp_path, name):
    above, body = VARIANTS[name]
    found = of(tmp_path, body, above)
    known = {n.split(".")[-1]: b for n, b in barriers(found).items()}
    full, empty = known["full[]"], known["empty[]"]
    assert ([c.value for c in full.counts], full.arriving, full.agrees) == ([1], 1, True)
    assert ([c.value for c in empty.counts], empty.arriving, empty.agrees) == ([128], 128, True)
    assert (full.extent.value, empty.extent.value) == (4, 4)
    assert [a.remote for a in empty.arrivals] == [name == "cluster"]
    assert [a.bytes.value for a in full.arrivals if a.bytes] == [4096]
    assert {w.threads for w in full.waits} == {128}
    assert all(w.by_parity for w in (*full.waits, *empty.waits))
    assert [(r.stages.value, bool(r.phase)) for r in found.rings] == [(4, True)] * 2
    assert found.role("producer").warps == (0,)
    assert [c.coords for c in found.copies] == [("i * 64", "0")]
    assert not found.unknown


def test_parts_of_an_array_by_pointers_are_two_rings(tmp_path):
    above, body = VARIANTS["addresses"]
    body = body.replace("uint64_t bars[8];", "uint64_t bars[8]; uint64_t *full = bars, *empty = bars + 4;")
    for before, after in (("bars + i", "full + i"), ("bars + 4 + i", "&empty[i]"),
                          ("&full[stage]", "bars + stage"), ("&empty[stage]", "bars + 4 + stage")):  # fmt: skip
        assert before in body
        body = body.replace(before, after)
    found = barriers(of(tmp_path, body, above))
    assert {n: ([c.value for c in b.counts], b.agrees) for n, b in found.items()} == {
        "bars[]": ([1], True), "bars + 4[]": ([128], True)}  # fmt: skip


def test_a_place_that_is_not_read_is_unknown_and_named(tmp_path):
    """Barriers told apart by an offset of addresses have no name that this model knows."""
    above, body = VARIANTS["addresses"]
    body = body.replace("&full[stage]", "(uint64_t*)(to_shared(bars) + stage * 8)")
    body = body.replace("&empty[stage]", "(uint64_t*)(to_shared(bars) + 32 + stage * 8)")
    found = of(tmp_path, body, above)
    assert all(b.agrees is None or b.agrees for b in found.barriers)
    assert any("begins" in u.what or "comes to" in u.what or "index" in u.what for u in found.unknown)


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (("init(&empty[i], 128)", "init(&empty[i], 129)"), "empty[]"),
        (("threadIdx.x >= 128", "threadIdx.x >= 160"), "empty[]"),
        (("init(&full[i], 1)", "init(&full[i], 2)"), "full[]"),
        (("if (elect()) for", "for"), "full[]"),
    ],
)
def test_counts_that_nobody_meets_do_not_agree(tmp_path, change, wrong):
    body = (PLAIN + split(**USUAL)).replace(*change)
    found = barriers(of(tmp_path, body))
    assert {n: b.agrees for n, b in found.items()} == {"full[]": wrong != "full[]", "empty[]": wrong != "empty[]"}


def test_parts_of_one_array_have_no_extent_of_their_own(tmp_path):
    parts = "uint64_t bars[8]; const uint32_t full = to_shared(bars), empty = full + 8 * 4;"
    body = (PLAIN + split(**USUAL)).replace("uint64_t full[4], empty[4];", parts)
    for name in ("full", "empty"):
        body = body.replace(f"init(&{name}[i],", f"start({name} + 8 * i,").replace(
            f"&{name}[stage]", f"{name} + 8 * stage"
        )
    above = "".join(
        f"__device__ void {name}(uint32_t bar{more}) {{ {text.replace('to_shared(bar)', 'bar')} }}\n"
        for name, more, text in (
            ("start", ", uint32_t count", INIT), ("come", "", ARRIVE), ("bytes", ", uint32_t n", EXPECT),
            ("await", ", uint32_t parity", WAIT), ("fetch", ", void* dst, const void* map, int x, int y", LOAD),
        )
    )  # fmt: skip
    body = body.replace(
        "load(tile[stage], map, full + 8 * stage, i * 64, 0)", "fetch(full + 8 * stage, tile[stage], map, i * 64, 0)"
    )
    for before, after in (("wait(", "await("), ("expect(", "bytes("), ("arrive(", "come(")):
        body = body.replace(before, after)
    found = barriers(of(tmp_path, body, above))
    assert set(found) == {"bars", "bars + 8 * 4"}
    assert [(b.extent, b.agrees) for b in found.values()] == [(None, True), (None, True)]


def test_a_commit_of_mmas_arrives_once_for_the_thread_that_issues_it(tmp_path):
    commit = """__device__ void commit(uint64_t* bar) {
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(to_shared(bar)));
}"""
    body = (PLAIN + split(**USUAL)).replace("init(&empty[i], 128)", "init(&empty[i], 1)")
    body = body.replace("arrive(&empty[stage]);", "if (threadIdx.x == 128) commit(&empty[stage]);")
    assert barriers(of(tmp_path, body, commit))["empty[]"].agrees is True


def test_macros_of_calls_are_not_read_and_said(tmp_path):
    body = (PLAIN + split(**USUAL)).replace("arrive(&empty[stage])", "DONE(stage)")
    found = of(tmp_path, body, "#define DONE(s) arrive(&empty[s])")
    assert barriers(found)["empty[]"].agrees is None
    assert any("what is done with mbarriers" in u.what for u in found.unknown)


def test_two_rings_go_on_by_themselves(tmp_path):
    body = """
    __shared__ char a[2][4096], b[3][4096];
    __shared__ uint64_t a_full[2], b_full[3];
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) init(&a_full[i], 1);
        for (int i = 0; i < 3; i++) init(&b_full[i], 1);
    }
    __syncthreads();
    int sa = 0, pa = 0, sb = 0; uint32_t bits = 0;
    for (int i = 0; i < steps; i++) {
        if (threadIdx.x == 0) { expect(&a_full[sa], 4096); load(a[sa], map, &a_full[sa], i, 0); }
        wait(&a_full[sa], pa);
        sa ^= 1; if (sa == 0) pa ^= 1;
        if (threadIdx.x == 0) { expect(&b_full[sb], 4096); load(b[sb], map, &b_full[sb], i, 0); }
        wait(&b_full[sb], (bits >> sb) & 1);
        bits ^= 1u << sb; sb = (sb + 1) % 3;
    }
    """
    found = of(tmp_path, body)
    assert {r.barrier: r.stages.value for r in found.rings} == {"a_full[]": 2, "b_full[]": 3}
    assert all(r.phase for r in found.rings)
    assert {c.barrier for c in found.copies} == {"a_full[]", "b_full[]"}


def test_conditions_over_data_do_not_say_who_comes(tmp_path):
    body = (PLAIN + split(**USUAL)).replace("arrive(&empty[stage]);", "if (steps > 3) arrive(&empty[stage]);")
    assert barriers(of(tmp_path, body))["empty[]"].arriving == 128


def test_a_condition_over_threads_that_is_not_known_is_said(tmp_path):
    body = (PLAIN + split(**USUAL)).replace(
        "arrive(&empty[stage]);", "if (clock() + threadIdx.x > 3) arrive(&empty[stage]);"
    )
    found = of(tmp_path, body)
    assert barriers(found)["empty[]"].agrees is None
    assert any("clock()" in u.what for u in found.unknown)


def test_a_block_of_unknown_size_leaves_counts_open(tmp_path):
    source = tmp_path / "kernel.cu"
    source.write_text(f"{HELPERS}\n__global__ void k(const void* map, int steps) {{ {PLAIN} {split(**USUAL)} }}\n")
    (found,) = pipelines(source, RULES)
    assert found.pipeline.threads is None
    assert {b.agrees for b in found.pipeline.barriers} == {None}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("s.full[stage]", ("s.full[]", "stage")),
        ("full[s].raw", ("full[]", "s")),
        ("ring.full(at.slot)", ("ring.full()", "at.slot")),
        ("bars + 8 * i", ("bars", "i")),
        ("(bars + 8 * DEPTH) + 8 * cur.at", ("bars + 8 * DEPTH", "cur.at")),
        ("done", ("done", "")),
        ("full[(i + 1) % N]", ("full[]", "(i + 1) % N")),
    ],
)
def test_names_of_mbarriers_have_no_index(text, found):
    assert split_index(text) == found


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        ("if (++s == N) s = 0;", "N"),
        ("if (++s == N) { p ^= 1; s = 0; }", "N"),
        ("if (s == N) s = 0;", "N"),
        ("s = (s + 1) % N;", "N"),
        ("s = s + 1 == N ? 0 : s + 1;", "N"),
        ("s = (s == N - 1) ? 0 : s + 1;", "N"),
        ("s = s + 1 < N ? s + 1 : 0;", "N"),
        ("s ^= 1;", "2"),
        ("s = 1 - s;", "2"),
        ("for (int s = 0; s < N; ++s) {}", "N"),
        ("s += 1;", None),
        ("t = (t + 1) % N;", None),
    ],
)
def test_how_an_index_goes_on(text, stages):
    turn = turn_of("s", [(text, "s")])
    assert (turn.stages if turn else None) == stages


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(&(s).full[(i)])", "s.full[i]"),
        ("(&s)->full", "s.full"),
        ("*(&x)", "x"),
        ("reinterpret_cast<uint64_t>(&map)", "map"),
        ("(uint32_t)sizeof(T)", "sizeof(T)"),
    ],
)
def test_objects_of_addresses(text, found):
    assert place_of(text) == found


@pytest.mark.parametrize(
    ("name", "size"), [("bool", 1), ("unsigned char", 1), ("Word", 4), ("__half", 2), ("long long", 8), ("float4", 16)]
)
def test_bytes_that_are_expected_are_counted_in_elements_of_a_type(tmp_path, name, size):
    body = f"__shared__ uint64_t full; if (threadIdx.x == 0) {{ init(&full, 1); expect(&full, 64 * sizeof({name})); }}"
    (arrival,) = barriers(of(tmp_path, body, "using Word = unsigned;"))["full"].arrivals
    assert arrival.bytes is not None
    assert arrival.bytes.value == 64 * size


def test_casts_keep_their_parentheses():
    assert tidy("((uint32_t)sizeof(T))") == "(uint32_t)sizeof(T)"


# --- The corpus -----------------------------------------------------------------------------------------

RAW = sorted(p.parent for p in CORPUS.glob("*/case.yaml") if p.parent.name.startswith(("gemm_", "attention_")))
OPEN = {"gemm_grouped": 2, "gemm_struct": 2}
"""mbarriers whose counts are not held against arrivals: behind a loop over data, and in an object's reference."""


@functools.cache
def of_corpus(folder: Path) -> tuple[KernelPipeline, ...]:
    return tuple(pipelines(folder / f"{folder.name}.cu", RULES))


@pytest.mark.spread(3)
@pytest.mark.parametrize("folder", RAW, ids=lambda p: p.name)
def test_the_corpus_meets_its_own_counts(folder):
    (found,) = of_corpus(folder)
    agrees = [b.agrees for b in found.pipeline.barriers]
    assert False not in agrees
    assert agrees.count(None) == OPEN.get(folder.name, 0)
    assert found.pipeline.role("mma") is not None
    assert all(e == c for e, c in found.filled.values() if None not in (e, c))


@pytest.mark.parametrize("folder", RAW, ids=lambda p: p.name)
def test_launches_are_those_of_the_cases(folder):
    (found,) = of_corpus(folder)
    problem = bind(load_case(folder / "case.yaml"))
    launch = found.launch
    assert launch is not None
    assert tuple(map(int, launch.block)) == problem.launch.block
    if launch.cluster is not None:
        assert tuple(map(int, launch.cluster)) == problem.launch.cluster
    boxes = {tuple(m.map.box) for m in problem.tensor_maps.values()}
    read = {tuple(int(x) for x in m.box) for m in launch.maps if m.box and all(x.isdigit() for x in m.box)}
    assert read <= boxes
