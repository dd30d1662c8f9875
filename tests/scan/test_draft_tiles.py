# SPDX-License-Identifier: Apache-2.0
"""Drafts of a kernel of which host code launches one instantiation or another, by what divides a size."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus_kernels import CORPUS

from porter.scan.draft.new import RESULT, launches_in_text
from porter.scan.draft.numbers import Num, const, name
from porter.scan.draft.sizes import choose, dividing, strides_of

SOURCE = (CORPUS / "gemm_struct" / "gemm_struct.cu").read_text()
AT = SOURCE.index("    if (N % 192 == 0) return run")
GIVEN = "(A, B, bias, C, M, N, K, stream)"
RUN = {width: f"run<KernelTraits<{width}, 4>>{GIVEN}" for width in (192, 96, 64)}
WAYS = {
    "in turn": f"if (N % 192 == 0) return {RUN[192]};\nif (N % 96 == 0) return {RUN[96]};\nreturn {RUN[64]};",
    "else": f"if (N % 192 == 0) return {RUN[192]};\nelse if (N % 96 == 0) return {RUN[96]};\nelse return {RUN[64]};",
    "as a truth": f"if (!(N % 192)) return {RUN[192]};\nif (!(N % 96)) return {RUN[96]};\nreturn {RUN[64]};",
    "not at all": f"if (N % 192 != 0) {{\n    if (N % 96 != 0) return {RUN[64]};\n    return {RUN[96]};\n}}\n"
                  f"return {RUN[192]};",
    "a remainder": f"if (N % 192) {{\n    if (N % 96) return {RUN[64]};\n    return {RUN[96]};\n}}\nreturn {RUN[192]};",
    "with others": f"if (N % 192 == 0 && M % 128 == 0) return {RUN[192]};\n"
                   f"if (N % 96 == 0 && N % 192 != 0) return {RUN[96]};\nreturn {RUN[64]};",
    "narrow first": f"if (N % 64 == 0 && N % 96 != 0) return {RUN[64]};\nif (N % 192 != 0) return {RUN[96]};\n"
                    f"return {RUN[192]};",
    "named": f"const int wide = N % 192, half = N % 96;\nif (wide == 0) return {RUN[192]};\n"
             f"if (half == 0) return {RUN[96]};\nreturn {RUN[64]};",
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_each_width_gets_sizes_at_which_it_is_launched(tmp_path: Path, way: str) -> None:
    kernel = tmp_path / "gemm.cu"
    kernel.write_text(f"{SOURCE[:AT]}{WAYS[way]}\n}}\n")
    found = {}
    for draft in launches_in_text(kernel):
        assert draft.guesses.keys() <= RESULT
        found[draft.fields["template"][0]] = draft.fields["sizes"], draft.fields["multiples"]
    assert found.keys() == {f"KernelTraits<{width}, 4>" for width in RUN}
    for template, (sizes, multiples) in found.items():
        width = next(w for w in RUN if f"<{w}," in template)
        assert sizes["N"] % width == 0
        assert multiples["N"] == width
        assert width == 192 or sizes["N"] % 192
        assert width == 64 or sizes["N"] % 96 == 0


def divides(size: str, by: int) -> Num:
    return Num("==", (Num("%", (name(size), const(by))), const(0)))


def test_what_must_not_divide_a_size_is_no_unit_of_it() -> None:
    conditions = [Num("not", (divides("N", 192),)), divides("N", 96)]
    by = strides_of(["M", "N"], [*dividing(conditions), divides("M", 128)], {"N": 96})
    assert by == {"M": 128, "N": 96}
    assert choose(["M", "N"], by, "K", conditions, {}) == ({"M": 256, "N": 96}, True)
