# SPDX-License-Identifier: Apache-2.0
"""The warpgroup GEMM in a CuTe DSL kernel: which statements load, multiply, release and store.

The family is NVIDIA's dense GEMM: TMA loads through a `PipelineTmaAsync`, one accumulator in registers, loops
over k tiles and k blocks around `cute.gemm`, an epilogue that copies subtiles through shared memory. With
or without a producer warpgroup, with or without a persistent tile loop. What does not fit is reported by the
statement that does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from porter.lang.cute_dsl import DslFile, Statement, argument, assigned, body_of, called, only, walk
from porter.model.dsl import names
from porter.model.dsl.helpers import Helper, find_helper
from porter.model.dsl.scope import Scope, Unrecognized


@dataclass(eq=False)
class Host:
    """The `@cute.jit` side: where the tiled MMA is made, and the launch."""

    scope: Scope
    tiled_mma: cst.Call
    tile: str
    """Expression of the tile shape (M, N, ...), good in host and kernel code."""
    atom_layout: cst.BaseExpression
    kernel_call: cst.Call
    block: str
    """Threads of a block."""


@dataclass(eq=False)
class KLoop:
    """A loop over k tiles: `inner` goes over k blocks (None: the MMA takes a whole stage at a time)."""

    loop: cst.For
    inner: cst.For | None
    gemm: Statement
    call: cst.Call
    helper: Helper | None = None
    """The function that the statement calls, where the MMA stands in one."""


@dataclass(eq=False)
class Gemm:
    """One kernel's GEMM."""

    file: DslFile
    kernel: Scope
    host: Host
    mma: str
    accumulator: str
    definition: Statement
    registers: cst.Call
    pipeline: str
    create: Statement
    create_call: cst.Call
    loops: list[KLoop]
    read_state: str
    release_state: str
    producer_state: str
    warp: str
    issuer: str
    """The warp that issues the MMAs."""
    threads: str
    """Number of threads that take part in the epilogue."""
    branch: cst.If | None
    """The consumers' branch of a warp-specialized kernel."""
    tile_loop: cst.While | cst.For | None
    storage: str
    barriers: str
    struct_field: cst.SimpleStatementLine
    block: list[Statement]
    """The statements among which the loops over k tiles stand."""


def _fail(what: str, node: cst.CSTNode) -> Unrecognized:
    return Unrecognized(what, node)


def find_host(file: DslFile, kernel: cst.FunctionDef) -> Host:
    """Raises Unrecognized."""
    made = [c for f in file.functions() for c in Scope(file, f).calls_of(names.TILED_MMA)]
    made = list(dict.fromkeys(made))
    if len(made) != 1:
        raise _fail(f"{len(made)} calls of make_trivial_tiled_mma; one is ported", made[1] if made else kernel)
    call = made[0]
    source = argument(call, "a_source", 7)
    if source is not None and not file.text(source).endswith("SMEM"):
        raise _fail("the A operand comes from registers", source)
    tiler = argument(call, "tiler_mn", 6)
    layout = argument(call, "atom_layout_mnk", 5)
    if not isinstance(tiler, cst.Tuple) or len(tiler.elements) != 2 or layout is None:
        raise _fail("the MMA's tiler is not written as (64, N)", call)
    columns = tiler.elements[1].value
    text = file.text(columns)
    if text.endswith("[1]") and not text.startswith("self."):
        raise _fail(f"the tile shape `{text[:-3]}` is no attribute of a class of which the kernel is a method", columns)
    if not text.endswith("[1]"):
        raise _fail(f"N of the MMA, `{text}`, is not element 1 of the tile shape", columns)
    scope = Scope(file, _function_around(file, call))
    launch, inner = _launch(file, kernel)
    block = argument(launch, "block")
    if not isinstance(block, (cst.List, cst.Tuple)) or not block.elements:
        raise _fail("the launch's block is not written as [threads, 1, 1]", launch)
    return Host(scope, call, text[: -len("[1]")], layout, inner, file.text(block.elements[0].value))


def _function_around(file: DslFile, node: cst.CSTNode) -> cst.FunctionDef:
    current = file.parent(node)
    while not isinstance(current, cst.FunctionDef):
        if current is None:
            raise _fail("outside of any function", node)
        current = file.parent(current)
    return current


def _launch(file: DslFile, kernel: cst.FunctionDef) -> tuple[cst.Call, cst.Call]:
    """`kernel(...).launch(...)` and the kernel's call in it."""
    name = kernel.name.value
    for function in file.functions():
        for call in Scope(file, function).calls():
            func = call.func
            if isinstance(func, cst.Attribute) and func.attr.value == "launch" and isinstance(func.value, cst.Call):
                target = file.text(func.value.func)
                if target in (name, f"self.{name}"):
                    return call, func.value
    raise _fail("no launch of the kernel in this file", kernel)


