# SPDX-License-Identifier: Apache-2.0
"""The epilogue reads the accumulator subtile by subtile from Tensor Memory; then Tensor Memory is given back."""

from __future__ import annotations

import textwrap

import libcst as cst

from porter.lang.cute_dsl import Statement, argument, assigned, body_of
from porter.model.dsl import names
from porter.model.dsl.counts import count_that_may_be_zero
from porter.model.dsl.promotion import Promotion
from porter.model.dsl.scope import Unrecognized
from porter.passes.dsl.context import EPILOGUE_RULE, LIFETIME_RULE, KernelContext
from porter.passes.dsl.promotion import anchor_of, registers_text


def rewrite_epilogue(k: KernelContext, promotion: Promotion | None = None) -> None:
    """With `promotion` the epilogue reads registers that the threads added up.

    Raises:
        Unrecognized: a statement that the port does not know.
    """
    retile, copy_name, view = _retile(k) if promotion is None else _retile_of(k, promotion.total)
    loop, registers, index = _element_loop(k, view)
    _tiled_copies(k, copy_name, promotion)
    k.edits.delete(EPILOGUE_RULE, retile)
    _registers(k, registers, copy_name, k.t2r_target)
    cute = k.name("cutlass.cute")
    if promotion is None:
        text = (
            f"{cute}.copy({k.t2r}, {k.t2r_source}[(None, None, None, {index})], {k.t2r_target})\n"
            f"{cute}.arch.fence_view_async_tmem_load()"
        )
        if (count := count_that_may_be_zero(k.gemm)) is not None:
            text = f"if {count} > 0:\n{textwrap.indent(text, '    ')}\nelse:\n    {k.t2r_target}.fill(0)"
    else:
        text = f"{k.t2r_target}.store({promotion.total}[(None, None, (None, {index}))].load())"
    k.edits.replace_lines(EPILOGUE_RULE, loop, text)
    _lifetime(k, loop, released=promotion is not None)


def _retile(k: KernelContext) -> tuple[Statement, str, str]:
    """`view = tiled_copy.retile(accumulator)`: the statement, the copy and the view."""
    gemm = k.gemm
    found: list[tuple[Statement, str, str]] = []
    for use in gemm.kernel.uses(gemm.accumulator):
        statement = gemm.kernel.statement_of(use)
        if k.edits.removed(use) or any(statement is loop.gemm for loop in gemm.loops):
            continue
        if (made := _retiled(k, use)) is None:
            raise Unrecognized(f"this use of `{gemm.accumulator}`", statement)
        found.append(made)
    if len(found) != 1:
        where = found[-1][0] if found else gemm.definition
        raise Unrecognized("the epilogue does not retile the accumulator for its copy to shared memory", where)
    return found[0]


def _retile_of(k: KernelContext, name: str) -> tuple[Statement, str, str]:
    """As `_retile`, of registers that have other uses too."""
    found = [made for use in k.gemm.kernel.uses(name) if (made := _retiled(k, use)) is not None]
    if len(found) != 1:
        raise Unrecognized(f"`{name}` is retiled {len(found)} times for the copy to shared memory", k.gemm.definition)
    return found[0]


def _retiled(k: KernelContext, use: cst.Name) -> tuple[Statement, str, str] | None:
    statement = k.gemm.kernel.statement_of(use)
    pair = assigned(statement)
    call = pair[1] if pair is not None else None
    if pair is not None and isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute) and (
        call.func.attr.value == "retile" and call.args[0].value is use
    ):
        return statement, k.file.text(call.func.value), k.file.text(pair[0])
    return None


def _element_loop(k: KernelContext, view: str) -> tuple[cst.For, str, str]:
    """`for v in range(size): registers[v] = view[index * size + v]`: the loop, the registers and the index."""
    gemm = k.gemm
    uses = gemm.kernel.uses(view)
    if len(uses) != 1:
        raise Unrecognized(f"`{view}` is not read in one place", uses[-1] if uses else gemm.definition)
    statement = gemm.kernel.statement_of(uses[0])
    around = gemm.kernel.ancestors(statement)
    pair = assigned(statement)
    if pair is None or not around or not isinstance(around[0], cst.For) or body_of(around[0]) != [statement]:
        raise Unrecognized(f"`{view}` is not copied element by element", statement)
    target, value = pair
    index = _subscript(value)
    if not isinstance(target, cst.Subscript) or not isinstance(index, cst.BinaryOperation):
        raise Unrecognized(f"`{k.file.text(value)}` is no element of a subtile", statement)
    tile = index.left
    if not isinstance(index.operator, cst.Add) or not isinstance(tile, cst.BinaryOperation):
        raise Unrecognized(f"`{k.file.text(value)}` is no element of a subtile", statement)
    if not isinstance(tile.operator, cst.Multiply) or k.file.text(index.right) != k.file.text(around[0].target):
        raise Unrecognized(f"`{k.file.text(value)}` is no element of a subtile", statement)
    return around[0], k.file.text(target.value), k.file.text(tile.left)


