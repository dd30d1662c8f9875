# SPDX-License-Identifier: Apache-2.0
"""The comparison on PTX as a gate: which kernels are compared, at which launches, and what a port that differs is told.
The text analyses that find the same mistakes are switched off."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import written_pair
from click.testing import CliRunner, Result
from corpus_kernels import CORPUS

from porter.build.port_plan import PortPlan
from porter.cli.comparing import TO_WRITE, Comparing, Subject, Told, told
from porter.cli.context import Session
from porter.cli.main import main
from porter.model.accumulators import Accumulator
from porter.passes.columns import Columns, End
from porter.passes.ported import Ported, PortedRoot
from porter.report.equality import brief
from porter.report.json import schema
from porter.verify.case import Case
from porter.verify.equality import LARGEST_SIZE, Equality, SizeCompared
from porter.verify.gate import GateOptions
from porter.verify.proved import CaseProofs

SECONDS = {"PORTER_PROVE_SECONDS": "2"}


def porter(*words: object) -> tuple[Result, dict[str, Any]]:
    result = CliRunner(env=SECONDS).invoke(main, ["--format", "json", *map(str, words)])
    document = json.loads(result.stdout)
    jsonschema.validate(document, schema(document["kind"]))
    return result, document


def errors(document: dict[str, Any]) -> set[str]:
    return {d["id"] for d in document["diagnostics"] if d["severity"] == "error"}


# What is compared ---------------------------------------------------------------------------------------

HOST = """
template <int N> void run(float* out, int rows) {{
    {launch}
}}
template void run<64>(float*, int);
"""
KERNEL = "template <int N> __global__ void fill(float* out, int rows) { out[blockIdx.x * N + threadIdx.x] = rows; }\n"
MANGLED = {n: f"_Z4fillILi{n}EEvPfi" for n in (32, 64, 128)}


def compared(
    path: Path, entries: Sequence[str], monkeypatch: pytest.MonkeyPatch, *instantiate: str
) -> tuple[list[Case], list[Told]]:
    """The launches that are compared of a file, with stand-ins for comparisons, and what is said."""
    found: list[Case] = []

    def each(_: Comparing, works: Sequence[Any]) -> list[Told]:
        found.extend(w.case for w in works)
        own = [MANGLED.get(w.case.template[0], "_Z4gemm") for w in works]
        return [Told(w.case.name, {}, entries=(e,), equality="equal") for w, e in zip(works, own, strict=True)]

    monkeypatch.setattr(Comparing, "_each", each)
    subject = Subject(path, lambda case: PortPlan(), entries)
    return found, Comparing(Session(), 1, GateOptions(instantiate=instantiate)).compare([subject])


@pytest.mark.parametrize(
    ("launch", "widths"),
    [
        ("fill<64><<<rows, 64>>>(out, rows);", {64}),
        ("fill<64><<<rows, 64>>>(out, rows); fill<32><<<rows, 32>>>(out, rows);", {32, 64}),
        ("fill<32><<<rows, 32>>>(out, rows); fill<32><<<2 * rows, 32>>>(out, rows);", {32}),
        ("fill<N><<<rows, N>>>(out, rows);", {64}),
        ("fill<N><<<rows, N>>>(out, rows); fill<2 * N><<<rows, 2 * N>>>(out, rows);", {64, 128}),
        ("if (rows > 4) fill<32><<<rows, 32>>>(out, rows); else fill<64><<<rows, 64>>>(out, rows);", {32, 64}),
        ("auto go = fill<128>; go<<<rows, 128>>>(out, rows);", {128}),
        ("for (int i = 0; i < 2; ++i) fill<32><<<rows, 32>>>(out, rows);", {32}),
        ("fill<64><<<blocks(rows), 64>>>(out, rows);", set()),
        ("fill<64><<<rows, 64>>>(other, rows);", set()),
    ],
)
def test_each_instantiation_that_host_code_launches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launch: str, widths: set[int]
) -> None:
    source = tmp_path / "fill.cu"
    source.write_text(KERNEL + HOST.format(launch=launch))
    cases, told = compared(source, list(MANGLED.values()), monkeypatch)
    assert {case.template[0] for case in cases} == widths
    missing = set(MANGLED) - widths
    assert [bool(one.equality) for one in told] == [True] * len(widths) + [False] * bool(missing)
    if missing:
        (line,) = told[-1].lines
        assert all(f"`fill<{width}>`" in line for width in missing)
        assert "next: `porter case new" in line


HANDED_ON = "template <int N> void run(float* o, int r) { fill<N><<<r, N>>>(o, r); }"


@pytest.mark.parametrize(
    ("host", "asked", "widths"),
    [
        (HANDED_ON, ["fill<32>"], {32}),
        (HANDED_ON, ["fill<32>", "fill< 128 >"], {32, 128}),
        (HANDED_ON, ["other<32>"], set()),
        (HANDED_ON, ["fill<32, 64>"], set()),
        ("template <int N> void run(float* o, int r) { fill<2 * N><<<r, N>>>(o, r); }", ["fill<32>"], set()),
        ("template <int M, int N> void run(float* o, int r) { fill<N><<<r, N>>>(o, r); }", ["fill<64>"], {64}),
        ("template <int N> void run(float* o, int r) { auto go = fill<N>; go<<<r, N>>>(o, r); }", ["fill<64>"], {64}),
        ("template <int N> void run(float* o, int r) { fill<32><<<r, 32>>>(o, r); fill<N><<<r, N>>>(o, r); }",
         ["fill<64>"], {32, 64}),
        ("template <int N> void go(float* o, int r) { fill<N><<<r, N>>>(o, r); } void run(float* o, int r) "
         "{ go<128>(o, r); }", ["fill<64>"], {64, 128}),
        ("void run(float* o, int r) { fill<32><<<r, 32>>>(o, r); }", ["fill<64>"], {32}),
    ],
)  # fmt: skip
def test_instantiations_that_only_callers_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, asked: list[str], widths: set[int]
) -> None:
    source = tmp_path / "fill.cu"
    source.write_text(KERNEL + host)
    cases, told = compared(source, list(MANGLED.values()), monkeypatch, *asked)
    assert {case.template[0] for case in cases if isinstance(case.template[0], int)} == widths
    assert {one.equality for one in told} <= {"equal", ""}


def test_kernels_that_nobody_launches_are_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "fill.cu"
    source.write_text(KERNEL)
    cases, (told,) = compared(source, [MANGLED[64]], monkeypatch)
    assert not cases
    assert (told.equality, told.body["equality"]) == ("", None)
    assert told.body["untried"]


def test_kernels_that_nobody_instantiates_are_not_known(tmp_path: Path) -> None:
    subject = Subject(tmp_path / "fill.cu", lambda case: PortPlan(), (), ["fill"])
    (told,) = Comparing(Session(), 1, GateOptions()).compare([subject])
    assert told.lines == (
        "synchronization and output of fill.cu: not known: nothing instantiates `fill`; next: `--instantiate`, or a "
        "case with its template arguments",
    )


def test_cases_come_before_host_code(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = CORPUS / "gemm_tma" / "gemm_tma.cu"
    cases, told = compared(kernel, ["_Z4gemm"], monkeypatch)
    assert [case.path.parent for case in cases] == [kernel.parent]
    assert [one.equality for one in told] == ["equal"]


@pytest.mark.parametrize(
    ("equality", "next_"),
    [
        (Equality("k", "unknown", (), 0, 1.0, "an atomic"), "`porter verify` holds runs of both against each other"),
        (Equality("k", "unknown", (), 0, 1.0, "no time", remedy="more `--prove-seconds`"), "more `--prove-seconds`"),
    ],
)
def test_what_is_not_known_is_a_line_with_what_to_do_next(equality: Equality, next_: str) -> None:
    assert brief(equality) == f"output of k: not known to be equal: {equality.why}; next: {next_}"


ROWS = SizeCompared("M", largest=LARGEST_SIZE)
TURNS = SizeCompared("K", step=64, period=3, beside=("M",))


@pytest.mark.parametrize(
    ("counts", "sizes", "known"),
    [
        ([ROWS], {"M": 300}, True),
        ([ROWS], {"M": LARGEST_SIZE + 1}, False),
        ([ROWS], {"K": 128}, False),
        ([TURNS], {"K": 128}, True),
        ([TURNS], {"K": 100}, False),
        ([TURNS], {"M": 300, "K": 128}, False),
        ([ROWS, TURNS], {"M": 300, "K": 128}, True),
        ([ROWS, replace(TURNS, beside=())], {"M": 300, "K": 128}, False),
        ([replace(ROWS, upto="M * K < 5000")], {"M": 300}, False),
        ([replace(ROWS, why="no time"), TURNS], {"M": 300}, False),
        ([ROWS], {"M": 256}, True),
    ],
)
def test_which_sizes_are_left_out(counts: list[SizeCompared], sizes: dict[str, int], known: bool) -> None:
    """Of those that were asked for: sizes that no turns follow are symbols, and have no step."""
    equal = Equality("gemm", "equal", ("M=256, K=64",), 0, 0.0, counts=tuple(counts))
    asked = {"M": 256, "K": 64} | sizes
    of_all = ", ".join(f"{name}={number}" for name, number in asked.items())
    found = told(CaseProofs(None, None, equality=equal), "gemm", TO_WRITE, [{"M": 256, "K": 64}, asked])
    assert found.left_out == ("" if known else of_all)


# What it refuses ----------------------------------------------------------------------------------------

CONDITIONS = {
    "a macro for one chip": ("#include <nv/target>", "NV_IF_TARGET(NV_IS_EXACTLY_SM_90, (d[0][0] += 1.f;))"),
    "a macro for a feature": ("#include <nv/target>", "NV_IF_TARGET(NV_HAS_FEATURE_SM_90a, (d[0][0] += 1.f;))"),
    "a macro with several arms": (
        "#include <nv/target>",
        "NV_DISPATCH_TARGET(NV_IS_EXACTLY_SM_90, (d[1][7] *= 3.f;), NV_IS_DEVICE, (d[1][7] *= 5.f;))",
    ),
    "the list of chips": (
        "constexpr int kChips[] = {__CUDA_ARCH_LIST__};",
        "if constexpr (kChips[0] == 900) d[1][2] = -d[1][2];",
    ),
    "a feature that is asked for": (
        "#if defined(__CUDA_ARCH_HAS_FEATURE__)\n#if __CUDA_ARCH_HAS_FEATURE__(SM90_ALL)\n#define ADDS 2.f\n#endif\n"
        "#endif\n#ifndef ADDS\n#define ADDS 0.f\n#endif",
        "d[0][3] += ADDS;",
    ),
    "the compiler's own question": (
        'extern "C" __device__ int __nvvm_reflect(const char*);',
        'if (__nvvm_reflect("__CUDA_ARCH") == 900) d[0][5] = 0.f;',
    ),
    "an argument of a template": (
        "template <int Chip> struct Scale { static constexpr float value = 1.f; };\n"
        "template <> struct Scale<90> { static constexpr float value = 2.f; };",
        "d[1][1] *= Scale<__CUDA_ARCH__ / 10>::value;",
    ),
    "a number in an expression": ("", "d[0][6] += float(__CUDA_ARCH__ / 100);"),
    "a condition of the language": (
        "",
        "if constexpr (__CUDA_ARCH__ / 10 == 90) for (float& v : d[1]) v = fmaxf(v, 0.f);",
    ),
    "a size": ("", "for (int i = 0; i < 8 - __CUDA_ARCH__ % 900 / 100; ++i) d[0][i] += 1.f;"),
}
"""Own lines of a kernel and what stands in front of its last loop: the port's chip takes another way."""
STORES = "    for (int m = 0; m < 2; ++m)\n"