def find_gemm(file: DslFile, kernel: cst.FunctionDef) -> Gemm:
    """The GEMM of a kernel.

    Raises:
        Unrecognized: a part of it has another form.
    """
    host = find_host(file, kernel)
    scope = Scope(file, kernel)
    gemms = list(scope.calls_of(names.GEMM))
    helper = find_helper(file, kernel) if not gemms else None
    if not gemms and helper is None:
        raise _fail("no cute.gemm in the kernel itself", kernel)
    plain = [[file.text(a.value) for a in c.args] for c in gemms]
    if helper is not None:
        gemms = helper.calls
        given = [(helper.given(c, helper.mma), helper.given(c, helper.accumulator)) for c in gemms]
        plain = [[mma, accumulator, "", "", accumulator] for mma, accumulator in given]
    if any(len(p) != 5 or p[1] != p[4] for p in plain) or len({(p[0], p[1]) for p in plain}) != 1:
        raise _fail("more than one accumulator or tiled MMA", gemms[-1])
    mma, accumulator = plain[0][0], plain[0][1]
    definition, registers = _registers(scope, accumulator, gemms[0])
    pipeline, create, create_call = _mainloop_pipeline(scope, kernel)
    loops = [_k_loop(scope, call, pipeline) for call in gemms]
    for loop in loops:
        loop.helper = helper
    blocks = [scope.block(k.loop) for k in loops]
    if any(b[0] is not blocks[0][0] for b in blocks):
        raise _fail("the loops over k tiles stand in different blocks", loops[-1].loop)
    read = _state_of(scope, pipeline, "consumer_wait", loops)
    release = _state_of(scope, pipeline, "consumer_release", [], fallback=read)
    around = scope.ancestors(loops[0].loop)
    tile_loop = next((a for a in around if isinstance(a, (cst.While, cst.For))), None)
    branch = next((a for a in around if isinstance(a, cst.If)), None)
    warp = _warp_index(scope, kernel)
    storage, name, struct_field = _storage(scope, create_call)
    gemm = Gemm(
        file=file,
        kernel=scope,
        host=host,
        mma=mma,
        accumulator=accumulator,
        definition=definition,
        registers=registers,
        pipeline=pipeline,
        create=create,
        create_call=create_call,
        loops=loops,
        read_state=read,
        release_state=release,
        producer_state=_state_of(scope, pipeline, "producer_acquire", []),
        warp=warp,
        issuer="",
        threads="",
        branch=branch,
        tile_loop=tile_loop,
        storage=storage,
        barriers=name,
        struct_field=struct_field,
        block=blocks[0],
    )
    gemm.issuer = _issuer(gemm)
    gemm.threads = _threads(gemm)
    return gemm


def _registers(scope: Scope, accumulator: str, gemm: cst.Call) -> tuple[Statement, cst.Call]:
    found = scope.definition(accumulator)
    if found is None or not isinstance(found[1], cst.Call):
        raise _fail(f"`{accumulator}` is not defined once in the kernel", gemm)
    made = made_registers(scope, accumulator)
    if made is None:
        raise _fail(f"`{accumulator}` is not made by cute.make_rmem_tensor(shape, type)", found[0])
    return found[0], made


def made_registers(scope: Scope, name: str) -> cst.Call | None:
    """The `make_rmem_tensor(shape, type)` that makes a tensor in registers, or the tensor that it is made like."""
    found = scope.definition(name)
    call = found[1] if found is not None else None
    if not isinstance(call, cst.Call):
        return None
    made = scope.file.call_name(call)
    if made in names.REGISTERS and len(call.args) == 2:
        return call
    like = scope.file.text(call.args[0].value) if made in names.REGISTERS_LIKE and len(call.args) == 1 else name
    return made_registers(scope, like) if like != name else None


def _mainloop_pipeline(scope: Scope, kernel: cst.FunctionDef) -> tuple[str, Statement, cst.Call]:
    made = scope.calls_of(names.TMA_ASYNC)
    if len(made) != 1:
        raise _fail(f"{len(made)} PipelineTmaAsync; one is ported", made[-1] if made else kernel)
    statement = scope.statement_of(made[0])
    pair = assigned(statement)
    if pair is None or pair[1] is not made[0] or not isinstance(pair[0], cst.Name):
        raise _fail("the pipeline is not assigned to a name", statement)
    known = {"barrier_storage", "num_stages", "producer_group", "consumer_group", "tx_count", "cta_layout_vmnk",
             "defer_sync", "tidx", "name"}  # fmt: skip
    for arg in made[0].args:
        if arg.keyword is None or arg.keyword.value not in known:
            raise _fail(f"argument `{scope.file.text(arg)}` of PipelineTmaAsync", arg)
    return pair[0].value, statement, made[0]


