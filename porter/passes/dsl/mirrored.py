# SPDX-License-Identifier: Apache-2.0
"""Groups of MMAs on accumulators in registers: staged in Tensor Memory before a group, fetched back behind it."""

from __future__ import annotations

import libcst as cst

from porter.lang.cute_dsl import DslFile, only, walk
from porter.lang.text import Span
from porter.model.dsl import names
from porter.model.dsl.groups import Group, GroupedKernel, Use
from porter.model.dsl.scope import Unrecognized
from porter.passes.dsl.context import IMPORT_RULE, DslContext
from porter.passes.dsl.mirrored_text import CLASSES

HOST_RULE = "PTR530"
FRAME_RULE = "PTR531"
GROUP_RULE = "PTR532"
MIRROR_RULE = "PTR533"

KEPT = frozenset(
    {
        *names.STORE_OPS,
        f"{names.HELPERS}.make_smem_layout_epi",
        f"{names.PIPELINE}.PipelineTmaAsync",
        names.TMA_ASYNC,
    }
)
"""Names that stay in such a port: registers keep their order, and every warp still says when a buffer is free."""

_COPY = "copy"


def rewrite_groups(context: DslContext, kernel: GroupedKernel) -> None:
    """Raises Unrecognized."""
    mma, warpgroup = context.fresh("MirroredMma"), context.fresh("MmaWarpgroup")
    _host(context, kernel)
    _frame(context, kernel, mma, warpgroup)
    for group in kernel.groups:
        _group(context, group)
    taken = {id(g.wait) for g in kernel.groups}
    for wait in kernel.waits:
        if id(wait) not in taken:
            context.edits.delete(GROUP_RULE, wait)
    field = f"{context.name('cutlass.cute.nvgpu.tcgen05')}.Field.ACCUMULATE"
    mode = f"{context.name('cutlass.cute')}.nvgpu.OperandMajorMode"
    for node, name in context.file.references():
        if name == names.ACCUMULATE:
            context.edits.replace(GROUP_RULE, node, field)
        elif name.startswith(f"{names.WARPGROUP}.OperandMajorMode"):
            text = mode + name[len(f"{names.WARPGROUP}.OperandMajorMode") :]
            context.edits.replace(HOST_RULE, node, text)
    _classes(context, kernel, mma, warpgroup)


def _host(context: DslContext, kernel: GroupedKernel) -> None:
    """The same tiles of 64 rows; operands from registers come from Tensor Memory."""
    file, edits = context.file, context.edits
    tcgen05 = context.name("cutlass.cute.nvgpu.tcgen05")
    renamed = {"atom_layout_mnk": "cta_group", "tiler_mn": "mma_tiler_mn"}
    for host in kernel.mmas:
        edits.replace(
            HOST_RULE, host.call.func, context.name("cutlass.utils.blackwell_helpers.make_trivial_tiled_mma")
        )
        for position, arg in enumerate(host.call.args):
            name = arg.keyword.value if arg.keyword is not None else ""
            prefix = f"{renamed.get(name, name)}=" if name else ""
            value = None
            if name == "atom_layout_mnk" or (not name and position == 5):
                value = f"{tcgen05}.CtaGroup.ONE"
            elif name == "a_source" or (not name and position == 7):
                value = f"{tcgen05}.OperandSource.{'TMEM' if host.from_registers else 'SMEM'}"
            elif name in renamed and arg.keyword is not None:
                edits.replace(HOST_RULE, arg.keyword, renamed[name])
            if value is not None:
                # The span of an argument has its parentheses, that of a value has not.
                edits.replace(HOST_RULE, file.span(arg), prefix + value)


