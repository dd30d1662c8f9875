# SPDX-License-Identifier: Apache-2.0
"""The step that gives a ring more stages, for tiled MMAs of CuTe C++: ways of writing their number that are understood,
and what host code makes of it, which refuses the step. That ports are right is shown by the slow tests of
`tests/cute/test_cute_native_stages.py`; what they are wrong for stands in `stage_kernels`."""

from __future__ import annotations

from pathlib import Path

import pytest
from cute_native_kernels import CUTE, OBJECTS, OWN, PIPELINE, STATES, left, missing, source, taken, text_of

from porter.lang.sources import load_sources
from porter.passes.port import PortOptions, PortResult, port_sources
from porter.rules.load import load_rules
from porter.scan.library_ring import held_stages, most_stages
from porter.scan.staging import asked_of

ROOT = Path(__file__).parents[2]
LAUNCH = "kernel@ARGUMENTS@<<<1, 384, bytes>>>(*map, *map, out, n, k);"
ATTRIBUTE = "cudaFuncSetAttribute(kernel@ARGUMENTS@, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);"
HOST = """
void run(CUtensorMap* map, float* out, int n, int k) {
    @LOCAL@
    constexpr int bytes = @BYTES@;
    @ATTRIBUTE@
    @LAUNCH@
}
"""
DEFAULTS = {"HOST": HOST, "LOCAL": "", "BYTES": "sizeof(Storage)", "ATTRIBUTE": ATTRIBUTE, "LAUNCH": LAUNCH,
            "ARGUMENTS": "", "FROM": "", "TO": ""}  # fmt: skip


def written(**parts: str) -> str:
    own = {name: parts.pop(name, text) for name, text in DEFAULTS.items()}
    text = source(**parts) + own["HOST"]
    for name in ("LAUNCH", "ATTRIBUTE", "LOCAL", "BYTES", "ARGUMENTS"):
        text = text.replace(f"@{name}@", own[name])
    assert own["FROM"] in text
    return text.replace(own["FROM"], own["TO"]) if own["FROM"] else text


def ported(folder: Path, count: int, **parts: str) -> PortResult:
    path = folder / "kernel.cu"
    path.write_text(written(**parts))
    sources = load_sources(path)
    options = PortOptions(full_rate=True, native=("stages",), stages=frozenset({(sources.root, count)}))
    result = port_sources(sources, options)
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    return result


STRUCT = """\
template <class E, class LA, class LB, int Depth> struct SharedStorage {
    alignas(1024) cute::ArrayEngine<E, cute::cosize_v<LA>> a;
    alignas(1024) E b[cosize_v<LB>];
    uint64_t full[Depth], empty[Depth];
};
"""
OF_TEMPLATE = {
    "HEAD": STRUCT, "BARRIERS": "", "BYTES": "int(sizeof(SharedStorage<Element, LayoutA, LayoutB, kStages>)) + 1024",
    "FROM": "reinterpret_cast<Storage*>(shared_memory)",
    "TO": "reinterpret_cast<SharedStorage<Element, LayoutA, LayoutB, kStages>*>(shared_memory)",
}  # fmt: skip
LAYOUTS = "using LayoutA = decltype(tile_to_shape(Atom{}, Shape<_128, _64, Int<kStages>>{}));"
UNDERSTOOD = {
    "static functions": ({}, "constexpr int kStages = 6;"),
    "objects": (OBJECTS, "constexpr int kStages = 6;"),
    "functions of CuTe": (CUTE, "constexpr int kStages = 6;"),
    "helpers of PTX": (OWN, "constexpr int kStages = 6;"),
    "memory by a number": ({"BYTES": "kStages * 24576 + 1024"}, "constexpr int kStages = 6;"),
    "a pipeline": (PIPELINE, "constexpr int kStages = 6;"),
    "states that ask the pipeline": (
        {**STATES, "AHEAD": "cutlass::PipelineState<Pipeline::Stages> read, done;"}, "constexpr int kStages = 6;",
    ),
    "an enumerator": ({"STAGES": "enum : int { kStages = 3 };"}, "enum : int { kStages = 6 };"),
    "a macro": ({"STAGES": "#define STAGES 3", "N": "STAGES", **{
        k: v.replace("kStages", "STAGES") for k, v in {
            "BARRIERS": "uint64_t full[kStages], empty[kStages];",
            "BEGIN": "if (threadIdx.x == 0) { for (int i = 0; i < kStages; ++i) { Full::init(&storage.full[i], 1);"
                     " Empty::init(&storage.empty[i], 256); } }",
            "ACQUIRE": "Empty::wait(&storage.empty[stage], tile / kStages % 2 ^ 1);"
                       " Full::arrive_and_expect_tx(&storage.full[stage], 24576);",
            "WAIT": "Full::wait(&storage.full[stage], tile / kStages % 2);",
        }.items()}}, "#define STAGES 6"),
    "storage by a template": (OF_TEMPLATE, "constexpr int kStages = 6;"),
    "a layout by a shape that is made": (
        {"FROM": LAYOUTS, "TO": LAYOUTS.replace("Shape<_128, _64, Int<kStages>>{}",
                                                "make_shape(_128{}, Int<64>{}, Int<kStages>{})")},
        "constexpr int kStages = 6;",
    ),
    "a size by a variable": (
        {"LOCAL": "const size_t size = sizeof(Storage);", "BYTES": "size"}, "constexpr int kStages = 6;",
    ),
    "another size beside": ({"BYTES": "1024 + int(sizeof(Storage))"}, "constexpr int kStages = 6;"),
    "a static_assert of a layout": (
        {"HEAD": "static_assert(cosize_v<LayoutA> % 1024 == 0);"}, "constexpr int kStages = 6;",
    ),
}  # fmt: skip


