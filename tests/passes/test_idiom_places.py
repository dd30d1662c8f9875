# SPDX-License-Identifier: Apache-2.0
"""MMAs of a collective's member functions and of lambdas: the kernel allocates Tensor Memory, and hands what it adds to
shared memory to those that multiply. Registers that others have hold sums where such a function begins and ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from idiom_kernels import idiomatic, left
from test_idiom_kept import (
    CLEAR,
    CONVERT,
    FIRST,
    LOAD_O,
    LOAD_S,
    MEETS,
    OUTPUT,
    PV,
    QK,
    RESCALE,
    SCORES,
    SOFTMAX,
    STORE_O,
    WAITS,
    order,
    said,
)

from porter.lang.sources import load_sources
from porter.passes.idiom.types import answering
from porter.passes.port import PortOptions, port_sources

DESCRIPTORS, REGISTERS = (4, 3, 1, 0, 1), (32, 3, 1, 1, 1)
TYPES = (SCORES, OUTPUT, DESCRIPTORS, REGISTERS, (2,), (1,))
"""What the compiler says of sums, of operands, of warpgroups, and of each block that it may make nothing of."""
MADE = "        Tensor tSrS = partition_fragment_C(mma_qk, Shape<_128, _64>{});\n"
HEAD = """#include <cute/tensor.hpp>
#include <cutlass/arch/barrier.h>
using namespace cute;
struct Storage { uint64_t full; };
"""
FRAGMENTS = """        auto thread_qk = mma_qk.get_slice(threadIdx.x);
        auto thread_pv = mma_pv.get_slice(threadIdx.x);
        Tensor tSrQ = thread_qk.partition_fragment_A(sQ);
        Tensor tSrK = thread_qk.partition_fragment_B(sK);
        Tensor tOrV = thread_pv.partition_fragment_B(sV);
        Tensor tOrP = thread_pv.partition_fragment_A(make_tensor((half_t*)nullptr, Shape<_128, _64>{}));
        float most = -INFINITY;
