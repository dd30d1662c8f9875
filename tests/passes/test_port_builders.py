# SPDX-License-Identifier: Apache-2.0
"""CUTLASS's collective builders: asked for Blackwell, mapped where a template chooses, or refused by name."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from porter.diagnostics import Code, ExitCode
from porter.lang.sources import load_sources
from porter.passes.build_files import build_files_beside
from porter.passes.builders import HEADER
from porter.passes.port import PortOptions, PortResult, port_sources
from porter.rules.load import load_rules

HEAD = """#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/epilogue/collective/collective_builder.hpp"
using namespace cute;
"""
CALL = """using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    {arch}, {operators}, {tile}, {cluster}, cutlass::epilogue::collective::EpilogueTileAuto, float,
    float, cutlass::half_t, cutlass::layout::RowMajor, 8, cutlass::half_t, cutlass::layout::RowMajor, 8,
    {epilogue}{fusion}>::CollectiveOp;
using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
    {arch}, {operators}, {a}, cutlass::layout::RowMajor, 8, {b}, cutlass::layout::ColumnMajor, 8,
    float, {tile}, {cluster},
    cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
    {schedule}>::CollectiveOp;
"""
GIVEN = {
    "arch": "cutlass::arch::Sm90",
    "operators": "cutlass::arch::OpClassTensorOp",
    "tile": "Shape<_128, _128, _64>",
    "cluster": "Shape<_2, _1, _1>",
    "schedule": "cutlass::gemm::KernelTmaWarpSpecializedPingpong",
    "epilogue": "cutlass::epilogue::TmaWarpSpecialized",
    "fusion": "",
    "a": "cutlass::half_t",
    "b": "cutlass::half_t",
}
ONE, TWO = "cutlass::gemm::KernelTmaWarpSpecialized1SmSm100", "cutlass::gemm::KernelTmaWarpSpecialized2SmSm100"
EPILOGUE_ONE, EPILOGUE_TWO = "cutlass::epilogue::TmaWarpSpecialized1Sm", "cutlass::epilogue::TmaWarpSpecialized2Sm"


def call(**given: str) -> str:
    return CALL.format(**{**GIVEN, **given})


def port(tmp_path: Path, text: str, head: str = HEAD) -> PortResult:
    path = tmp_path / "gemm.cu"
    path.write_text(head + text)
    return port_sources(load_sources(path))


def text_of(result: PortResult) -> str:
    said = [d for d in result.diagnostics if d.code.id.startswith("PT2") and d.code is not Code.CHIP_CHECK_ADMITS]
    assert not said, result.diagnostics
    return re.sub(r"\s+", " ", next(t for p, t in result.files.items() if p.endswith("gemm.cu")).decode())


def refusals(result: PortResult) -> list[str]:
    assert result.exit_code is ExitCode.UNPORTED
    assert not result.changed
    return [d.message for d in result.diagnostics if d.code in (Code.BUILDER_FORM, Code.LIBRARY_CONSTRUCT)]


@pytest.mark.parametrize(
    ("schedule", "epilogue", "mainloop_becomes", "epilogue_becomes"),
    [
        ("KernelTma", "NoSmemWarpSpecialized", "KernelTmaWarpSpecialized", "NoSmemWarpSpecialized"),
        ("KernelTmaWarpSpecialized", "TmaWarpSpecialized", "KernelTmaWarpSpecialized", "TmaWarpSpecialized"),
        ("KernelTmaWarpSpecializedPingpong", "TmaWarpSpecialized", "KernelTmaWarpSpecialized", "TmaWarpSpecialized"),
        (
            "KernelTmaWarpSpecializedCooperative",
            "TmaWarpSpecializedCooperative",
            "KernelTmaWarpSpecialized",
            "TmaWarpSpecialized",
        ),
        (
            "KernelTmaWarpSpecializedPingpongFP8FastAccum",
            "collective::EpilogueScheduleAuto",
            "KernelTmaWarpSpecialized",
            "NoSmemWarpSpecialized",
        ),
        ("collective::KernelScheduleAuto", "TmaWarpSpecialized", "KernelTmaWarpSpecialized", "TmaWarpSpecialized"),
        (
            "KernelPtrArrayTmaWarpSpecializedCooperative",
            "PtrArrayTmaWarpSpecializedCooperative",
            "KernelPtrArrayTmaWarpSpecialized",
            "PtrArrayTmaWarpSpecialized",
        ),
        (
            "KernelPtrArrayTmaWarpSpecializedPingpongFP8FastAccum",
            "PtrArrayNoSmemWarpSpecialized",
            "KernelPtrArrayTmaWarpSpecialized",
            "PtrArrayNoSmemWarpSpecialized",
        ),
    ],
)
@pytest.mark.parametrize(("rows", "sms"), [(64, 1), (128, 1), (256, 2)])
def test_schedules_are_written_out(
    tmp_path: Path, schedule: str, epilogue: str, mainloop_becomes: str, epilogue_becomes: str, rows: int, sms: int
) -> None:
    given = {"schedule": f"cutlass::gemm::{schedule}", "epilogue": f"cutlass::epilogue::{epilogue}"}
    result = port(tmp_path, call(**given, tile=f"Shape<_{rows}, _128, _64>"))
    text = text_of(result)
    assert f"cutlass::gemm::{mainloop_becomes}{sms}SmSm100>" in text
    assert f"cutlass::epilogue::{epilogue_becomes}{sms}Sm>" in text
    assert "Sm90" not in text
    assert f"Shape<_{rows}, _128, _64>" in text
    assert not any(p.endswith(HEADER) for p in result.files)


@pytest.mark.parametrize(
    "names",
    [
        "using ArchTag = cutlass::arch::Sm90;",
        "typedef cutlass::arch::Sm90 ArchTag;",
        "namespace arch = cutlass::arch; using ArchTag = arch::Sm90;",
        "using namespace cutlass; using ArchTag = arch::Sm90;",
        "using namespace cutlass::arch; using ArchTag = Sm90;",
        "using cutlass::arch::Sm90; using ArchTag = Sm90;",
    ],
)
def test_the_tag_of_the_architecture_is_reached_through_names(tmp_path: Path, names: str) -> None:
    text = text_of(port(tmp_path, names + "\n" + call(arch="ArchTag")))
    assert "Sm100 ArchTag;" in text or "ArchTag = cutlass::arch::Sm100;" in text
    assert f"{ONE}>" in text


def test_names_of_schedule_and_tile_are_changed_where_they_are_given(tmp_path: Path) -> None:
    names = """using Tile = Shape<_256, _128, _64>;
