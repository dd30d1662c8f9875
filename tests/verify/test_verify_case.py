# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import numpy as np
import pytest
from fakes_verify import CASE, write_case

from porter.diagnostics import Code, ExitCode, PorterError
from porter.ptx.tensormap import TensorMapSwizzle, TensorMapType
from porter.verify.arguments import MapAddress, MapValue, Pointer, Scalar, Struct
from porter.verify.case import cases_of, load_case
from porter.verify.images import make_image
from porter.verify.problem import bind

ROOT = Path(__file__).resolve().parents[2]


def refused(tmp_path, old, new, sizes=None):
    """The diagnostic that changing the case in one place gives."""
    assert old in CASE
    path = write_case(tmp_path, CASE.replace(old, new, 1))
    with pytest.raises(PorterError) as caught:
        bind(load_case(path), sizes)
    assert caught.value.exit_code is ExitCode.USAGE
    return caught.value.diagnostic


@pytest.mark.parametrize("path", sorted((ROOT / "corpus").glob("*/case.yaml")), ids=lambda p: p.parent.name)
def test_every_corpus_case_binds_at_every_size(path):
    case = load_case(path)
    for sizes in case.all_sizes():
        problem = bind(case, sizes)
        assert any(problem.reduction_axis(t) is not None for t in problem.inputs)
        assert set(problem.case.sizes) <= set(problem.names)


def test_a_case_gives_concrete_values(tmp_path):
    problem = bind(load_case(write_case(tmp_path)), {"M": 128})
    assert problem.launch.grid == (2, 2, 1)
    assert problem.tensors["A"].shape == (128, 64)
    assert problem.tensors["A"].strides == (64, 1)
    bound = problem.tensor_maps["map_a"].map
    assert (bound.sizes, bound.strides, bound.box) == ((64, 128), (128,), (64, 64))
    assert bound.swizzle is TensorMapSwizzle.B128
    assert bound.dtype is TensorMapType.BFLOAT16
    assert problem.arguments == (
        MapValue("map_a"), Pointer("B"), Pointer("C"), Scalar(128), Scalar(128), Scalar(64),
    )  # fmt: skip
    assert [problem.reduction_axis(t) for t in problem.tensors.values()] == [1, 1, None]


def test_template_arguments_are_numbers_or_cpp_text(tmp_path):
    text = CASE + '    template: [BM, "BM * 2", "cutlass::half_t", true, "Tile<64, 2>"]\n'
    problem = bind(load_case(write_case(tmp_path, text)))
    assert problem.template == ("64", "128", "cutlass::half_t", "true", "Tile<64, 2>")


def test_other_arguments(tmp_path):
    params = "params: [{address_of: map_a}, {address_of: B, offset: K}, {struct: [C, {value: M, type: u32}]}]"
    text = CASE.replace("params: [map_a, B, C, M, N, K]", params)
    assert bind(load_case(write_case(tmp_path, text))).arguments == (
        MapAddress("map_a"), Pointer("B", 128), Struct((Pointer("C"), Scalar(64, "u32"))),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "code", "text", "line"),
    [
        ("version: 1", "version: 2", Code.CASE_FIELD, "version", 2),
        ("entry: gemm", "entri: gemm", Code.CASE_FIELD, "entri: unknown field", 4),
        ("role: output", "role: result", Code.CASE_FIELD, "tensors.C.role", 12),
        ("{dtype: f32, shape", "{dtype: f31, shape", Code.CASE_FIELD, "tensors.C.dtype", 12),
        ("tensor: A", "tensor: X", Code.CASE_FIELD, "no tensor X", 14),
        ("BM: 64", "M: 64", Code.CASE_FIELD, "constants.M", 5),
        ("- {M: 128}", "- {Q: 128}", Code.CASE_FIELD, "other_sizes[0].Q", 8),
        ("role: output", "role: input", Code.CASE_FIELD, "nothing to compare", 9),
        ("M / BM, 1]", "M / BX, 1]", Code.CASE_EXPRESSION, "unknown name BX", 16),
        ("box: [BM, 64]", "box: [BM]", Code.CASE_DOES_NOT_FIT, "1 values for 2 dimensions", 14),
        ("box: [BM, 64]", "box: [BM, 128]", Code.CASE_DOES_NOT_FIT, "256 bytes wide", 14),
        ("box: [BM, 64]", "box: [512, 64]", Code.CASE_DOES_NOT_FIT, "512", 14),
        ("block: [128, 1, 1]", "block: [2048]", Code.CASE_DOES_NOT_FIT, "at most 1024", 17),
        ("grid:", "cluster: [3, 1, 1]\n      grid:", Code.CASE_DOES_NOT_FIT, "launch.cluster", 16),
        ("shape: [M, N]", "shape: [M, 1099511627776]", Code.CASE_DOES_NOT_FIT, "bytes in all; at most", 9),
        ("shape: [M, N]", "shape: [M, 9000000]", Code.CASE_DOES_NOT_FIT, "elements in all; at most", 9),
        ("[M, N], role", "[M, 9000000], strides: [0, 0], role", Code.CASE_DOES_NOT_FIT, "", 12),
        ("[M, N], role", "[M, N], strides: [1000000000, 1], role", Code.CASE_DOES_NOT_FIT, "bytes in all; at most", 9),
        ("reduction: K", "reduction: 0", Code.CASE_DOES_NOT_FIT, "at least 1", 19),
        ("[N, K], role", "[N, K], strides: [1, 1], role", Code.CASE_DOES_NOT_FIT, "overlap", 11),
        ("role: output}", "role: output, fill: [1, 2, N]}", Code.CASE_DOES_NOT_FIT, "3 numbers for", 12),
        ("shape: [M, N]", "shape: [M, 0]", Code.CASE_DOES_NOT_FIT, "at least 1", 12),
        ("K: 64}", "K: 0.5}", Code.CASE_DOES_NOT_FIT, "not an integer", 10),
    ],
)  # fmt: skip
def test_mistakes_are_named_with_their_place(tmp_path, old, new, code, text, line):
    found = refused(tmp_path, old, new)
    assert found.code is code
    assert text in found.message + found.detail
    assert found.where is not None
    assert found.where.path.endswith("case.yaml")
    assert found.where.line == line