def _subscript(node: cst.BaseExpression) -> cst.BaseExpression | None:
    if isinstance(node, cst.Subscript) and len(node.slice) == 1:
        item = node.slice[0].slice
        if isinstance(item, cst.Index):
            return item.value
    return None


def _tiled_copies(k: KernelContext, copy_name: str, promotion: Promotion | None) -> None:
    """The copy to shared memory follows the layout in which tcgen05.ld delivers."""
    t2r, source, target = k.t2r, k.t2r_source, k.t2r_target
    gemm, file, scope = k.gemm, k.file, k.gemm.kernel
    found = scope.definition(copy_name)
    made = found[1] if found is not None else None
    if not isinstance(made, cst.Call) or file.call_name(made) not in (
        "cutlass.cute.make_tiled_copy_S",
        "cutlass.cute.make_tiled_copy_C",
    ):
        raise Unrecognized(f"`{copy_name}` is not made by make_tiled_copy_S or make_tiled_copy_C", gemm.definition)
    assert found is not None
    atom = made.args[0].value
    atom_definition = scope.definition(file.text(atom))
    layout, dtype, accumulator = _store_types(k, atom, atom_definition)
    cute, helpers = k.name("cutlass.cute"), k.name("cutlass.utils.blackwell_helpers")
    tile = _epilogue_tile(k)
    thread, shared = _thread_and_shared(k, copy_name)
    divided = k.context.fresh("tAcc_epi")
    load = k.context.fresh("copy_atom_t2r")
    slice_ = k.thr_t2r
    sliced = f"{t2r}.get_slice({thread})"
    if len(slice_) + len(sliced) + len(file.indent(found[0])) > 84:
        sliced = f"{t2r}.get_slice(\n    {thread}\n)"
    text = f"""
# Tensor Memory to registers, one subtile at a time
{load} = {helpers}.get_tmem_load_op(
    {gemm.host.tile},
    {layout},
    {dtype},
    {accumulator},
    {tile},
    False,
)
# (EPI_TILE_M, EPI_TILE_N, EPI_M, EPI_N)
{divided} = {cute}.flat_divide({gemm.accumulator}[((None, None), 0, 0)], {tile})
{t2r} = {k.name('cutlass.cute.nvgpu.tcgen05')}.make_tmem_copy(
    {load}, {divided}[(None, None, 0, 0)]
)
{slice_} = {sliced}
# (T2R, T2R_M, T2R_N, (EPI_M, EPI_N))
{source} = {cute}.group_modes({slice_}.partition_S({divided}), 3, 5)
# (T2R, T2R_M, T2R_N)
{target} = {cute}.make_rmem_tensor(
    {slice_}.partition_D({shared})[(None, None, None, 0)].shape, {accumulator}
)

"""
    first = atom_definition[0] if atom_definition is not None else found[0]
    if promotion is not None:
        first = anchor_of(k, promotion, first)
        text = text.rstrip("\n") + registers_text(k, promotion, tile, file.span(first).start)
    k.edits.insert_before(EPILOGUE_RULE, first, text, gap=True)
    store = f"{helpers}.get_smem_store_op(\n    {layout}, {dtype}, {accumulator}, {t2r}\n)"
    if atom_definition is not None:
        name = file.text(atom)
        k.edits.replace_lines(EPILOGUE_RULE, atom_definition[0], f"\n{name} = {store}")
        store = name
    target_name = file.text(assigned(found[0])[0])  # type: ignore[index]
    k.edits.replace_lines(
        EPILOGUE_RULE, found[0], f"{target_name} = {cute}.make_tiled_copy_D({store}, {t2r})"
    )


def _store_types(
    k: KernelContext, atom: cst.BaseExpression, found: tuple[Statement, cst.BaseExpression] | None
) -> tuple[str, str, str]:
    """Layout of the output, its type, and the accumulator's type, from how the store atom is made."""
    file = k.file
    made = found[1] if found is not None else atom
    accumulator = file.text(k.gemm.registers.args[1].value)
    if isinstance(made, cst.Call) and file.call_name(made) in names.STORE_OPS:
        layout, dtype = argument(made, "layout_d", 0), argument(made, "elem_ty_d", 1)
        if layout is not None and dtype is not None:
            return file.text(layout), file.text(dtype), accumulator
    if isinstance(made, cst.Call) and file.call_name(made) == "cutlass.cute.make_copy_atom" and len(made.args) == 2:
        op = made.args[0].value
        if isinstance(op, cst.Call) and file.call_name(op) == "cutlass.cute.nvgpu.warp.StMatrix8x8x16bOp":
            transposed = file.text(op.args[0].value)
            if transposed.endswith(".is_m_major_c()"):
                return transposed.removesuffix(".is_m_major_c()"), file.text(made.args[1].value), accumulator
    raise Unrecognized(f"how `{file.text(atom)}` stores to shared memory", made)


