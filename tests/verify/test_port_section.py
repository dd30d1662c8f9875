# SPDX-License-Identifier: Apache-2.0
"""What a port changes of its launch: the section `port` of a case, and what the compiled port has to say to it."""

import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
from fakes_verify import CASE, FakeBackend, FakeBuilder, gemm, module_for, write_case

from porter.build.port_plan import PortPlan
from porter.cli.context import current
from porter.cli.making import Ports
from porter.cli.porting import case_of_port
from porter.diagnostics import Code, PorterError
from porter.verify.builder import BuiltKernel
from porter.verify.case import load_case
from porter.verify.expr import Number
from porter.verify.further import further_sizes
from porter.verify.launching import build_port, port_problem, ported_case
from porter.verify.outcome import Verdict
from porter.verify.prepare import prepare
from porter.verify.problem import bind
from porter.verify.runner import VerifyOptions, verify

PORTED = Path("ported.cu")


def case_with(folder, section: str, text: str = CASE):
    lines = ("port:\n" + textwrap.indent(textwrap.dedent(section).strip("\n"), "  ")).splitlines()
    return load_case(write_case(folder, textwrap.dedent(text) + "\n".join(lines) + "\n"))


class Stating(FakeBuilder):
    """A builder whose kernels for sm_100a state `directives`."""

    def __init__(self, **directives) -> None:
        super().__init__()
        self.directives = directives

    def build(self, problem, source, arch):
        built = super().build(problem, source, arch)
        if arch == "sm_90a":
            return built
        (function,) = built.module.functions
        function = replace(function, directives=self.directives)
        return BuiltKernel(arch, "gemm", replace(built.module, functions=(function,)), "")


class Watching(FakeBackend):
    """Keeps what each program was given."""

    def __init__(self) -> None:
        super().__init__(gemm, gemm)
        self.given = {}

    def run(self, kernel, problem, launch, images):
        self.given.setdefault(kernel.arch, []).append((problem, launch))
        return super().run(kernel, problem, launch, images)


def given(case, builder=None, **options):
    """What original and port are given under `verify`, and the result."""
    backend = Watching()
    plan, _ = Ports(current()).of_case(case, PORTED)
    chosen = VerifyOptions(families=["integers"], **options)
    result = verify(case, plan, builder or FakeBuilder(), backend, chosen)
    return backend.given, result


def refused(call) -> tuple[Code, str, int | None]:
    with pytest.raises(PorterError) as caught:
        call()
    said = caught.value.diagnostic
    return said.code, said.message, said.where.line


@pytest.mark.parametrize(
    ("section", "changed"),
    [
        ("launch: {block: [256]}", {"block": (256, 1, 1)}),
        ("launch: {grid: [1, 1, 2]}", {"grid": (1, 1, 2)}),
        ("launch: {grid: [2], cluster: [2]}", {"grid": (2, 1, 1), "cluster": (2, 1, 1)}),
        ("launch: {dynamic_smem: 3 * BM * 128}", {"dynamic_smem": 3 * 64 * 128}),
        ("constants: {BM: 32}", {"grid": (2, 2, 1)}),
        ("{constants: {CTAS: 4}, launch: {grid: [CTAS]}}", {"grid": (4, 1, 1)}),
        ("launch: {cooperative: true}", {"cooperative": True}),
    ],
)
def test_only_the_port_is_launched_as_its_section_says(tmp_path, section, changed):
    case = case_with(tmp_path, section)
    found, result = given(case)
    assert result.verdict is Verdict.CLEAN
    usual = bind(case).launch
    assert [launch for _, launch in found["sm_90a"]] == [usual]
    assert [launch for _, launch in found["sm_100a"]] == [replace(usual, **changed)]


@pytest.mark.parametrize(
    ("section", "box", "swizzle"),
    [
        ("tensor_maps: {map_a: {box: [32, 64]}}", (64, 32), 3),
        ("tensor_maps: {map_a: {swizzle: none}}", (64, 64), 0),
        ("constants: {BM: 16}", (64, 16), 3),
        ("{tensor_maps: {map_a: {dims: [4, 16, K], strides: [16 * K, K, 1], box: [4, 16, 64]}}}", (64, 16, 4), 3),
    ],
)
def test_a_port_has_its_own_tensor_maps(tmp_path, section, box, swizzle):
    found, _ = given(case_with(tmp_path, section))
    (before, _), (after, _) = found["sm_90a"][0], found["sm_100a"][0]
    assert before.tensor_maps["map_a"].map.box == (64, 64)
    assert (after.tensor_maps["map_a"].map.box, after.tensor_maps["map_a"].map.swizzle) == (box, swizzle)
    assert after.tensors is before.tensors