def test_a_tensor_is_filled_number_by_number(tmp_path):
    table = "{dtype: s32, shape: [2, 3], strides: [1, 2], role: scratch, fill: [1, M, N, 4, K / 2, -6]}"
    text = CASE.replace("role: output}", f"role: output}}\n      table: {table}")
    problem = bind(load_case(write_case(tmp_path, text)), {"M": 128})
    image = make_image(problem.tensors["table"], None, 0)
    names = problem.names
    np.testing.assert_array_equal(image.elements(), [[1, 128, names["N"]], [4, names["K"] / 2, -6]])


def test_sizes_that_the_launch_does_not_divide(tmp_path):
    found = refused(tmp_path, "version: 1", "version: 1", {"N": 100})
    assert found.code is Code.CASE_EXPRESSION
    assert "100 / 64 does not come out even" in found.message


def test_sizes_that_are_none_of_the_case(tmp_path):
    assert "no size Q" in refused(tmp_path, "version: 1", "version: 1", {"Q": 1}).message


def test_broken_yaml(tmp_path):
    path = write_case(tmp_path, "version: 1\nsizes: {M: 1\n")
    with pytest.raises(PorterError) as caught:
        load_case(path)
    assert caught.value.diagnostic.code is Code.CASE_NOT_YAML
    assert caught.value.diagnostic.where is not None
    assert caught.value.diagnostic.where.line >= 2


@pytest.mark.parametrize("content", [b"", b"- 1\n- 2\n", b"just text"])
def test_no_mapping(tmp_path, content):
    path = tmp_path / "case.yaml"
    path.write_bytes(content)
    with pytest.raises(PorterError) as caught:
        load_case(path)
    assert caught.value.diagnostic.code is Code.CASE_NOT_YAML


def test_no_text(tmp_path):
    path = tmp_path / "case.yaml"
    path.write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(PorterError) as caught:
        load_case(path)
    assert caught.value.diagnostic.code is Code.NOT_TEXT


def test_a_kernel_that_is_not_there(tmp_path):
    path = write_case(tmp_path)
    (tmp_path / "gemm.cu").unlink()
    with pytest.raises(PorterError) as caught:
        load_case(path)
    assert caught.value.diagnostic.code is Code.FILE_NOT_FOUND


def test_cases_are_found_beside_kernels_and_below_directories(tmp_path):
    one = write_case(tmp_path / "one")
    two = write_case(tmp_path / "two" / "deep")
    second = one.with_name("large.case.yaml")
    second.write_text(one.read_text())
    other = one.with_name("other.case.yaml")
    (one.parent / "other.cu").write_text("")
    other.write_text(one.read_text().replace("gemm.cu", "other.cu"))
    assert cases_of(one.parent / "gemm.cu") == [one, second]
    assert cases_of(one.parent / "other.cu") == [other]
    assert cases_of(tmp_path) == sorted([one, second, other, two])
    assert cases_of(two) == [two]
    assert load_case(second).name == "gemm:large"


def test_no_case(tmp_path):
    (tmp_path / "lonely.cu").write_text("")
    for path in (tmp_path / "lonely.cu", tmp_path):
        with pytest.raises(PorterError) as caught:
            cases_of(path)
        assert caught.value.diagnostic.code is Code.CASE_NOT_FOUND
    with pytest.raises(PorterError) as caught:
        cases_of(tmp_path / "nowhere")
    assert caught.value.diagnostic.code is Code.FILE_NOT_FOUND


def test_a_misspelt_field_is_named_and_not_the_one_it_should_be(tmp_path):
    with pytest.raises(PorterError) as caught:
        load_case(write_case(tmp_path, CASE.replace("launch:", "lanch:")))
    assert caught.value.diagnostic.code is Code.CASE_FIELD
    assert "lanch: unknown field" in str(caught.value)


def test_an_argument_that_is_nothing_of_the_case(tmp_path):
    case = load_case(write_case(tmp_path, CASE.replace("params: [map_a, B", "params: [map_a, X")))
    with pytest.raises(PorterError) as caught:
        bind(case)
    assert caught.value.diagnostic.code is Code.CASE_DOES_NOT_FIT
    assert "X (known: A, B, C, map_a, BM, BN, K, M, N)" in str(caught.value)


def test_include_directories_of_installed_packages(tmp_path):
    text = CASE + '    include_dirs: ["include", "package:numpy/_core/include"]\n'
    found = load_case(write_case(tmp_path, text)).include_dirs
    assert found[0] == tmp_path / "include"
    assert (found[1] / "numpy").is_dir()


@pytest.mark.parametrize("name", ["package:no_such_package/include", "package:", "package:../numpy", "package:os"])
def test_include_directories_of_packages_that_are_not_there(tmp_path, name):
    path = write_case(tmp_path, CASE + f'    include_dirs: ["{name}"]\n')
    with pytest.raises(PorterError) as caught:
        load_case(path)
    assert caught.value.diagnostic.code is Code.FILE_NOT_FOUND
    assert caught.value.diagnostic.where.path == str(path)