@pytest.mark.spread(3)
@pytest.mark.parametrize("name", UNDERSTOOD)
def test_a_way_of_writing_is_understood(tmp_path: Path, name: str) -> None:
    parts, expected = UNDERSTOOD[name]
    result = ported(tmp_path, 6, **parts)
    assert expected in taken(result, "stages")
    assert result.plans[0].stages == 6


REFUSED = {
    "a pipeline of a literal number": (
        {**PIPELINE, "CLASS": "cutlass::PipelineTmaAsync<3>"}, "the constant that `3` stands for",
    ),
    "a pipeline of another number": (
        {**PIPELINE, "HEAD": "constexpr int kOther = 3; using Q = cutlass::PipelineTmaAsync<kOther>;"},
        "one number of stages that all mbarriers and pipelines have",
    ),
    "memory by one of two types of a name": (
        {"HEAD": "namespace other { struct Storage { char all[kStages]; }; }", "BYTES": "sizeof(other::Storage)"},
        "which `Storage` of several is meant",
    ),
    "memory by a type that holds it": (
        {"HEAD": "struct Larger { Storage s; };", "BYTES": "sizeof(Larger)"}, "grows with the stages",
    ),
    "a launch that asks for less": (
        {"LAUNCH": "kernel<<<1, 384, 75000>>>(*map, *map, out, n, k);"}, "ask for the same shared memory",
    ),
    "static shared memory": (
        {"FROM": "extern __shared__ char shared_memory[];", "TO": "__shared__ char shared_memory[sizeof(Storage)];"},
        "in dynamic shared memory",
    ),
    "no host code": ({"HOST": ""}, "who launches it"),
}  # fmt: skip


@pytest.mark.spread(3)
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_known_refuses_the_step(tmp_path: Path, name: str) -> None:
    parts, expected = REFUSED[name]
    result = ported(tmp_path, 6, **parts)
    assert len(missing(result)) == 1
    assert "kStages = 6" not in left(result, expected)


def test_two_kernels_are_not_one(tmp_path: Path) -> None:
    begin = source().index("__global__")
    result = ported(tmp_path, 6, HOST=HOST + source()[begin:].replace(" kernel(", " second("))
    assert "that the file has one kernel" in missing(result)[0]


def test_no_more_than_there_are_is_no_step(tmp_path: Path) -> None:
    assert "room for more than 3 stages" in missing(ported(tmp_path, 3))[0]


def test_without_a_number_nobody_changes_it(tmp_path: Path) -> None:
    result = ported(tmp_path, 0)
    assert missing(result) == []
    assert "constexpr int kStages = 3;" in text_of(result)


# --- What shared memory holds

SIZES = {
    "a structure": ({}, 3, 3 * 24576 + 1024),
    "objects": (OBJECTS, 3, 3 * 24576 + 1024),
    "a pipeline": (PIPELINE, 3, 3 * 24576 + 1024),
    "storage by a template": (OF_TEMPLATE, 3, 3 * 24576 + 2048),
    "layouts by shapes": (
        {"FROM": LAYOUTS, "TO": LAYOUTS.replace("Shape<_128, _64, Int<kStages>>{}",
                                                "make_shape(_128{}, Int<64>{}, Int<kStages + 1>{})")},
        3, 3 * 24576 + 16384 + 1024,
    ),
    "a layout that is not read": (
        {"FROM": LAYOUTS, "TO": "using LayoutA = decltype(tile_to_shape(Atom{}, my_shape<kStages>{}));"}, 3, None,
    ),
    "one number too many": ({**PIPELINE, "CLASS": "cutlass::PipelineTmaAsync<3>"}, "the constant", 3 * 24576 + 1024),
}  # fmt: skip


@pytest.mark.parametrize("name", SIZES)
def test_a_launch_asks_for_the_size_of_types_of_the_library(tmp_path: Path, name: str) -> None:
    parts, stages, nbytes = SIZES[name]
    path = tmp_path / "kernel.cu"
    path.write_text(written(**parts))
    rules = load_rules(())
    held = held_stages(path, "kernel", rules)
    assert held == stages or (isinstance(stages, str) and stages in str(held))
    asked = asked_of(path, "kernel", rules)
    assert asked is not None
    assert asked.dynamic_smem == nbytes


@pytest.mark.parametrize("name", ["cute_gemm_ws", "cute_gemm_persistent"])
def test_launches_of_the_corpus_are_numbers(name: str) -> None:
    """By a class in a template, and by names of types in a namespace."""
    path, rules = ROOT / f"corpus/{name}/{name}.cu", load_rules(())
    asked = asked_of(path, name, rules)
    assert asked is not None
    assert asked.dynamic_smem == 3 * 32768 + 1024
    assert held_stages(path, name, rules) == 3


def test_as_many_stages_as_there_is_room_for() -> None:
    assert most_stages(3, lambda count: count * 32768 + 1024) == 7
    assert most_stages(3, lambda count: count * 30000 + (30000 if count > 4 else 0)) == 6
    assert most_stages(3, lambda count: 3 * 32768) == 3
    assert most_stages(3, lambda count: count * 75000) == 3