@pytest.fixture
def no_text_analysis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks the preprocessor what it makes of both, or looks at conditions behind it."""
    monkeypatch.setattr("porter.passes.ported.check_chip_text", lambda *asked: [])
    monkeypatch.setattr("porter.passes.chip_checks.late_architectures", lambda *asked: [])


@pytest.mark.slow
@pytest.mark.parametrize("how", CONDITIONS)
@pytest.mark.usefixtures("no_text_analysis")
def test_a_port_that_takes_another_way_is_not_written(tmp_path: Path, how: str) -> None:
    source, _ = written_pair.write(tmp_path)
    own, condition = CONDITIONS[how]
    assert written_pair.ORIGINAL.count(STORES) == 1
    source.write_text(f"{own}\n{written_pair.ORIGINAL.replace(STORES, f'    {condition}{chr(10)}{STORES}')}")
    result, document = porter("port", source, "-o", tmp_path / "port", "--style", "compat")
    assert (result.exit_code, errors(document)) == (4, {"PT3057"}), result.output
    assert document["proofs"][0]["equality"]["status"] == "differs"
    assert not (tmp_path / "port").exists()


NARROW = (
    "m64n8k32.f32.e4m3.e4m3 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, p, 1, 1;",
    '"+f"(t[0]), "+f"(t[1]), "+f"(t[2]), "+f"(t[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(Adds)',
    "9",
)
WHOLE = (
    "m64n8k32.s32.s8.s8 {%0, %1, %2, %3}, %4, %5, p;",
    '"+r"(t[0]), "+r"(t[1]), "+r"(t[2]), "+r"(t[3]) : "l"(a), "l"(b), "n"(Adds)',
    "6",
)


def product(name: str, sums: str, a: str, asm: tuple[str, str, str]) -> str:
    text, operands, adds = asm
    return (
        f"template <int Adds> __device__ __forceinline__ void {name}({sums} (&t)[4], {a} a, uint64_t b) {{\n"
        f'    asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{adds}, 0;\\n'
        f'wgmma.mma_async.sync.aligned.{text}\\n}}\\n" : {operands});\n}}\n'
    )


SHADOWED = (
    "#include <cstdint>\n"
    + product("floats", "float", "const uint32_t (&)[4]", NARROW).replace("&)[4] a", "&a)[4]")
    + product("counts", "int", "uint64_t", WHOLE)
    + r"""
