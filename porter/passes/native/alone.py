# SPDX-License-Identifier: Apache-2.0
"""Whether the work of a block may be done by another one: no block knows of others, and none of a cluster or of a grid
that is there as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tree_sitter import Node

from porter.lang.cuda import find
from porter.lang.text import Span
from porter.model.functions import Function, Style
from porter.model.kernels import SHARED
from porter.model.pipeline.facts import HostLaunch
from porter.model.scopes import resolve
from porter.passes.native.mainloop import Pipelined
from porter.passes.native.sites import Left, Place

_PLACES = re.compile(
    r"\bblockIdx\b|%+n?ctaid|%+n?clusterid|%+cluster_\w+|%+gridid|\bget_sreg_\w*(?:ctaid|cluster|grid)\w*"
    r"|\b(?:this_grid|this_cluster|thread_block|block_index|group_index|cluster_group|grid_group)\b|\bclusterDim\b"
)
"""Where a block is asked for its place in the grid."""
INDEX = "blockIdx"
_CLUSTERS = re.compile(
    r"__cluster_dims__|cudaLaunchAttributeClusterDimension|cudaLaunchAttributeCooperative"
    r"|cudaLaunchCooperativeKernel|cudaLaunchAttributeProgrammaticStreamSerialization"
)
_OTHERS = re.compile(
    r"\batomic[A-Z]\w*|\batomic(?:_ref)?\b|__threadfence(?:_system)?\b|\bgriddepcontrol\b|cudaGridDependencySynchronize"
    r"|cudaTriggerProgrammaticLaunchCompletion|\b(?:atom|red|multimem)\.|\bcp\.reduce\.async\.bulk|\bmembar\b"
    r"|\b(?:fence|ld|st)\.[\w:.]*\b(?:gpu|sys|volatile|mmio)\b|\bvolatile\b(?!\s*\()"
    r"|\bbarrier\.cluster|\bmapa\b|\bclusterlaunchcontrol\b|\bmulticast::cluster\b"
)
"""What blocks know of others by."""
_ALL = re.compile(
    r"\b__syncthreads\w*|\bthis_thread_block\b|\b(?:bar|barrier)\.[\w:.]+\s+(?:0|%\d+)\s*;|\bbar\.sync\s+0\b"
)
"""All threads of a block meet."""


def check_alone(kernel: Pipelined, launch: HostLaunch | None) -> None:
    """
    Raises:
        Left: another block cannot do the work of one, or it is not known that it can.
    """
    function = kernel.kernel.function
    code = "\n".join(f.lexed.code.decode("utf-8", "replace") for f in kernel.program.sources.files.values())
    clusters = _CLUSTERS.search(code)
    whole = function.span(function.body)
    if clusters is not None:
        raise Left(function, whole, f"blocks that are launched one by one: `{clusters[0]}`")
    if launch is not None and launch.cluster is not None and set(launch.cluster) != {"1"}:
        raise Left(function, whole, f"blocks that are launched one by one: clusters of {' x '.join(launch.cluster)}")
    _placed(kernel)
    for inner in _with_classes(kernel, function):
        text = _text(kernel, inner)
        others = _OTHERS.search(text)
        if others is not None:
            raise Left(inner, inner.span(inner.body), f"that blocks do not know of each other: `{others[0]}`")
        place = next((m for m in _PLACES.finditer(text) if inner is not function or m[0] != INDEX), None)
        if place is not None:
            raise Left(inner, inner.span(inner.body), f"the place of a block in the kernel itself: `{place[0]}`")


def _placed(kernel: Pipelined) -> None:
    """That the index of a block stands in kernels alone: what a constructor or a macro asks for, no call shows."""
    function = kernel.kernel.function
    for file in kernel.program.sources.files.values():
        bodies = [f.span(f.body) for f in kernel.program.functions if f.file is file and f.style is Style.KERNEL]
        for match in re.finditer(rb"\bblockIdx\b", file.lexed.code):
            at = Span(match.start(), match.end())
            if not any(b.contains(at) for b in bodies):
                functions = (f for f in kernel.program.functions if f.file is file)
                inner = next((f for f in functions if f.span(f.body).contains(at)), None)
                where = (function, function.span(function.body)) if inner is None else (inner, inner.span(inner.body))
                raise Left(*where, f"the place of a block in the kernel itself: `{INDEX}`")


def _with_classes(kernel: Pipelined, function: Function) -> list[Function]:
    """Functions that a kernel comes to, with all methods of classes that these name: some are called without a word."""
    found = list(reached(kernel, function, [function.body]))
    methods = [f for f in kernel.program.functions if f.style is Style.METHOD]
    while True:
        words = {w for f in found for w in re.findall(r"[A-Za-z_]\w*", _text(kernel, f))}
        more = [m for m in methods if m.class_name in words and not any(m is f for f in found)]
        if not more:
            return found
        found += more


def _text(kernel: Pipelined, function: Function) -> str:
    """The text of a function, with that of the macros in it, but without comments."""
    macros = kernel.program.macros
    own = _plain(function.text(function.node))
    used = sorted(set(re.findall(r"[A-Za-z_]\w*", own)) & set(macros.by_name))
    return "\n".join([own, *(macros.text(name) for name in used)])


def check_meets(kernel: Pipelined, nodes: Sequence[Node]) -> None:
    """
    Raises:
        Left: all threads of a block meet in some statements of the kernel.
    """
    function = kernel.function
    for node in nodes:
        texts = [function.text(node), *(f.text(f.body) for f in reached(kernel, function, [node]) if f is not function)]
        for text in texts:
            found = _ALL.search(_plain(text))
            if found is not None:
                raise Place(function, node).left(f"that no thread waits for all of its block: `{found[0]}`")


def touches_shared(kernel: Pipelined, nodes: Sequence[Node]) -> bool:
    """Whether statements of the kernel may read or write shared memory."""
    function = kernel.function
    for inner in reached(kernel, function, nodes):
        if inner is not function and (SHARED in inner.text(inner.body) or "shared" in inner.text(inner.body)):
            return True
    files = kernel.program.sources.files.values()
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
            if word in kernel.program.macros.by_name and "shared" in kernel.program.macros.text(word):
                return True
            variable = resolve(function, name, word)
            if variable is None and word in names:
                return True
            if variable is None or variable.declaration is None or variable.key in seen:
                continue
            seen.add(variable.key)
            todo.append(variable.declaration)
    return False


def reached(kernel: Pipelined, function: Function, nodes: Sequence[Node]) -> Iterator[Function]:
    """A function, and those that parts of it call, and macros among these."""
    program = kernel.program
    yield function
    calls = [c for node in nodes for n in find(node, "call_expression") for c in program.calls_by_node.get(n.id, ())]
    work = [t for c in calls for t in program.targets(c)]
    seen = {id(function)}
    while work:
        inner = work.pop()
        if id(inner) in seen or inner.style is Style.HOST:
            continue
        seen.add(id(inner))
        yield inner
        work += [t for c in inner.calls for t in program.targets(c)]


def _plain(text: str) -> str:
    """Without comments."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
