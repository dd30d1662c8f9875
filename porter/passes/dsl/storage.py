# SPDX-License-Identifier: Apache-2.0
"""Barriers and pipelines: commits release the buffers, a second pipeline hands the accumulator over."""

from __future__ import annotations

import re

import libcst as cst

from porter.lang.cute_dsl import argument, assigned, called, walk
from porter.model.dsl import names
from porter.model.dsl.scope import Unrecognized
from porter.passes.dsl.context import PIPELINE_RULE, RESIDENCY_RULE, STORAGE_RULE, KernelContext


def rewrite_pipelines(k: KernelContext) -> None:
    """Raises Unrecognized."""
    _storage_fields(k)
    _mainloop_pipeline(k)
    _accumulator_pipeline(k)
    _accumulator(k)


def _storage_fields(k: KernelContext) -> None:
    cute, cutlass = k.name("cutlass.cute"), k.name("cutlass")
    k.edits.insert_after(
        STORAGE_RULE,
        k.gemm.struct_field,
        f"{k.acc_field}: {cute}.struct.MemRange[{cutlass}.Int64, 2]\n{k.tmem_field}: {cutlass}.Int32",
    )


def _mainloop_pipeline(k: KernelContext) -> None:
    """A buffer is released by one commit of each CTA that reads it, not by every warp."""
    gemm, file = k.gemm, k.file
    func = gemm.create_call.func
    k.edits.replace(PIPELINE_RULE, func, f"{k.name('cutlass.pipeline')}.PipelineTmaUmma.create")
    tidx = next((a for a in gemm.create_call.args if a.keyword and a.keyword.value == "tidx"), None)
    if tidx is not None:
        # PipelineTmaUmma has no such argument: its consumer is one warp.
        lines = file.whole_lines(tidx)
        if file.source[lines.start : lines.end].strip().rstrip(b",") != file.text(tidx).encode():
            raise Unrecognized("the argument `tidx` does not stand on a line of its own", tidx)
        k.edits.replace(PIPELINE_RULE, lines, "")
    given = argument(gemm.create_call, "consumer_group")
    group = gemm.kernel.resolve(given) if given is not None else None
    if not isinstance(group, cst.Call) or file.call_name(group) != names.COOPERATIVE_GROUP:
        raise Unrecognized("the consumers of the pipeline are no CooperativeGroup", gemm.create)
    count = argument(group, "size", 1)
    if count is None:
        return
    found = gemm.kernel.definition(file.text(count)) if isinstance(count, cst.Name) else None
    layout = argument(gemm.create_call, "cta_layout_vmnk")
    value = _multicast_factor(k, found[1] if found else count)
    if value is None:
        value = "1"
        if layout is not None and not re.search(r"\(\(1, 1, 1, 1\)\)", file.text(layout)):
            text, size = file.text(layout), f"{k.name('cutlass.cute')}.size"
            value = f"{size}({text}, mode=[1]) + {size}({text}, mode=[2]) - 1"
    if found is None:
        k.edits.replace(PIPELINE_RULE, count, value)
        return
    name = file.text(count)
    if "warp" in name and len(gemm.kernel.uses(name)) == 1:
        k.edits.replace(PIPELINE_RULE, count, value)
        k.edits.delete(PIPELINE_RULE, found[0])
        return
    comment = "# A buffer is free when the MMAs of every CTA that reads it are done: one commit each.\n"
    k.edits.replace_lines(PIPELINE_RULE, found[0], f"{comment}{name} = {value}")
    if _says_warps(k, found[0]):
        above = file.comments_above(found[0])
        k.edits.replace(PIPELINE_RULE, above, "")
    for statement in gemm.kernel.block(found[0]):
        # A comment on the count of warps may stand above one of the count's factors.
        pair = assigned(statement)
        if pair is not None and file.text(pair[0]) in value and _says_warps(k, statement):
            k.edits.replace(PIPELINE_RULE, file.comments_above(statement), "")


def _says_warps(k: KernelContext, statement: cst.CSTNode) -> bool:
    span = k.file.comments_above(statement)
    text = k.file.source[span.start : span.end]
    return bool(re.search(rb"\b(?:[Ee]ach|[Ee]very) warp", text))


def _multicast_factor(k: KernelContext, value: cst.BaseExpression) -> str | None:
    """The factor of a product that counts CTAs: a sum less one."""
    if isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Multiply):
        return _multicast_factor(k, value.left) or _multicast_factor(k, value.right)
    meant = k.gemm.kernel.resolve(value)
    if isinstance(meant, cst.BinaryOperation) and isinstance(meant.operator, cst.Subtract):
        return k.file.text(value)
    return None


