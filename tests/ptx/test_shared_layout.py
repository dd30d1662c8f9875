# SPDX-License-Identifier: Apache-2.0
"""Where variables of shared memory lie; sizes as `ptxas -v` tells them."""

from __future__ import annotations

import pytest

from porter.ptx.layout import Variable, lay_out

SMALL, LARGE, THIRD, FOURTH = (4, 4), (256, 128), (40, 8), (16, 1024)


@pytest.mark.parametrize(
    ("own", "of_module", "size"),
    [
        ([SMALL, LARGE, THIRD, FOURTH], [], 1040),
        ([FOURTH, LARGE, THIRD, SMALL], [], 428),
        ([], [SMALL, LARGE], 384),
        ([], [LARGE, SMALL], 260),
        ([LARGE], [SMALL], 260),
        ([SMALL], [LARGE], 384),
        ([LARGE, THIRD, FOURTH], [SMALL], 1044),
    ],
)
def test_the_order_of_variables(own: list[tuple[int, int]], of_module: list[tuple[int, int]], size: int) -> None:
    variables = [Variable(f"m{i}", *sizes, of_module=True) for i, sizes in enumerate(of_module)]
    variables += [Variable(f"own{i}", *sizes) for i, sizes in enumerate(own)]
    assert lay_out(variables).size == size


@pytest.mark.parametrize(("align", "behind"), [(1, 48), (16, 48), (128, 128), (1024, 1024)])
def test_where_dynamic_shared_memory_begins(align: int, behind: int) -> None:
    found = lay_out([Variable("dynamic", 0, align, of_module=True, dynamic=True), Variable("own", 40, 8)])
    assert (found.offsets["dynamic"], found.behind, found.size) == (behind, behind, 40)
    assert lay_out([Variable("dynamic", 0, align, dynamic=True)], moved=64).behind == 64