def test_a_port_may_take_other_arguments(tmp_path):
    section = "{tensor_maps: {map_b: {tensor: B, box: [64, 64]}}, params: [map_a, map_b, C, K]}"
    found, _ = given(case_with(tmp_path, section))
    assert len(found["sm_90a"][0][0].arguments) == 6
    assert [type(a).__name__ for a in found["sm_100a"][0][0].arguments] == ["MapValue", "MapValue", "Pointer", "Scalar"]


def test_the_template_of_a_port_takes_its_constants(tmp_path):
    text = textwrap.dedent(CASE) + "template: [BM, BN]\n"
    case = case_with(tmp_path, "{constants: {BM: 32}, entry: wide}", text)
    found, _ = given(case)
    assert found["sm_90a"][0][0].template == ("64", "64")
    assert (found["sm_100a"][0][0].template, found["sm_100a"][0][0].case.entry) == (("32", "64"), "wide")


def test_what_porter_makes_says_itself_what_it_changes(tmp_path):
    case = case_with(tmp_path, "launch: {block: [256]}")
    for section, block in ((None, 128), ({"launch": {"block": [64]}}, 64)):
        backend = Watching()
        plan = PortPlan(source=PORTED, section=section)
        verify(case, plan, FakeBuilder(), backend, VerifyOptions(families=["integers"]))
        assert backend.given["sm_100a"][0][1].block == (block, 1, 1)


def test_hazards_and_mutants_run_on_the_ports_launch(tmp_path):
    case = case_with(tmp_path, "{launch: {block: [256]}, tensor_maps: {map_a: {box: [32, 64]}}}")
    found, _ = prepare(case, ["original", "port"], FakeBuilder(), {}, 0, lambda c: Ports(current()).of_case(c, PORTED))
    assert [p.launch.block[0] for p in found] == [128, 256]
    assert [p.problem.tensor_maps["map_a"].map.box for p in found] == [(64, 64), (64, 32)]


@pytest.mark.parametrize(
    ("section", "directives", "said"),
    [
        ("launch: {block: [256]}", {"maxntid": (128, 1, 1)}, "256 threads; the kernel takes 128"),
        ("launch: {block: [256]}", {"reqntid": (512, 1, 1)}, "blocks of 256, 1, 1; the kernel requires 512, 1, 1"),
        ("launch: {block: [2, 128]}", {"reqntid": (128, 2, 1)}, "the kernel requires 128, 2, 1"),
        ("launch: {grid: [4], cluster: [4]}", {"reqnctapercluster": (2, 1, 1)}, "requires clusters of 2, 1, 1"),
        ("launch: {grid: [3]}", {"reqnctapercluster": (2, 1, 1)}, "3, 1, 1 blocks are no whole clusters of 2, 1, 1"),
        ("launch: {grid: [32], cluster: [32]}", {}, "32 blocks; a cluster has at most"),
        ("launch: {dynamic_smem: 300000}", {}, "300000 bytes of shared memory; a block has at most 232448"),
    ],
)
def test_a_launch_that_the_compiled_port_refuses_is_named(tmp_path, section, directives, said):
    case = case_with(tmp_path, section)
    code, message, line = refused(lambda: given(case, Stating(**directives)))
    assert (code, line) == (Code.PORT_LAUNCH, case.path.read_text().count("\n"))
    assert said in message


@pytest.mark.parametrize(
    ("directives", "field"),
    [({"reqntid": (256, 1, 1)}, "launch.block"), ({"reqnctapercluster": (1, 2, 1)}, "launch.grid")],
)
def test_a_port_that_needs_a_section_is_refused_without_one(tmp_path, directives, field):
    case = load_case(write_case(tmp_path))
    code, message, line = refused(lambda: given(case, Stating(**directives)))
    assert code is Code.PORT_LAUNCH
    assert message.startswith(field)
    assert line == case.path.read_text().splitlines().index("launch:") + (2 if field == "launch.grid" else 3)


