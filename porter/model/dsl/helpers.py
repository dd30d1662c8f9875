# SPDX-License-Identifier: Apache-2.0
"""MMAs that a kernel issues through a helper of the same file: one loop over the k blocks of a stage."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from porter.lang.cute_dsl import JIT, DslFile, called
from porter.model.dsl import names
from porter.model.dsl.scope import Scope, Unrecognized


@dataclass(eq=False)
class Helper:
    """`calls` are the statements of the kernel that call it. `traced`: a flag that it sets ends with it."""

    scope: Scope
    gemm: cst.Call
    mma: str
    accumulator: str
    calls: list[cst.Call]
    traced: bool

    def given(self, call: cst.Call, parameter: str) -> str:
        """What a call passes for a parameter, as text.

        Raises:
            Unrecognized: a star argument, or nothing.
        """
        listed = [p.name.value for p in self.scope.function.params.params if p.name.value != "self"]
        for place, arg in enumerate(call.args):
            name = arg.keyword.value if arg.keyword is not None else listed[place] if place < len(listed) else ""
            if not arg.star and name == parameter:
                return self.scope.file.text(arg.value)
        raise Unrecognized(f"what this call passes as `{parameter}`", call)


def find_helper(file: DslFile, kernel: cst.FunctionDef) -> Helper | None:
    """The only function of the file with a `cute.gemm`, if the kernel calls it.

    Raises:
        Unrecognized: it has another form.
    """
    issuers = [f for f in file.functions() if Scope(file, f).calls_of(names.GEMM)]
    if len(issuers) != 1 or issuers[0] is kernel:
        return None
    scope = Scope(file, issuers[0])
    wanted = (issuers[0].name.value, f"self.{issuers[0].name.value}")
    calls = [c for c in Scope(file, kernel).calls() if file.text(c.func) in wanted]
    if not calls:
        return None
    everywhere = [c for f in file.functions() for c in Scope(file, f).calls() if file.text(c.func) in wanted]
    if any(c not in calls for c in everywhere):
        raise Unrecognized(f"`{issuers[0].name.value}` issues MMAs for other functions as well", issuers[0].name)
    (gemm, *others) = scope.calls_of(names.GEMM)
    args = [file.text(a.value) for a in gemm.args]
    parameters = {p.name.value for p in issuers[0].params.params}
    if others or len(args) != 5 or args[1] != args[4] or not {args[0], args[1]} <= parameters:
        raise Unrecognized("a helper with more than one MMA on one accumulator of its parameters", gemm)
    around = scope.ancestors(gemm)
    if called(scope.statement_of(gemm)) is not gemm or len(around) != 1 or not isinstance(around[0], cst.For):
        raise Unrecognized("the MMA of a helper does not stand in one loop over k blocks", gemm)
    for call in scope.calls():
        name = file.call_name(call) or ""
        method = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
        if name.startswith("cutlass.cute.arch.") or method.startswith(("consumer_", "producer_", "arrive")):
            raise Unrecognized("a helper that issues MMAs waits or synchronizes itself", call)
    traced = any(file.qualified(d.decorator) == JIT for d in issuers[0].decorators)
    return Helper(scope, gemm, args[0], args[1], calls, traced)