"""
STEPS = f"{MADE}{FIRST}{QK}{SOFTMAX}{RESCALE}{CONVERT}{PV}"
LOOP = f"        for (int block = 0; block < blocks; ++block) {{\n{STEPS}        }}\n"
METHOD = """    template <class Q, class K, class V, class Sums>
    CUTE_DEVICE void mma(Q sQ, K sK, V sV, int blocks, Sums& tOrO) {
        Qk mma_qk;
        Pv mma_pv;
"""
CALL = "    mainloop.mma(sQ, sK, sV, blocks, tOrO);\n"
KERNEL = f"""template <class Qk, class Pv, class Q, class K, class V, class O>
__global__ void __launch_bounds__(256) k(Q sQ, K sK, V sV, O gO, int blocks) {{
    __syncthreads();
    Pv mma_pv;
    Tensor tOrO = partition_fragment_C(mma_pv, Shape<_128, _64>{{}});
{CLEAR}    Mainloop<Qk, Pv> mainloop;
{CALL}    copy(tOrO, mma_pv.get_slice(threadIdx.x).partition_C(gO));
}}
"""


def collective(body: str = LOOP, method: str = METHOD) -> str:
    return f"template <class Qk, class Pv>\nstruct Mainloop {{\n{method}{FRAGMENTS}{body}    }}\n}};\n"


def program(body: str = LOOP, kernel: str = KERNEL, method: str = METHOD) -> str:
    return f"{HEAD}{collective(body, method)}{kernel}"


def test_a_member_function_is_handed_what_the_kernel_adds_to_shared_memory(tmp_path: Path) -> None:
    text = idiomatic(tmp_path, program(), TYPES)
    order(
        text, "uint64_t accumulator_full[2], registers_stored[2];", "struct Mainloop {",
        "Sums& tOrO, AccumulatorStorage& accumulator_storage) {", "auto umma_qk = make_tiled_mma(",
        "tmem_own = accumulator_storage.tmem_base", "const int own_warp =", "int registers_phase = 0;", "tOtO.data()",
        "for (int block", MEETS, "gemm(umma_qk", WAITS, LOAD_S, SOFTMAX, STORE_O, MEETS, "gemm(umma_pv, tOtP,", WAITS,
        LOAD_O, "__global__", "__shared__ AccumulatorStorage accumulator_storage;", "tmem.allocate(256,",
        "mainloop.mma(sQ, sK, sV, blocks, tOrO, accumulator_storage);", "tmem.free(", "copy(tOrO,",
    )  # fmt: skip
    assert text.count(LOAD_O) == text.count(STORE_O) == text.count("make_tiled_mma(") / 2 == 1


def test_registers_of_the_caller_hold_sums_where_the_function_begins_and_ends(tmp_path: Path) -> None:
    text = idiomatic(tmp_path, program(LOOP.replace(RESCALE, "")), TYPES)
    order(text, STORE_O, "for (int block", "gemm(umma_pv", "        }\n", LOAD_O, "__global__")
    assert text.count(LOAD_O) == text.count(STORE_O) == 1


def test_phases_go_on_from_call_to_call(tmp_path: Path) -> None:
    kernel = KERNEL.replace(CALL, f"    for (int tile = 0; tile < 2; ++tile) {{\n    {CALL}    }}\n")
    text = idiomatic(tmp_path, program(kernel=kernel), TYPES)
    order(
        text,
        "AccumulatorStorage& accumulator_storage, int& registers_phase, int& accumulator_phase) {",
        "int registers_phase = 0, accumulator_phase = 0;\n    for (int tile",
        "tOrO, accumulator_storage, registers_phase, accumulator_phase);",
    )
    assert text.count("_phase = 0") == 2


def test_a_lambda_is_looked_at_on_its_own(tmp_path: Path) -> None:
    body = f"        auto step = [&](int block) {{\n{STEPS}        }};\n"
    body += "        for (int block = 0; block < blocks; ++block) step(block);\n"
    text = idiomatic(tmp_path, program(body), TYPES)
    order(
        text, "int registers_phase = 0;", "auto step = [&](int block) {", MEETS, "gemm(umma_qk", WAITS, LOAD_S, SOFTMAX,
        STORE_O, MEETS, "gemm(umma_pv, tOtP,", WAITS, LOAD_O, "};", "step(block);",
    )  # fmt: skip


def test_what_calls_of_a_lambda_do_with_registers_is_done_there(tmp_path: Path) -> None:
    body = f"        auto step = [&](int block) {{\n{STEPS}        }};\n        step(0);\n{PV.replace('block', '1')}"
    text = idiomatic(tmp_path, program(f"{body}        step(1);\n"), (*TYPES, (1,)))
    order(text, LOAD_O, "};", "step(0);", STORE_O, "gemm(umma_pv", WAITS, LOAD_O, "step(1);")


def test_two_functions_have_columns_each_and_one_allocation(tmp_path: Path) -> None:
    second = METHOD.replace("void mma(", "void tail(")
    both = collective().replace("    }\n};\n", f"    }}\n{second}{FRAGMENTS}{LOOP}    }}\n}};\n")
    kernel = KERNEL.replace(CALL, f"{CALL}{CALL.replace('.mma', '.tail')}")
    text = idiomatic(tmp_path, f"{HEAD}{both}{kernel}", (*TYPES[:4], *TYPES[:4], (2,), (1,), (1,)))
    assert text.count("tmem.allocate(256,") == text.count("int registers_phase = 0, accumulator_phase = 0;") == 1
    assert text.count("int& registers_phase, int& accumulator_phase) {") == text.count(LOAD_O.rstrip(",")) == 2


@pytest.mark.parametrize("own", ["", "    warpgroup_wait<0>();\n"])
def test_sums_of_the_kernels_own_mmas_are_in_registers_where_it_calls_others(tmp_path: Path, own: str) -> None:
    """MMAs that are pending there would complete a phase more."""
    mmas = PV.replace("        ", "    ").replace("block", "0").replace("    warpgroup_wait<0>();\n", own)
    fragments = """    auto thread_pv = mma_pv.get_slice(threadIdx.x);
    Tensor tOrV = thread_pv.partition_fragment_B(sV);
    Tensor tOrP = thread_pv.partition_fragment_A(make_tensor((half_t*)nullptr, Shape<_128, _64>{}));
"""
    kernel = KERNEL.replace(CALL, f"{fragments}{mmas}{CALL}    warpgroup_wait<0>();\n")
    types = (OUTPUT, REGISTERS, *TYPES[:4], (2,), (1,))
    if own:
        text = idiomatic(tmp_path, program(kernel=kernel), types)
        text = text[text.index("__global__") :]
        order(text, MEETS, "gemm(umma_pv", WAITS, "copy(load_O", "mainloop.mma(", "tmem.free(")
        assert text.count(WAITS) == 1
    else:
        assert "a wait for the MMAs of `tOrO` in front of what uses it" in left(tmp_path, program(kernel=kernel), types)


def test_the_type_of_what_is_handed_is_declared_in_front_of_all(tmp_path: Path) -> None:
    """A kernel may be a template in a header of its own, which knows its collective by a parameter."""
    (tmp_path / "mainloop.h").write_text(f"#include <cute/tensor.hpp>\nusing namespace cute;\n{collective()}")
    kernel = KERNEL.replace("class O>", "class O, class Loop>").replace("Mainloop<Qk, Pv> mainloop", "Loop mainloop")
    (tmp_path / "kernel.h").write_text(f"#include <cute/tensor.hpp>\nusing namespace cute;\n{kernel}")
    path = tmp_path / "kernel.cu"
    path.write_text('#include "kernel.h"\n#include "mainloop.h"\n')
    files = port_sources(load_sources(path), PortOptions(types=answering(*TYPES))).files
    assert "struct alignas(1024) AccumulatorStorage {" in files[str(tmp_path / "kernel.h")].decode()
    assert "AccumulatorStorage& accumulator_storage)" in files[str(tmp_path / "mainloop.h")].decode()


def test_the_branches_of_a_condition_store_what_registers_hold_each(tmp_path: Path) -> None:
    loop = LOOP.replace(RESCALE, "").replace("        }\n", "        }\n", 1)
    text = idiomatic(
        tmp_path,
        program(f"        if (blocks > 1) {{\n{loop}        }} else {{\n{PV.replace('block', '0')}        }}\n"),
        TYPES,
    )
    order(text, STORE_O, "for (int block", LOAD_O, "} else {", STORE_O, "gemm(umma_pv", WAITS, LOAD_O)


def test_the_kernels_own_struct_is_named_as_the_function_has_it(tmp_path: Path) -> None:
    method = METHOD.replace("int blocks, Sums& tOrO", "int blocks, Storage* shared, Sums& tOrO")
    kernel = KERNEL.replace("    __syncthreads", "    extern __shared__ char memory[];\n"
                            "    Storage& storage = *(Storage*)memory;\n    __syncthreads")  # fmt: skip
    kernel = kernel.replace("blocks, tOrO);", "blocks, &storage, tOrO);")
    host = "void launch() { k<int, int><<<1, 256, sizeof(Storage)>>>(0, 0, 0, 0, 8); }\n"
    text = idiomatic(tmp_path, program(kernel=kernel, method=method) + host, TYPES)
    assert (
        "struct Storage { uint64_t full; uint64_t accumulator_full[2], registers_stored[2]; uint32_t tmem_base; };"
        in text
    )
    assert "tmem_own = shared->tmem_base + (warpgroup % 2 << 20);" in text
    assert "AccumulatorStorage" not in text


@pytest.mark.parametrize(
    ("old", "new", "missing"),
    [
        (LOOP, LOOP + "        if (most > 0) return;\n" + PV.replace("block", "0"), "one end of `mma` behind its MMAs"),
        ("Sums& tOrO)", "Sums& tOrO, int more = 0)", "with all its parameters where it is defined"),
        (CALL, f"    warpgroup_wait<0>();\n{CALL}", "batches that are opened and waited for where MMAs stand"),
        ("template <class Qk", "namespace own {\ntemplate <class Qk", "in the namespace of `mma`"),
    ],
)  # fmt: skip
def test_what_is_left(tmp_path: Path, old: str, new: str, missing: str) -> None:
    text = program()
    assert old in text
    text = text.replace(old, new, 1)
    if "namespace" in new:
        text = text.replace("__global__", "} using namespace own;\n__global__", 0).replace(
            "};\ntemplate", "};\n}\nusing namespace own;\ntemplate"
        )
    if missing:
        assert missing in left(tmp_path, text, TYPES)
    else:
        idiomatic(tmp_path, text, TYPES)


def test_registers_that_a_function_is_handed_say_how_many_mmas_their_tile_has(tmp_path: Path) -> None:
    """Tiles of 128 rows and of 256, each for two warpgroups."""
    path = tmp_path / "kernel.cu"
    multiply = QK.replace("tSrS", "tOrO").replace("        ", "            ")
    path.write_text(program(f"        for (int block = 0; block < blocks; ++block) {{\n{multiply}        }}\n"))
    options = said((SCORES, (2, *SCORES[1:])), (DESCRIPTORS,), ((2,),), ((1,),))
    text = port_sources(load_sources(path), options).files[str(path)].decode()
    shape = "make_shape(tile_size<0>(umma_qk) * size<1>(tOrO), tile_size<1>(umma_qk))"
    assert f"Tensor tOtO = partition_fragment_C(umma_qk, {shape});" in text
    assert "tmem_own = accumulator_storage.tmem_base + warpgroup * 64;" in text