def _accumulator_pipeline(k: KernelContext) -> None:
    gemm = k.gemm
    pipeline, utils = k.name("cutlass.pipeline"), k.name("cutlass.utils")
    layout = argument(gemm.create_call, "cta_layout_vmnk")
    deferred = argument(gemm.create_call, "defer_sync")
    more = f"    cta_layout_vmnk={k.file.text(layout)},\n" if layout is not None else ""
    more += f"    defer_sync={k.file.text(deferred)},\n" if deferred is not None else ""
    barrier = _free_barrier(k)
    owner = "" if gemm.issuer == "0" else f"    allocator_warp_id={gemm.issuer},\n"
    what = "a tile are done, empty when the epilogue has read the accumulator"
    if k.promotion is not None:
        what = "a partial sum are done, empty when all threads have loaded it"
    text = f"""
# Full when the MMAs of {what}
{k.acc_pipeline} = {pipeline}.PipelineUmmaAsync.create(
    barrier_storage={gemm.storage}.{k.acc_field}.data_ptr(),
    num_stages=1,
    producer_group={pipeline}.CooperativeGroup({pipeline}.Agent.Thread),
    consumer_group={pipeline}.CooperativeGroup(
        {pipeline}.Agent.Thread, {gemm.threads}
    ),
{more})
{k.acc_producer} = {pipeline}.make_pipeline_state(
    {pipeline}.PipelineUserType.Producer, 1
)
{k.acc_consumer} = {pipeline}.make_pipeline_state(
    {pipeline}.PipelineUserType.Consumer, 1
)

{k.tmem_barrier} = {pipeline}.NamedBarrier(
    barrier_id={barrier}, num_threads={gemm.threads}
)
{k.tmem} = {utils}.TmemAllocator(
    {gemm.storage}.{k.tmem_field}.ptr,
    barrier_for_retrieve={k.tmem_barrier},
{owner})
"""
    k.edits.insert_after(STORAGE_RULE, gemm.create, text, gap=True)


def _free_barrier(k: KernelContext) -> int:
    """The lowest named barrier that the file does not mention; 0 belongs to whole blocks."""
    used = set()
    for node in walk(k.file.module):
        if isinstance(node, cst.Arg) and node.keyword is not None and node.keyword.value == "barrier_id":
            text = k.file.text(node.value)
            if not text.isdigit():
                raise Unrecognized(f"named barrier `{text}` has no constant number", node)
            used.add(int(text))
    return next(i for i in range(1, 16) if i not in used)


def _accumulator(k: KernelContext) -> None:
    """The accumulator keeps its name, but is a tensor in Tensor Memory."""
    gemm, file = k.gemm, k.file
    dtype = file.text(gemm.registers.args[1].value)
    shape = f"{gemm.mma}.partition_shape_C({gemm.host.tile}[:2])"
    given = gemm.registers.args[0].value
    named = gemm.kernel.definition(file.text(given)) if isinstance(given, cst.Name) else None
    if named is not None and len(gemm.kernel.uses(file.text(given))) == 1:
        k.edits.replace(RESIDENCY_RULE, named[1], shape)
        shape = file.text(given)
    k.edits.replace_lines(RESIDENCY_RULE, gemm.definition, f"{k.fake} = {gemm.mma}.make_fragment_C({shape})")
    utils, cute = k.name("cutlass.utils"), k.name("cutlass.cute")
    text = f"""
{k.tmem}.allocate({utils}.get_num_tmem_alloc_cols({k.fake}))
{k.tmem}.relinquish_alloc_permit()
{k.tmem}.wait_for_alloc()
{k.tmem_ptr} = {k.tmem}.retrieve_ptr({dtype})
# (MMA, MMA_M, MMA_N)
{gemm.accumulator} = {cute}.make_tensor({k.tmem_ptr}, {k.fake}.layout)
"""
    if gemm.branch is not None:
        first = next(s for s in gemm.branch.body.body if not _sets_registers(k, s))
        k.edits.insert_before(RESIDENCY_RULE, first, text, gap=True)
        return
    for statement in gemm.kernel.statements:
        call = called(statement)
        if call is not None and file.call_name(call) == "cutlass.pipeline.pipeline_init_wait":
            k.edits.insert_after(RESIDENCY_RULE, statement, text, gap=True)
            return
    k.edits.insert_after(RESIDENCY_RULE, gemm.definition, text, gap=True)


def _sets_registers(k: KernelContext, statement: cst.CSTNode) -> bool:
    call = called(statement)
    name = k.file.call_name(call) if call is not None else None
    return name is not None and name.startswith("cutlass.cute.arch.") and "reg" in name.rsplit(".", 1)[1]
