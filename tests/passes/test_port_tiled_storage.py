# SPDX-License-Identifier: Apache-2.0
"""Shared memory of the port's mbarriers: what is asked about it, and where it is by request."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.diagnostics import ExitCode
from porter.lang.sources import load_sources
from porter.passes.helpers import Placement
from porter.passes.port import PortOptions, port_sources

STRUCT = "struct Storage {\n  alignas(1024) half_t a[64 * 64];\n  uint64_t full[2];\n};\n"
TAKEN = "  auto& storage = *reinterpret_cast<Storage*>(smem);\n"
BOUNDS = "__launch_bounds__(128)"
HEAD = """#include <cute/tensor.hpp>
using namespace cute;
using Mma = decltype(make_tiled_mma(SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{}));
"""
ARRAY = "  extern __shared__ char smem[];\n"
BODY = """  Mma mma;
  auto thr = mma.get_slice(threadIdx.x);
  Tensor tA = thr.partition_fragment_A(a);
  Tensor tB = thr.partition_fragment_B(b);
  Tensor acc = partition_fragment_C(mma, Shape<_64, _64>{});
  warpgroup_arrive();
  gemm(mma, tA, tB, acc);
  warpgroup_commit_batch();
  warpgroup_wait<0>();
  copy(acc, thr.partition_C(out));
}
"""


def kernel(struct: str = STRUCT, taken: str = TAKEN, bounds: str = BOUNDS, array: str = ARRAY, name: str = "k") -> str:
    head = f"template <class A, class B, class C>\n__global__ void {bounds} {name}(A a, B b, C out, int n) {{\n"
    return f"{struct}{head}{array}{taken}{BODY}"


def made(tmp_path: Path, text: str, storage: str = "") -> tuple[str, str]:
    """The port, or what is refused."""
    path = tmp_path / "kernel.cu"
    path.write_text(HEAD + text)
    result = port_sources(load_sources(path), PortOptions(placement=Placement(storage=storage)))
    if result.exit_code is not ExitCode.OK:
        return "", "\n".join(d.message for d in result.diagnostics)
    return result.files[str(path)].decode(), ""


OWN = "static_assert(porter::SharedBytes<sizeof({}) + sizeof(tmem_shared), 232448>::kFit);"


@pytest.mark.parametrize(
    ("taken", "kind"),
    [
        (TAKEN, "Storage"),
        ("  auto& storage = reinterpret_cast<Storage&>(smem);\n", "Storage"),
        ("  auto* storage = reinterpret_cast<Storage*>(&smem[0]);\n", "Storage"),
        ("  auto& storage = *(Storage*)smem;\n", "Storage"),
        ("  using S = Storage;\n  S& storage = *reinterpret_cast<S*>(smem);\n", "S"),
        ("  auto& storage = *reinterpret_cast<typename A::Storage*>(smem);\n", "typename A::Storage"),
        ("  auto* bytes = reinterpret_cast<uint8_t*>(smem);\n", ""),
        ("  auto* bytes = reinterpret_cast<char*>(smem);\n", ""),
        ("", ""),
    ],
)
def test_whether_it_fits_is_asked_where_the_kernels_own_has_a_type(tmp_path: Path, taken: str, kind: str) -> None:
    text, _ = made(tmp_path, kernel(taken=taken))
    assert "__shared__ porter::Shared<1, 2> tmem_shared;" in text
    assert ("SharedBytes" in text) == bool(kind)
    assert not kind or OWN.format(kind) in text


@pytest.mark.parametrize("taken", [TAKEN, "  auto& storage = reinterpret_cast<Storage&>(smem);\n"])
@pytest.mark.parametrize(
    "struct", [STRUCT, STRUCT.replace("\n", "") + "\n", "namespace own {\n" + STRUCT + "}\nusing own::Storage;\n"]
)
def test_a_struct_takes_it_by_request(tmp_path: Path, taken: str, struct: str) -> None:
    text, _ = made(tmp_path, kernel(struct, taken), "Storage")
    body = text.split("struct Storage {")[1].split("};")[0]
    assert body.rstrip().endswith(
        "uint64_t full[2];" + ("\n  " if "\n" in body else " ") + "porter::Slots<1, 2> tmem_shared;"
    )
    assert "__shared__ porter" not in text
    assert "porter::Slots<1, 2>& tmem_shared = reinterpret_cast<Storage*>(smem)->tmem_shared;" in text
    assert "static_assert(porter::SharedBytes<sizeof(Storage), 232448>::kFit);" in text
    assert "porter::Tmem<acc_columns, 1, 2> tmem(tmem_shared);" in text
    assert text.index('#include "cute_sm100.hpp"') < text.index("struct Storage")


def test_kernels_that_share_a_struct_share_the_member(tmp_path: Path) -> None:
    text, _ = made(tmp_path, kernel() + kernel("", name="second"), "Storage")
    assert text.count("porter::Slots<1, 2> tmem_shared;") == 1
    assert text.count("porter::Slots<1, 2>& tmem_shared = ") == 2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (kernel(taken=""), "`k` does not take its dynamic shared memory for it"),
        (kernel(taken=TAKEN.replace("Storage*", "Other*")), "`k` does not take its dynamic shared memory for it"),
        (kernel(struct=""), "there is no such struct"),
        (kernel(struct=STRUCT.replace("struct", "union")), "there is no such struct"),
        (kernel(struct=STRUCT + "namespace other {\n" + STRUCT + "}\n"), "there are several of them"),
        (kernel() + kernel("", bounds="__launch_bounds__(256)", name="second"), "kernels that use it differ"),
    ],
)
def test_refused_by_name(tmp_path: Path, text: str, why: str) -> None:
    _, told = made(tmp_path, text, "Storage")
    assert f"`Storage` cannot take the port's mbarriers: {why}" in told


NESTED = "struct Kernel {\n  struct Storage {\n    uint64_t full[2];\n  };\n};\n"


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [
        ("Kernel::Storage", "Kernel::Storage"),
        ("own::Kernel::Storage", "own::Kernel::Storage"),
        ("second::Storage", "own::second::Storage"),
        ("own::second::Storage", "own::second::Storage"),
        ("Plain::Storage", "Plain<A>::Storage"),
    ],
)
def test_names_in_front_choose_among_structs(tmp_path: Path, wanted: str, taken: str) -> None:
    others = f"struct Storage {{\n  int n;\n}};\nnamespace own {{\n{NESTED}namespace second {{\n{STRUCT}}}\n}}\n"
    plain = "template <class T>\nstruct Plain {\n  struct Storage {\n    T first;\n  };\n};\nusing namespace own;\n"
    taken = f"  auto& storage = *reinterpret_cast<{taken}*>(smem);\n"
    text, _ = made(tmp_path, others + plain + kernel("", taken), wanted)
    assert text.count("porter::Slots<1, 2> tmem_shared;") == 1
    last = {"Kernel": "full[2];\n    ", "second": "full[2];\n  ", "Plain": "T first;\n    "}[wanted.split("::")[-2]]
    assert f"{last}porter::Slots<1, 2> tmem_shared;\n" in text


@pytest.mark.parametrize("wanted", ["Other::Storage", "Kernel::own::Storage", "Storage::Storage", "own::Storage"])
def test_names_in_front_of_no_struct(tmp_path: Path, wanted: str) -> None:
    _, told = made(tmp_path, kernel("namespace own {\n" + NESTED + "}\n" + STRUCT), wanted)
    assert f"`{wanted}` cannot take the port's mbarriers: there is no such struct" in told