def _epilogue_tile(k: KernelContext) -> str:
    scope = k.gemm.kernel
    calls = [c for name in ("zipped_divide", "flat_divide") for c in scope.calls_of(f"cutlass.cute.{name}")]
    tiles = {k.file.text(c.args[1].value) for c in calls if len(c.args) == 2}
    if len(tiles) != 1:
        raise Unrecognized(f"{len(tiles)} divisions of the output into epilogue tiles", k.gemm.definition)
    return tiles.pop()


def _thread_and_shared(k: KernelContext, copy_name: str) -> tuple[str, str]:
    """The thread's number in the epilogue, and the tensor in shared memory that it writes to."""
    scope, file = k.gemm.kernel, k.file
    for call in scope.method_calls(copy_name, "get_slice"):
        pair = assigned(scope.statement_of(call))
        if pair is None:
            continue
        for partition in scope.method_calls(file.text(pair[0]), "partition_D"):
            return file.text(call.args[0].value), file.text(partition.args[0].value)
    raise Unrecognized(f"`{copy_name}` is not sliced and partitioned", k.gemm.definition)


def _registers(k: KernelContext, registers: str, copy_name: str, target: str) -> None:
    """The registers of the copy to shared memory are those that tcgen05.ld wrote."""
    scope, file = k.gemm.kernel, k.file
    found = scope.definition(registers)
    made = found[1] if found is not None else None
    if found is None or not isinstance(made, cst.Call) or file.call_name(made) not in (
        *names.REGISTERS, *names.REGISTERS_LIKE
    ):  # fmt: skip
        where = found[0] if found else k.gemm.definition
        raise Unrecognized(f"`{registers}` is not made by cute.make_rmem_tensor", where)
    shape = file.text(made.args[0].value)
    k.edits.replace_lines(EPILOGUE_RULE, found[0], f"{registers} = {copy_name}.retile({target})")
    cute = k.name("cutlass.cute")
    for statement in scope.statements:
        pair = assigned(statement)
        call = pair[1] if pair is not None else None
        if statement is found[0] or not isinstance(call, cst.Call) or not call.args:
            continue
        if file.call_name(call) in (*names.REGISTERS, *names.REGISTERS_LIKE) and file.text(call.args[0].value) == shape:
            dtype = file.text(call.args[1].value)
            k.edits.replace(EPILOGUE_RULE, call, f"{cute}.make_rmem_tensor({registers}.shape, {dtype})")


def _lifetime(k: KernelContext, loop: cst.For, released: bool) -> None:
    """The accumulator is free when all threads have read it, Tensor Memory when no tile is left."""
    gemm, scope, file = k.gemm, k.gemm.kernel, k.file
    subtiles = next((a for a in scope.ancestors(loop) if a in gemm.block), None)
    if not isinstance(subtiles, cst.For):
        raise Unrecognized("the loop over subtiles does not stand beside the loops over k tiles", loop)
    free = f"{k.tmem_barrier}.arrive_and_wait()\n{k.tmem}.free({k.tmem_ptr})"
    if gemm.tile_loop is not None and not released:
        k.edits.insert_after(
            LIFETIME_RULE,
            subtiles,
            f"{k.acc_pipeline}.consumer_release({k.acc_consumer})\n{k.acc_consumer}.advance()",
        )
    last: Statement = gemm.tile_loop if gemm.tile_loop is not None else _last(gemm.block)
    text = "\n# No thread reads the accumulator any more\n" + free
    if not scope.method_calls(gemm.pipeline, "producer_tail"):
        text += (
            f"\n\n# Commits still arrive at the buffers' barriers; the block must not end before\n"
            f"if {gemm.warp} == {gemm.issuer}:\n"
            f"    {gemm.pipeline}.producer_tail({gemm.producer_state})"
        )
    indent = file.indent(last)
    at = file.whole_lines(last)
    k.edits.replace(LIFETIME_RULE, type(at)(at.end, at.end), _indented(text, indent))


def _last(block: list[Statement]) -> Statement:
    """The last statement that is no return."""
    for statement in reversed(block):
        if not (isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[0], cst.Return)):
            return statement
    return block[-1]


def _indented(text: str, indent: str) -> str:
    return "".join(indent + line + "\n" if line.strip() else "\n" for line in text.split("\n"))
