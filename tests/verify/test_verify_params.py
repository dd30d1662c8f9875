# SPDX-License-Identifier: Apache-2.0
import struct

import pytest
from fakes_verify import CASE, module_for, write_case

from porter.diagnostics import Code, PorterError
from porter.ptx import ast
from porter.verify.case import load_case
from porter.verify.params import argument_bytes, check_arguments, scalar_bytes
from porter.verify.problem import bind


def packed(tmp_path, params, declared):
    text = CASE.replace("params: [map_a, B, C, M, N, K]", f"params: {params}")
    problem = bind(load_case(write_case(tmp_path, text)))
    function = ast.Function("gemm", True, tuple(declared), (), ())
    return argument_bytes(problem, function, lambda a: 0x1000, lambda m: bytes(range(128)))


def param(kind, size):
    return ast.Param("p", kind, size, size)


def test_each_kind_of_argument(tmp_path):
    got = packed(
        tmp_path,
        "[map_a, B, M, -1, 0.5, {value: 1.5, type: bf16}, {struct: [{value: 3, type: u8}, C]}, {value: 1, "
        "type: bool}]",
        [param("b8", 128), param("u64", 8), param("u32", 4), param("s32", 4), param("f32", 4), param("b8", 2),
         param("b8", 16), param("u8", 1)],
    )  # fmt: skip
    assert got[0] == bytes(range(128))
    assert got[1] == struct.pack("<Q", 0x1000)
    assert got[2] == struct.pack("<I", 64)
    assert got[3] == b"\xff" * 4
    assert got[4] == struct.pack("<f", 0.5)
    assert got[5] == b"\xc0\x3f"
    assert got[6] == b"\x03" + bytes(7) + struct.pack("<Q", 0x1000)
    assert got[7] == b"\x01"


@pytest.mark.parametrize(
    ("params", "declared", "text"),
    [
        ("[A]", [param("u32", 4)], "params[0] is 8 bytes (the address of A)"),
        ("[map_a]", [param("u64", 8)], "params[0] is 128 bytes (tensor map map_a)"),
        ("[0.5]", [param("u32", 4)], "0.5 is no integer"),
        ("[{value: 1, type: u64}]", [param("u32", 4)], "params[0] is 8 bytes (u64 1)"),
        ("[M ** 8]", [param("u32", 4)], "does not fit in 32 bits"),
        ("[M, N]", [param("u32", 4)], "2 arguments, but the kernel takes 1"),
        ("[{struct: [M]}]", [param("b8", 4)], "needs a type"),
    ],
)
def test_arguments_that_are_not_the_kernels(tmp_path, params, declared, text):
    with pytest.raises(PorterError) as caught:
        packed(tmp_path, params, declared)
    assert caught.value.diagnostic.code is Code.CASE_PARAMETERS
    assert text in str(caught.value)
    assert caught.value.diagnostic.where.line == 18


def test_the_right_arguments_pass(tmp_path):
    problem = bind(load_case(write_case(tmp_path)))
    check_arguments(problem, module_for(problem, "sm_90a").functions[0])


def test_integers_fit_either_way_round_where_the_type_does_not_say():
    assert scalar_bytes(-1, "x32") == scalar_bytes(0xFFFFFFFF, "x32")
    with pytest.raises(ValueError, match="does not fit"):
        scalar_bytes(-1, "u32")
    with pytest.raises(ValueError, match="does not fit"):
        scalar_bytes(1 << 31, "s32")