__device__ __forceinline__ uint64_t describe(const void* tile) {
    return (static_cast<uint32_t>(__cvta_generic_to_shared(tile)) & 0x3FFFF) >> 4 | 8ull << 16 | 16ull << 32;
}
__device__ __forceinline__ void begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void end() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
template <int Parts>
__global__ void __launch_bounds__(128) weigh(const int4* x, const int4* w, float* y, int turns) {
    __shared__ alignas(128) int8_t xs[64 * 32], ws[8 * 32];
    float u = turns > 2 ? 3.f : 4.f;
    float first = u;
    int c[Parts][4] = {};
    float all[4] = {first, first, first, first};
    for (int turn = 0; turn < turns; ++turn) {
        reinterpret_cast<int4*>(xs)[threadIdx.x] = x[threadIdx.x];
        if (threadIdx.x < 16) reinterpret_cast<int4*>(ws)[threadIdx.x] = w[threadIdx.x];
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        begin();
#pragma unroll
        for (int p = 0; p < Parts; ++p) counts<1>(c[p], describe(xs), describe(ws));
        end();
        float f[Parts][4];
        for (int p = 0; p < Parts; ++p) for (int j = 0; j < 4; ++j) f[p][j] = float(c[p][j]);
        uint32_t a[4];
        for (int j = 0; j < 4; ++j) a[j] = f[0][j] > 0.f ? 0x38383838 : 0x40404040;
        float u[Parts][4];
        begin();
#pragma unroll
        for (int p = 0; p < Parts; ++p) floats<0>(u[p], a, describe(ws));
        end();
        for (int p = 0; p < Parts; ++p) for (int j = 0; j < 4; ++j) all[j] += u[p][j] + f[p][j];
        __syncthreads();
    }
    for (int j = 0; j < 4; ++j) y[j * 128 + threadIdx.x] = all[j];
}
int main() {
    signed char x[64 * 32], w[8 * 32];
    for (int i = 0; i < 64 * 32; ++i) x[i] = i % 5 - 2;
    for (int i = 0; i < 8 * 32; ++i) w[i] = i % 3 ? 0x38 : 0;
    int4 *dx, *dw;
    float* dy;
    cudaMalloc(&dx, sizeof x);
    cudaMalloc(&dw, sizeof w);
    cudaMalloc(&dy, 4 * 128 * sizeof(float));
    cudaMemcpy(dx, x, sizeof x, cudaMemcpyHostToDevice);
    cudaMemcpy(dw, w, sizeof w, cudaMemcpyHostToDevice);
    weigh<1><<<1, 128>>>(dx, dw, dy, 3);
    return cudaDeviceSynchronize();
}
"""
)
"""Two accumulators, the size of one of which is named by a name that means something else where the other stands."""


def by_name(context: object, placed: Columns, own: list[Accumulator], *_: object) -> None:
    """Columns behind those of the ones in front, whatever their names mean where they are written."""
    for i, accumulator in enumerate(own):
        widths = [one.home.all_columns(one.size) for one in own[:i]]
        placed.first[accumulator] = " + ".join(widths) or "0"
        placed.ends[accumulator] = End(0, tuple(own[: i + 1]))


@pytest.mark.slow
@pytest.mark.parametrize("mended", [True, False])
def test_a_size_that_is_named_out_of_its_scope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mended: bool) -> None:
    """The program has no case: its own main() launches the kernel."""
    source = tmp_path / "weigh.cu"
    source.write_text(SHADOWED)
    if not mended:
        monkeypatch.setattr("porter.passes.columns._stack", by_name)
    result, document = porter("port", source, "-o", tmp_path / "port", "--style", "compat", "--trust")
    assert (result.exit_code, errors(document)) == ((0, set()) if mended else (4, {"PT3057"})), result.output
    assert document["proofs"][0]["equality"]["status"] == ("equal" if mended else "differs")


# Commands -----------------------------------------------------------------------------------------------

WRONG = "for (int kk = 0; kk < BK; kk += 16)", "for (int kk = BK - 16; kk >= 0; kk -= 16)"
"""Sums are made in another order, of which sums of integers show nothing."""


@pytest.fixture
def wrong_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = Ported.elsewhere

    def planted(ported: Ported) -> dict[str, bytes]:
        before, after = (text.encode() for text in WRONG)
        return {path: data.replace(before, after) for path, data in elsewhere(ported).items()}

    monkeypatch.setattr(Ported, "elsewhere", planted)


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CORPUS / "gemm_tma", tmp_path / "gemm_tma")) / "gemm_tma.cu"


@pytest.mark.slow
@pytest.mark.parametrize("with_case", [True, False])
def test_build_compares(kernel: Path, with_case: bool) -> None:
    if not with_case:
        (kernel.parent / "case.yaml").unlink()
    result, document = porter("build", kernel, "--style", "compat")
    assert result.exit_code == 0, result.output
    assert document["proofs"][0]["equality"]["status"] == "equal"


@pytest.mark.slow
@pytest.mark.usefixtures("wrong_ports")
def test_build_tells_what_differs(kernel: Path) -> None:
    result, document = porter("build", kernel, "--style", "compat")
    assert (result.exit_code, errors(document)) == (5, {"PT4115"}), result.output


@pytest.mark.slow
@pytest.mark.usefixtures("wrong_ports")
def test_review_writes_nothing_that_differs(kernel: Path, tmp_path: Path) -> None:
    words = ["review", "--style", "compat", kernel, "-o", tmp_path / "port", "--session", tmp_path / "review.json"]
    result = CliRunner(env=SECONDS).invoke(main, [*map(str, words)], input="a\n")
    assert result.exit_code == 4, result.output
    assert "PT3057" in result.output
    assert not (tmp_path / "port").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("wrong_ports")
def test_a_port_without_a_case_that_differs_is_not_written(kernel: Path, tmp_path: Path) -> None:
    (kernel.parent / "case.yaml").unlink()
    result, document = porter("port", kernel, "-o", tmp_path / "port", "--style", "compat")
    assert (result.exit_code, errors(document)) == (4, {"PT3057"}), result.output
    assert not (tmp_path / "port").exists()


@pytest.mark.slow
@pytest.mark.parametrize("right", [True, False])
def test_full_rate_without_a_case(kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right: bool) -> None:
    """Of what differs with M=128 the compat port is written."""
    (kernel.parent / "case.yaml").unlink()
    if not right:
        of_root = Ported.of_root

        def planted(ported: Ported, root: PortedRoot) -> dict[str, bytes]:
            found = of_root(ported, root)
            mistake = WRONG[0].encode(), WRONG[1].encode()
            return {p: d.replace(*mistake) for p, d in found.items()} if root.full_rate else found

        monkeypatch.setattr(Ported, "of_root", planted)
    result, document = porter("port", kernel, "-o", tmp_path / "port", "--style", "auto", "--prove-seconds", "20")
    assert result.exit_code == 0, result.output
    said = {d["id"]: d["message"] for d in document["diagnostics"]}
    assert ("PT2543" in said, "PT2534" in said) == (right, not right)
    assert right or "differs" in said["PT2534"]
    made, _ = porter("port", kernel, "-o", tmp_path / "compat", "--style", "compat", "--no-compile")
    assert made.exit_code == 0, made.output
    texts = [(tmp_path / style / "gemm_tma.cu").read_text() for style in ("port", "compat")]
    assert (texts[0] == texts[1]) != right


@pytest.mark.slow
def test_verify_compares_programs(tmp_path: Path) -> None:
    source = tmp_path / "weigh.cu"
    source.write_text(SHADOWED)
    result, document = porter("verify", source)
    assert result.exit_code == 0, result.output
    (proofs,) = document["proofs"]
    assert proofs["equality"]["status"] == "equal"
    port = tmp_path / "port"
    made, _ = porter("port", source, "-o", port, "--style", "compat", "--no-compile")
    assert made.exit_code == 0, made.output
    text = (port / "weigh.cu").read_text()
    assert text.count("float first = u;") == 1
    (port / "weigh.cu").write_text(text.replace("float first = u;", "float first = u + 1.f;"))
    result, document = porter("verify", source, "--port", port / "weigh.cu")
    assert result.exit_code == 5, result.output
    assert "PT4115" in errors(document)
    assert document["proofs"][0]["equality"]["status"] == "differs"