def _k_loop(scope: Scope, call: cst.Call, pipeline: str) -> KLoop:
    statement = scope.statement_of(call)
    if called(statement) is not call:
        raise _fail("cute.gemm is part of a larger expression", statement)
    around = scope.ancestors(statement)
    for i, outer in enumerate(around[:2]):
        if not isinstance(outer, cst.For):
            break
        waits = scope.method_calls(pipeline, "consumer_wait", outer)
        if any(scope.block(scope.statement_of(w)) == body_of(outer) for w in waits):
            inner = around[0] if i else None
            assert inner is None or isinstance(inner, cst.For)
            return KLoop(outer, inner, statement, call)
    raise _fail("cute.gemm is not in a loop that waits for its k tile", statement)


def _state_of(scope: Scope, pipeline: str, method: str, loops: list[KLoop], fallback: str | None = None) -> str:
    calls = scope.method_calls(pipeline, method)
    states = {scope.file.text(c.args[0].value) for c in calls if c.args}
    if len(states) == 1:
        return states.pop()
    if not states and fallback is not None:
        return fallback
    where = calls[-1] if calls else scope.function
    raise _fail(f"{pipeline}.{method} is called with {len(states)} states; one is ported", where)


def _warp_index(scope: Scope, kernel: cst.FunctionDef) -> str:
    for statement in scope.statements:
        pair = assigned(statement)
        value = pair[1] if pair is not None else None
        if isinstance(value, cst.Call) and scope.file.call_name(value) == "cutlass.cute.arch.make_warp_uniform":
            value = value.args[0].value
        if pair is not None and value is not None and scope.file.call_name(value) == "cutlass.cute.arch.warp_idx":
            return scope.file.text(pair[0])
    raise _fail("the kernel does not ask for cute.arch.warp_idx()", kernel)


def _storage(scope: Scope, create: cst.Call) -> tuple[str, str, cst.SimpleStatementLine]:
    """The shared storage variable, its field for the barriers, and that field's declaration."""
    file = scope.file
    given = argument(create, "barrier_storage")
    if given is None:
        raise _fail("the pipeline has no barrier_storage", create)
    value = scope.resolve(given)
    text = file.text(value)
    if not text.endswith(".data_ptr()") or text.count(".") != 2:
        raise _fail(f"the pipeline's barriers, `{text}`, are no field of a shared storage", value)
    storage, name, _ = text.split(".")
    for node in _class_fields(file):
        if file.text(node[0]) == name:
            return storage, name, node[1]
    raise _fail(f"no @cute.struct declares `{name}`", value)


def _class_fields(file: DslFile) -> list[tuple[cst.BaseExpression, cst.SimpleStatementLine]]:
    found: list[tuple[cst.BaseExpression, cst.SimpleStatementLine]] = []
    for node in walk(file.module):
        if not isinstance(node, cst.ClassDef):
            continue
        if not any(file.qualified(d.decorator) == "cutlass.cute.struct" for d in node.decorators):
            continue
        for line in body_of(node):
            small = only(line)
            if isinstance(small, cst.AnnAssign) and isinstance(line, cst.SimpleStatementLine):
                found.append((small.target, line))
    return found


def warp_test(gemm: Gemm, test: cst.BaseExpression) -> str | None:
    """X of `warp == X`, also as the first part of an `and`."""
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        return warp_test(gemm, test.left)
    if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        only_one = test.comparisons[0]
        if isinstance(only_one.operator, cst.Equal) and gemm.file.text(test.left) == gemm.warp:
            return gemm.file.text(only_one.comparator)
    return None


def _issuer(gemm: Gemm) -> str:
    """Without a producer warpgroup the warp that issues the loads; with one, the warp that stores."""
    scope = gemm.kernel
    if gemm.branch is None:
        guards = scope.method_calls(gemm.pipeline, "producer_acquire")
    else:
        guards = list(scope.calls_of("cutlass.cute.copy", gemm.branch))
    for call in guards:
        for around in scope.ancestors(call):
            warp = warp_test(gemm, around.test) if isinstance(around, cst.If) else None
            if warp is not None:
                return warp
    raise _fail(f"no statement under `if {gemm.warp} == ...` names a warp that could issue the MMAs",
                gemm.loops[0].loop)  # fmt: skip


def _threads(gemm: Gemm) -> str:
    """The producers of the store pipeline are the threads of the epilogue; else the whole block."""
    scope = gemm.kernel
    for call in scope.calls_of(names.TMA_STORE):
        group = argument(call, "producer_group")
        group = scope.resolve(group) if group is not None else None
        if isinstance(group, cst.Call) and len(group.args) > 1:
            return scope.file.text(group.args[1].value)
    if gemm.branch is None:
        return gemm.host.block
    raise _fail("the number of threads in the epilogue is not known", gemm.branch)