using Cluster = Shape<_1, _2, _1>;
using Schedule = cutlass::gemm::KernelTmaWarpSpecializedCooperative;
using EpilogueSchedule = cutlass::epilogue::TmaWarpSpecializedCooperative;
"""
    given = {"tile": "Tile", "cluster": "Cluster", "schedule": "Schedule", "epilogue": "EpilogueSchedule"}
    result = port(tmp_path, names + call(**given))
    text = text_of(result)
    # a cluster of one CTA in M has no pairs: half of the tile
    assert "using Tile = Shape<_128, _128, _64>;" in text
    assert f"using Schedule = {ONE};" in text
    assert f"using EpilogueSchedule = {EPILOGUE_ONE};" in text
    assert not any(p.endswith(HEADER) for p in result.files)


def test_a_tile_of_256_rows_that_other_code_counts_with_is_halved_for_all(tmp_path: Path) -> None:
    names = "using Tile = Shape<_256, _128, _64>;\n"
    more = "int tiles(int m) { return (m + size<0>(Tile{}) - 1) / size<0>(Tile{}); }\n"
    text = text_of(port(tmp_path, names + call(tile="Tile") + more))
    assert "using Tile = Shape<_128, _128, _64>;" in text
    assert ONE in text
    text = text_of(port(tmp_path, names + call(tile="Tile")))
    assert "using Tile = Shape<_256, _128, _64>;" in text
    assert TWO in text
    assert EPILOGUE_TWO in text


def test_builders_of_one_tile_agree_on_pairs(tmp_path: Path) -> None:
    both = call(tile="Tile").replace("Shape<_2, _1, _1>", "Shape<_1, _1, _1>", 1)
    text = text_of(port(tmp_path, "using Tile = Shape<_256, _128, _64>;\n" + both))
    assert ONE in text
    assert EPILOGUE_ONE in text
    assert "using Tile = Shape<_128, _128, _64>;" in text


TEMPLATE = "template <class Tile, class Cluster, class Schedule, class Plan> struct Gemm {{ {} }};\n"
OPEN = {"tile": "Tile", "cluster": "Cluster", "schedule": "Schedule", "epilogue": "Plan"}


def test_what_a_template_chooses_is_mapped_by_the_compiler(tmp_path: Path) -> None:
    uses = (
        "using Small = Gemm<Shape<_64, _128, _64>, Shape<_1, _1, _1>, "
        "cutlass::gemm::KernelTmaWarpSpecializedPingpong, cutlass::epilogue::TmaWarpSpecialized>;\n"
    )
    result = port(tmp_path, TEMPLATE.format(call(**OPEN)) + uses)
    text = text_of(result)
    assert "porter::mainloop_schedule<Schedule, Tile, Cluster>>::CollectiveOp" in text
    assert "porter::epilogue_schedule<Plan, Tile, Cluster>>::CollectiveOp" in text
    assert text.count("porter::mma_tile<Tile, Cluster>") == 2
    # the choice keeps its name
    assert "cutlass::gemm::KernelTmaWarpSpecializedPingpong" in text
    assert f'#include "{HEADER}"' in text
    header = next(t for p, t in result.files.items() if p.endswith(HEADER)).decode()
    assert "struct Sm100Schedule<cutlass::gemm::KernelTmaWarpSpecializedPingpong>" in header


@pytest.mark.parametrize(
    "other",
    [
        "static constexpr int kRows = size<0>(Tile{});",
        "using Own = house::Visitor<0, Tile>;",
        "using Same = Tile; static constexpr int kRows = size<0>(Same{});",
    ],
)
def test_a_tile_that_other_code_counts_with_has_to_be_one_of_a_cta(tmp_path: Path, other: str) -> None:
    text = text_of(port(tmp_path, TEMPLATE.format(call(**OPEN) + other)))
    assert text.count("porter::same_tile<Tile>") == 2


@pytest.mark.parametrize(
    "chosen",
    [
        "cute::conditional_t<Fast, cutlass::gemm::KernelTmaWarpSpecializedPingpongFP8FastAccum, "
        "cutlass::gemm::KernelTmaWarpSpecializedPingpong>",
        "typename std::conditional<Fast, cutlass::gemm::KernelTmaWarpSpecializedCooperative, "
        "cutlass::gemm::KernelTmaWarpSpecializedPingpong>::type",
    ],
)
def test_a_choice_between_schedules_stays_one(tmp_path: Path, chosen: str) -> None:
    text = text_of(
        port(tmp_path, f"template <bool Fast> struct Gemm {{ using S = {chosen};\n{call(schedule='S')} }};\n")
    )
    assert "porter::mainloop_schedule<S, Shape<_128, _128, _64>, Shape<_2, _1, _1>>>" in text
    assert chosen.split("<")[0] in text


def test_comparisons_with_a_schedule_stay_what_they_are(tmp_path: Path) -> None:
    names = """using Schedule = cutlass::gemm::KernelTmaWarpSpecializedCooperative;