def test_clusters_that_only_the_kernel_states_are_launched(tmp_path):
    found, _ = given(case_with(tmp_path, "launch: {grid: [2]}"), Stating(reqnctapercluster=(2, 1, 1)))
    assert found["sm_100a"][0][1].cluster == (2, 1, 1)


@pytest.mark.parametrize(
    ("section", "code", "said"),
    [
        ("launch: {block: [N / 3]}", Code.CASE_EXPRESSION, "launch.block[0]"),
        ("launch: {grid: [0]}", Code.CASE_DOES_NOT_FIT, "must be at least 1"),
        ("launch: {cluster: [4]}", Code.CASE_DOES_NOT_FIT, "not a multiple of cluster extent 4"),
        ("tensor_maps: {map_a: {box: [512, 64]}}", Code.CASE_DOES_NOT_FIT, "512"),
        ("tensor_maps: {map_b: {tensor: B}}", Code.CASE_FIELD, "missing field box, as the case has no map map_b"),
        ("tensor_maps: {map_a: {tensor: X}}", Code.CASE_FIELD, "no tensor X"),
        ("constants: {M: 3}", Code.CASE_FIELD, "already stands in sizes"),
        ("multiples: {Q: 3}", Code.CASE_FIELD, "no such size"),
        ("multiples: {M: 256}", Code.CASE_DOES_NOT_FIT, "M=64 is no multiple of 256, which the port needs"),
    ],
)
def test_a_section_that_cannot_be_meant_is_refused_at_its_place(tmp_path, section, code, said):
    case = case_with(tmp_path, section)
    found, message, line = refused(lambda: given(case))
    assert (found, line) == (code, case.path.read_text().count("\n"))
    assert said in message


@pytest.mark.parametrize("section", ["launch: {blocks: [1]}", "launch: {}", "{}", "sizes: {M: 1}", "launch: {grid: 1}"])
def test_a_section_has_the_form_of_its_schema(tmp_path, section):
    assert refused(lambda: case_with(tmp_path, section))[0] is Code.CASE_FIELD


def test_a_change_that_reaches_a_tensor_is_refused(tmp_path):
    text = CASE.replace("A: {dtype: bf16, shape: [M, K]", "A: {dtype: bf16, shape: [M + BM - 64, K]")
    case = case_with(
        tmp_path, "{constants: {BM: 128}, launch: {grid: [1]}, tensor_maps: {map_a: {box: [64, 64]}}}", text
    )
    code, message, _ = refused(lambda: port_problem(bind(case), case.port))
    assert code is Code.CASE_DOES_NOT_FIT
    assert "original and port have the same tensors" in message


def test_sizes_that_a_port_does_not_take_are_left_out_and_said(tmp_path):
    text = CASE.replace("other_sizes:", "other_sizes:\n      - {M: 192}\n      - {M: 256}")
    case = case_with(tmp_path, "{multiples: {M: BM}, constants: {BM: 128}, mutate_sizes: {M: 128}}", text)
    case = replace(case, sizes={**case.sizes, "M": 128})
    taken = case_of_port(case, PORTED)
    sizes: list[Number] = [s["M"] for s in taken.all_sizes()]
    assert sizes == [128, 256, 128]
    assert taken.mutation_sizes()[0]["M"] == 128
    assert all(s.sizes["M"] % 128 == 0 for s in further_sizes(taken).sizes)
    _, result = given(case, sizes=taken.all_sizes(), further=further_sizes(taken))
    assert {"M": 192, "N": 128, "K": 64} in [dict(s) for s in result.coverage[0].sizes]


def test_kernels_whose_host_code_launches_them_take_no_launch(tmp_path):
    case = load_case(write_case(tmp_path))
    dsl = replace(case, dsl=object())
    code, message, _ = refused(lambda: ported_case(dsl, {"launch": {"block": [256]}}))
    assert code is Code.CASE_FIELD
    assert "own host code" in message


def test_a_port_is_compiled_with_its_own_problem(tmp_path):
    case = case_with(tmp_path, "params: [map_a, C]")
    built = build_port(bind(case), Ports(current()).of_case(case, PORTED)[0], FakeBuilder())
    assert len(built.kernel.module.functions[0].params) == 2
    assert len(module_for(bind(case), "sm_90a").functions[0].params) == 6
