# SPDX-License-Identifier: Apache-2.0
"""Whether blocks are launched one by one, which host code alone says: then the work of one may be done by another."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.pipeline.facts import HostLaunch
from porter.model.scopes import resolve
from porter.passes.full_rate.renaming import reached
from porter.passes.native.mainloop import Pipelined
from porter.passes.native.sites import Left

INDEX = "blockIdx"
_CLUSTERS = re.compile(
    r"__cluster_dims__|cudaLaunchAttributeClusterDimension|cudaLaunchAttributeCooperative"
    r"|cudaLaunchCooperativeKernel|cudaLaunchAttributeProgrammaticStreamSerialization"
)


def check_alone(kernel: Pipelined, launch: HostLaunch | None) -> None:
    """Raises Left: they are those of a cluster, or of a grid that is there as a whole."""
    function = kernel.kernel.function
    code = "\n".join(f.lexed.code.decode("utf-8", "replace") for f in kernel.program.sources.files.values())
    clusters = _CLUSTERS.search(code)
    whole = function.span(function.body)
    if clusters is not None:
        raise Left(function, whole, f"blocks that are launched one by one: `{clusters[0]}`")
    if launch is not None and launch.cluster is not None and set(launch.cluster) != {"1"}:
        raise Left(function, whole, f"blocks that are launched one by one: clusters of {' x '.join(launch.cluster)}")


def touches_shared(kernel: Pipelined, nodes: Sequence[Node]) -> bool:
    """Whether statements of the kernel may read or write shared memory."""
    function, program = kernel.function, kernel.program
    calls = [c for node in nodes for n in find(node, "call_expression") for c in program.calls_by_node.get(n.id, ())]
    inside = reached(program, [t for c in calls for t in program.targets(c)])
    if any(id(f) in inside and "shared" in f.text(f.body) for f in program.functions):
        return True
    files = program.sources.files.values()
    declared = [m[0].decode("utf-8", "replace") for f in files for m in re.finditer(rb"__shared__[^;]*;", f.lexed.code)]
    names = {word for text in declared for word in re.findall(r"[A-Za-z_]\w*", text)}
    seen: set[tuple[int, int, str]] = set()
    todo = list(nodes)
    while todo:
        node = todo.pop()
        if "shared" in function.text(node) or any(True for _ in find(node, "gnu_asm_expression")):
            return True
        for name in find(node, "identifier"):
            word = function.text(name)
            if word in program.macros.by_name and "shared" in program.macros.text(word):
                return True
            variable = resolve(function, name, word)
            if variable is None and word in names:
                return True
            if variable is None or variable.declaration is None or variable.key in seen:
                continue
            seen.add(variable.key)
            todo.append(variable.declaration)
    return False
