# SPDX-License-Identifier: Apache-2.0
"""Where a kernel is launched, and what it calls what it is handed there."""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m

from porter.passes.idiom_dsl.kernel import Kernel
from porter.passes.idiom_dsl.text import Left, found_in, one


def launch_of(kernel: Kernel) -> cst.Call:
    """Raises Left: there are none or several."""
    name = kernel.function.name.value
    whole = m.Call(m.Attribute(m.Call(m.Name(name) | m.Attribute(attr=m.Name(name))), m.Name("launch")))
    return one([c for c in found_in(kernel.text.module, cst.Call) if m.matches(c, whole)], f"launches of `{name}`")


def given_at(launch: cst.Call) -> cst.Call:
    """What the kernel is called with."""
    return cst.ensure_type(cst.ensure_type(launch.func, cst.Attribute).value, cst.Call)


def in_kernel(kernel: Kernel, launch: cst.Call, name: str) -> str:
    """What the kernel calls an argument. Raises Left: it is none."""
    given, params = given_at(launch).args, list(kernel.function.params.params)
    params = params[1:] if params and params[0].name.value == "self" else params
    for index, arg in enumerate(given):
        if kernel.text.code(arg.value) == name:
            if arg.keyword is not None:
                return arg.keyword.value
            if index < len(params):
                return params[index].name.value
    raise Left(f"`{name}` as an argument of the kernel", launch)