def _frame(context: DslContext, kernel: GroupedKernel, mma: str, warpgroup: str) -> None:
    """Tensor Memory and barriers, from the shared storage to the kernel's end."""
    cute, cutlass = context.name("cutlass.cute"), context.name("cutlass")
    utils, pipeline = context.name("cutlass.utils"), context.name("cutlass.pipeline")
    nvvm = context.name("cutlass._mlir.dialects.nvvm")
    barriers, holder = context.fresh("mma_mbar_ptr"), context.fresh("tmem_holding_buf")
    tmem, pointer, local = context.fresh("tmem"), context.fresh("tmem_ptr"), context.fresh("mma_barriers")
    team = context.fresh("mma_warpgroup")
    threads = kernel.block
    count = str(int(threads) // 128) if threads.isdigit() else f"{threads} // 128"
    context.edits.insert_after(
        FRAME_RULE,
        kernel.struct_field,
        f"{barriers}: {cute}.struct.MemRange[{cutlass}.Int64, 2 * ({count})]\n{holder}: {cutlass}.Int32",
    )
    less = 1 if kernel.producer_first else 0
    members = f"{count} - {less}" if less else count
    rank = f"{cute}.arch.make_warp_uniform({cute}.arch.warp_idx()) // 4" + (f" - {less}" if less else "")
    made = "\n".join(f"{p} = {mma}({p}, {team})" for p in kernel.parameters)
    storage = kernel.storage_name
    context.edits.insert_after(
        FRAME_RULE,
        kernel.storage,
        f"""
# Two barriers of each warpgroup: its threads have staged their registers, its MMAs are done
{tmem} = {utils}.TmemAllocator(
    {storage}.{holder}.ptr,
    barrier_for_retrieve={pipeline}.NamedBarrier(barrier_id=0, num_threads={threads}),
)
{tmem}.allocate(512)
{tmem}.relinquish_alloc_permit()
{nvvm}.tcgen05_fence({nvvm}.Tcgen05FenceKind.BEFORE_THREAD_SYNC)
{local} = {storage}.{barriers}.data_ptr()
if {cute}.arch.thread_idx()[0] == 0:
    for member in {cutlass}.range_constexpr({members}):
        {cute}.arch.mbarrier_init({local} + 2 * member, 128)
        {cute}.arch.mbarrier_init({local} + 2 * member + 1, 1)
    {cute}.arch.mbarrier_init_fence()
{tmem}.wait_for_alloc()
{nvvm}.tcgen05_fence({nvvm}.Tcgen05FenceKind.AFTER_THREAD_SYNC)
{pointer} = {tmem}.retrieve_ptr({cutlass}.Float32)
{team} = {warpgroup}(
    {pointer},
    {local},
    {members},
    {rank},
)
{made}
""",
        gap=True,
    )
    last = kernel.kernel.function.body.body[-1]
    returns = [s for s in kernel.kernel.statements if isinstance(only(s), cst.Return)]
    if any(s is not last for s in returns):
        raise Unrecognized("the kernel returns before its end", returns[0])
    insert = context.edits.insert_before if returns else context.edits.insert_after
    insert(
        FRAME_RULE,
        last,
        f"""
# All warpgroups are done with Tensor Memory.
{nvvm}.tcgen05_fence({nvvm}.Tcgen05FenceKind.BEFORE_THREAD_SYNC)
{cute}.arch.sync_threads()
{nvvm}.tcgen05_fence({nvvm}.Tcgen05FenceKind.AFTER_THREAD_SYNC)
{tmem}.free({pointer})
""",
        gap=True,
    )


def _group(context: DslContext, group: Group) -> None:
    """Registers to Tensor Memory, the MMAs in one warp, a commit, registers back."""
    file, edits = context.file, context.edits
    leader = group.uses[0].mma
    before, staged = [], {}
    for use in group.uses:
        if not use.zeroed:
            before.append(f"{use.mma}.stage({use.accumulator})")
        if use.operand is not None and use.operand not in staged:
            staged[use.operand] = context.fresh(f"{use.operand}_tmem")
            before.append(f"{staged[use.operand]} = {use.mma}.stage_operand({use.operand})")
    edits.replace_lines(GROUP_RULE, group.fence, "\n".join([*before, f"{leader}.begin()"]))
    for use in group.uses:
        _arguments(context, use, staged)
    first, last = group.body[0], group.body[-1]
    span = Span(file.comments_above(first).start, file.whole_lines(last).end)
    edits.move_under(GROUP_RULE, span, f"if {leader}.issues():", f"{leader}.acquire()\n", f"{leader}.commit()\n")
    after = "\n".join([f"{leader}.finish()", *(f"{u.mma}.fetch({u.accumulator})" for u in _once(group.uses))])
    if group.wait is None:
        edits.replace_lines(GROUP_RULE, group.commit, after)
    else:
        edits.delete(GROUP_RULE, group.commit)
        edits.replace_lines(GROUP_RULE, group.wait, after)


def _once(uses: list[Use]) -> list[Use]:
    return list({u.accumulator: u for u in uses}.values())


def _arguments(context: DslContext, use: Use, staged: dict[str, str]) -> None:
    seen: set[int] = set()
    for node, role in use.nodes:
        if id(node) in seen:
            continue
        seen.add(id(node))
        if role == "operand":
            assert use.operand is not None
            context.edits.replace(GROUP_RULE, node, staged[use.operand])
        else:
            context.edits.replace(GROUP_RULE, node, f"{use.mma}.{'mma' if role == 'mma' else 'accumulator'}")


def _classes(context: DslContext, kernel: GroupedKernel, mma: str, warpgroup: str) -> None:
    """The classes stand above the first class or function of the file; they need `copy`."""
    file = context.file
    first = next(
        (s for s in file.module.body if isinstance(s, (cst.ClassDef, cst.FunctionDef))), None
    )
    if first is None:
        raise Unrecognized("no class or function on the file's top level", kernel.kernel.function)
    local = next((k for k, v in file.imports.items() if v == _COPY), None)
    if local is None:
        local = context.fresh(_COPY) if _bound(file, _COPY) else _COPY
        line = f"import {_COPY}" if local == _COPY else f"import {_COPY} as {local}"
        imports = [s for s in file.module.body if isinstance(only(s), (cst.Import, cst.ImportFrom))]
        later = [s for s in imports if "__future__" not in file.text(s)]
        context.edits.insert_before(IMPORT_RULE, later[0], line)
    text = CLASSES
    words = {
        "cute": context.name("cutlass.cute"),
        "cutlass": context.name("cutlass"),
        "tcgen05": context.name("cutlass.cute.nvgpu.tcgen05"),
        "nvvm": context.name("cutlass._mlir.dialects.nvvm"),
        "copy": local,
        "Mma": mma,
        "Warpgroup": warpgroup,
    }
    for word, name in words.items():
        text = text.replace(f"@{word}@", name)
    at = file.line_start(min(file.span(n).start for n in (first, *first.decorators)))
    while at and file.source[file.line_start(at - 1) : at].startswith(b"#"):
        at = file.line_start(at - 1)
    context.edits.replace(MIRROR_RULE, Span(at, at), text.strip("\n") + "\n\n\n")


def _bound(file: DslFile, name: str) -> bool:
    """Whether a name is anything but an attribute or a keyword in a file."""
    for node in walk(file.module):
        if isinstance(node, cst.Name) and node.value == name:
            parent = file.parent(node)
            attribute = isinstance(parent, cst.Attribute) and parent.attr is node
            if not attribute and not (isinstance(parent, cst.Arg) and parent.keyword is node):
                return True
    return False