static_assert(!cute::is_same_v<Schedule, cutlass::gemm::KernelTmaWarpSpecializedPingpong>);
"""
    text = text_of(port(tmp_path, names + call(schedule="Schedule")))
    assert names.replace("\n", " ").strip() in text
    assert f"{ONE}>::CollectiveOp" in text


def test_a_tag_that_is_a_parameter_is_mapped(tmp_path: Path) -> None:
    body = call(arch="Arch").replace("\n", " ")
    text = text_of(
        port(tmp_path, f"template <class Arch> struct Gemm {{ {body} }};\nusing Hopper = Gemm<cutlass::arch::Sm90>;\n")
    )
    assert text.count("porter::sm100_arch<Arch>, cutlass::arch::OpClassTensorOp") == 2
    # other architectures keep what they ask for
    assert "porter::mainloop_schedule<cutlass::gemm::KernelTmaWarpSpecializedPingpong, " in text
    assert text.count("Shape<_2, _1, _1>, Arch>") == 2


@pytest.mark.parametrize("arch", ["Traits::Arch", "typename Traits::Arch", "FromAHeader", "house::Arch"])
def test_a_tag_that_is_not_in_sight_is_mapped(tmp_path: Path, arch: str) -> None:
    assert text_of(port(tmp_path, call(arch=arch))).count(f"porter::sm100_arch<{arch}>, ") == 2


def test_builders_in_macros_are_found(tmp_path: Path) -> None:
    body = call().replace("\n", " \\\n")
    text = text_of(port(tmp_path, f"#define GEMM() \\\n{body}\n\nstruct S {{ GEMM() }};\n"))
    assert ONE in text
    assert EPILOGUE_ONE in text
    assert "Sm90" not in text


def test_visitor_trees_stay(tmp_path: Path) -> None:
    tree = """namespace fusion = cutlass::epilogue::fusion;
