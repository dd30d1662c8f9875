# SPDX-License-Identifier: Apache-2.0
"""Host side: the tiled MMA, the number of warpgroups, the epilogue tile."""

from __future__ import annotations

import libcst as cst

from porter.lang.cute_dsl import DslFile, argument, assigned, walk
from porter.model.dsl import names
from porter.model.dsl.scope import Scope, Unrecognized
from porter.passes.dsl.context import TILED_MMA_RULE, UNUSED_RULE, WARPS_RULE, KernelContext


def rewrite_host(k: KernelContext) -> None:
    """Raises Unrecognized."""
    _tiled_mma(k)
    _atom_layout(k)
    _epilogue_tile(k)


def _tiled_mma(k: KernelContext) -> None:
    """One MMA covers the tile's rows and columns; the layout of warpgroups has no counterpart."""
    call, file = k.gemm.host.tiled_mma, k.file
    k.edits.replace(TILED_MMA_RULE, call.func, k.name("cutlass.utils.blackwell_helpers.make_trivial_tiled_mma"))
    group = f"{k.name('cutlass.cute.nvgpu.tcgen05')}.CtaGroup.ONE"
    for position, arg in enumerate(call.args):
        name = arg.keyword.value if arg.keyword is not None else ""
        if name == "atom_layout_mnk" or (not name and position == 5):
            k.edits.replace(TILED_MMA_RULE, file.span(arg), f"cta_group={group}" if name else group)
        elif name == "tiler_mn" or (not name and position == 6):
            text = f"{k.gemm.host.tile}[:2]"
            keyword = bool(call.args[5].keyword)
            k.edits.replace(TILED_MMA_RULE, file.span(arg), f"mma_tiler_mn={text}" if keyword else text)


def _atom_layout(k: KernelContext) -> None:
    """The layout of warpgroups stays as the kernel's count of them: one, whose warps read the accumulator."""
    file, node = k.file, k.gemm.host.atom_layout
    text = file.text(node)
    if isinstance(node, cst.Tuple):
        if text.replace(" ", "") != "(1,1,1)":
            raise Unrecognized(f"the number of warpgroups is written out in `{text}`", node)
        return
    defined = [
        (s, v)
        for f in file.functions()
        for s, v in Scope(file, f).definitions(text)
        if not (isinstance(v, cst.Name) and v.value == "None")
    ]
    if len(defined) != 1:
        raise Unrecognized(f"`{text}` has {len(defined)} definitions; one is ported", node)
    statement, value = defined[0]
    if file.text(value).replace(" ", "") == "(1,1,1)":
        return
    counts = [n for n in walk(file.module) if _counts_warpgroups(file, n, text)]
    if not counts:
        raise Unrecognized(f"no count of threads is derived from `{text}`", statement)
    comment = "# One warpgroup reads the accumulator back, whatever the tile; one of its threads issues the MMAs.\n"
    k.edits.replace_lines(WARPS_RULE, statement, f"{comment}{text} = (1, 1, 1)", comments=True)
    for comparison in _comparisons(file, text):
        parent = file.parent(comparison)
        if assigned(Scope(file, _around(file, comparison)).statement_of(comparison)) is None and not isinstance(
            parent, cst.Arg
        ):
            raise Unrecognized(f"`{file.text(comparison)}` decides on more than the epilogue tile", comparison)


def _counts_warpgroups(file: DslFile, node: cst.CSTNode, text: str) -> bool:
    if not isinstance(node, cst.Call) or not node.args or file.text(node.args[0].value) != text:
        return False
    return file.text(node.func) == "math.prod" or file.call_name(node) in ("math.prod", "cutlass.cute.size")


def _comparisons(file: DslFile, text: str) -> list[cst.Comparison]:
    return [n for n in walk(file.module) if isinstance(n, cst.Comparison) and file.text(n.left) == text]


def _around(file: DslFile, node: cst.CSTNode) -> cst.FunctionDef:
    current = file.parent(node)
    while not isinstance(current, cst.FunctionDef):
        assert current is not None
        current = file.parent(current)
    return current


def _epilogue_tile(k: KernelContext) -> None:
    """The epilogue's subtile spans all rows: each of the four warps of a tcgen05.ld has a quarter of them.

    On Hopper this is the tile of the cooperative kernels, whose two warpgroups have all rows between them.
    """
    file = k.file
    found = False
    for function in file.functions():
        scope = Scope(file, function)
        for call in scope.calls():
            cooperative = argument(call, "is_cooperative")
            if cooperative is not None:
                k.edits.replace(WARPS_RULE, cooperative, "True")
                if isinstance(cooperative, cst.Name):
                    k.edits.drop_unused(UNUSED_RULE, scope)
                found = True
            elif file.call_name(call) == names.EPI_TILE and argument(call, "epi_tile_override", 3) is None:
                last = file.span(call.args[-1])
                end = file.span(call).end - 1
                text = file.source[last.end : end].decode()
                joint = "" if text.strip().startswith(",") or text.strip().endswith(",") else ","
                k.edits.replace(WARPS_RULE, type(last)(last.end, end), f"{joint} is_cooperative=True")
                found = True
        for target in ("self.epi_tile", "epi_tile"):
            for _, value in scope.definitions(target):
                if isinstance(value, cst.Tuple) and len(value.elements) == 2:
                    rows = value.elements[0].value
                    if file.text(rows) != f"{k.gemm.host.tile}[0]":
                        k.edits.replace(WARPS_RULE, rows, f"{k.gemm.host.tile}[0]")
                    found = True
    if not found:
        raise Unrecognized("where the epilogue's tile is chosen was not found", k.gemm.definition)