using Bias = cutlass::epilogue::fusion::Sm90ColBroadcast<0, Shape<_128, _128, _64>, float, float>;
using Tree = fusion::Sm90EVT<fusion::Sm90Compute<cutlass::plus, float, float>, fusion::Sm90AccFetch, Bias>;
"""
    text = text_of(port(tmp_path, tree + call(fusion=", Tree")))
    assert re.sub(r"\s+", " ", tree).strip() in text
    large = tree.replace("_128, _128", "_256, _128")
    text = text_of(port(tmp_path, large + call(fusion=", Tree", tile="Shape<_256, _128, _64>")))
    assert "Sm90ColBroadcast<0, porter::cta_tile<Shape<_256,_128,_64>>" in text.replace(", _", ",_")
    assert TWO in text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tile": "Shape<_192, _128, _64>"}, "192 rows"),
        ({"tile": "Shape<_128, _24, _64>"}, "24 columns"),
        ({"tile": "Shape<_64, _12, _64>"}, "12 columns"),
        ({"tile": "Shape<_128, Int<512>, _64>"}, "512 columns"),
        ({"a": "cutlass::int4b_t"}, "int4b_t"),
        ({"a": "cute::tuple<cutlass::int8_t, cutlass::half_t>"}, "tuple"),
        ({"schedule": "cutlass::epilogue::TmaWarpSpecialized"}, "one of the epilogue"),
        ({"schedule": "cutlass::gemm::KernelTmaWarpSpecializedCooperativeMixedInput"}, "MixedInput"),
        ({"schedule": "cutlass::gemm::KernelCpAsyncWarpSpecialized"}, "KernelCpAsyncWarpSpecialized"),
        ({"schedule": "cutlass::gemm::KernelTmaWarpSpecializedCooperativeFP8Blockwise"}, "FP8Blockwise"),
        ({"schedule": "cutlass::gemm::KernelMultistage"}, "KernelMultistage"),
        ({"epilogue": "cutlass::epilogue::TmaWarpSpecialized, A, B, C"}, "form"),
        ({"operators": "cutlass::arch::OpClassSparseTensorOp"}, "OpClassSparseTensorOp"),
        ({"operators": "cutlass::arch::OpClassSimt"}, "OpClassSimt"),
    ],
)
def test_what_blackwell_has_not_is_refused(tmp_path: Path, given: dict[str, str], said: str) -> None:
    assert any(said in r for r in refusals(port(tmp_path, call(**given))))


@pytest.mark.parametrize(
    "beside",
    [
        "using Old = cutlass::gemm::device::Gemm<A, L, B, L, C, L, float, Tensor, cutlass::arch::Sm90>;",
        "using Arch = cutlass::arch::Sm90; using Old = cutlass::gemm::device::GemmUniversal<A, L, B, L, C, L, Arch>;",
        "using A = std::conditional_t<B, cutlass::arch::Sm90, cutlass::arch::Sm80>; using X = cutlass::Old<A>;",
        "using Policy = cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<4, Shape<_1, _1, _1>>;",
        "template <bool B> struct P { using S = std::conditional_t<B, cutlass::gemm::KernelTmaWarpSpecialized, "
        "cutlass::gemm::KernelPtrArrayTmaWarpSpecializedPingpongFP8Blockwise>; };",
        "using E = cutlass::epilogue::collective::detail::Sm90TmaWarpSpecializedAdapter<D>;",
        "using Conv = cutlass::conv::collective::CollectiveBuilder<cutlass::arch::Sm90, Tensor, kFprop>;",
        "Unknown<cutlass::arch::Sm90> x;",
    ],
)
def test_other_uses_of_hoppers_tags_are_refused(tmp_path: Path, beside: str) -> None:
    assert refusals(port(tmp_path, call() + beside + "\n"))


@pytest.mark.parametrize(
    "beside",
    [
        "template <class Arch> struct Own {}; using X = Own<cutlass::arch::Sm90>;",
        "template <class A> struct Own {}; using X = Own<cutlass::arch::Sm90>; using Y = cutlass::device_kernel<X>;",
        "template <class T> constexpr bool is_hopper = std::is_same_v<T, cutlass::arch::Sm90>;",
        "template <class Arch = cutlass::arch::Sm90> struct Own {};",
        "// cutlass::arch::Sm90",
        "namespace house { struct Sm90 {}; } using X = Unknown<house::Sm90>;",
    ],
)
def test_tags_of_own_templates_stay(tmp_path: Path, beside: str) -> None:
    assert beside in text_of(port(tmp_path, call() + beside + "\n"))


def test_a_builder_of_the_sources_own_is_none(tmp_path: Path) -> None:
    own = call().replace("cutlass::gemm::collective", "house").replace("cutlass::epilogue::collective", "house")
    assert "house::CollectiveBuilder" in own
    assert refusals(port(tmp_path, own))


def test_a_port_is_not_ported_again(tmp_path: Path) -> None:
    for text in (call(), TEMPLATE.format(call(**OPEN))):
        result = port(tmp_path, text)
        for path, written in result.files.items():
            Path(path).write_bytes(written)
        again = port_sources(load_sources(tmp_path / "gemm.cu"))
        assert not again.changed
        assert again.exit_code is ExitCode.OK


def test_blackwells_builders_stay(tmp_path: Path) -> None:
    given = {"arch": "cutlass::arch::Sm100", "schedule": ONE, "epilogue": EPILOGUE_ONE}
    result = port(tmp_path, call(**given))
    assert not result.changed


def test_a_template_for_blackwell_alone_stays(tmp_path: Path) -> None:
    body = call(arch="Arch", schedule=ONE, epilogue=EPILOGUE_ONE)
    assert not port(tmp_path, f"template <class Arch> struct Gemm {{ {body} }};\n").changed


def test_host_checks_and_guards_follow(tmp_path: Path) -> None:
    beside = """#if defined(CUTLASS_ARCH_MMA_SM90_SUPPORTED)
bool fits(const cudaDeviceProp& props) { return props.major == 9; }
#endif
"""
    text = text_of(port(tmp_path, call() + beside))
    assert "#if defined(CUTLASS_ARCH_MMA_SM100_SUPPORTED)" in text
    assert "props.major == 10" in text


def test_one_source_for_both_chips_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "gemm.cu"
    path.write_text(HEAD + call())
    result = port_sources(load_sources(path), PortOptions(keep_hopper=True))
    assert [d.code for d in result.diagnostics if d.code is Code.NOT_FOR_BOTH_CHIPS]
    assert not result.changed


def test_sources_beside_are_no_build_files(tmp_path: Path) -> None:
    for name in ("gemm.cu", "other.cu", "other.cuh", "Makefile"):
        (tmp_path / name).write_text("// arch == 9\n")
    assert [p.name for p in build_files_beside(tmp_path / "gemm.cu", load_rules())] == ["Makefile"]


EXAMPLES = {
    "48_hopper_warp_specialized_gemm/48_hopper_warp_specialized_gemm.cu": [
        "using ArchTag = cutlass::arch::Sm100;",
        "cutlass::epilogue::NoSmemWarpSpecialized1Sm >::CollectiveOp",
        "cutlass::gemm::KernelTmaWarpSpecialized1SmSm100 >::CollectiveOp",
        "props.major != 10",
    ],
    "49_hopper_gemm_with_collective_builder/49_collective_builder.cu": [
        "porter::mainloop_schedule<MainloopScheduleType, Shape<_128,_128,_64>, Shape<_2,_1,_1>> >::CollectiveOp",
        "porter::epilogue_schedule<EpilogueScheduleType, Shape<_128,_128,_64>, Shape<_1,_1,_1>>,",
        "cutlass::epilogue::fusion::Sm90EVT<cutlass::epilogue::fusion::Sm90Compute<",
        "cutlass::gemm::StreamKScheduler",
        "cute::is_same_v<EpilogueScheduleType, cutlass::epilogue::TmaWarpSpecializedCooperative>",
    ],
}


@pytest.mark.external
@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_of_cutlass(example: str) -> None:
    spec = find_spec("cutlass_library")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    path = Path(spec.submodule_search_locations[0], "source/examples", example)
    result = port_sources(load_sources(path))
    assert result.exit_code is ExitCode.OK
    text = re.sub(r"\s+", " ", result.files[str(path)].decode())
    assert "arch::Sm90" not in text
    for line in EXAMPLES[example]:
        assert line in text
