# SPDX-License-Identifier: Apache-2.0
"""Places between statements: where an instruction can be put in that runs after one line and before another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from porter.lang.cuda import CudaFile

_LOOPS = ("for_statement", "while_statement", "do_statement", "for_range_loop")


@dataclass(frozen=True)
class Gap:
    """Offsets at which a line of text can be inserted into a block: behind the statement with the first line, and
    ahead of the one with the second. `indent` is that of the statements. `wraps`: a loop leads from the first line to
    the second, which stands above it."""

    behind: int
    ahead: int
    indent: bytes
    wraps: bool = False


def gap(file: CudaFile, first: int, second: int) -> Gap | None:
    """The place between two lines (from 1) in the innermost block that holds both, in different statements. The first
    one's comes earlier, or the block is the body of a loop. None where there is no such block."""
    block: Node | None = None
    for node in _blocks(file.root):
        if _holds(node, first) and _holds(node, second):
            block = node  # Inner blocks come later.
    if block is None:
        return None
    before = next((n for n in block.named_children if _holds(n, first)), None)
    after = next((n for n in block.named_children if _holds(n, second)), None)
    if before is None or after is None or before.id == after.id:
        return None
    wraps = before.start_byte > after.start_byte
    if wraps and (block.parent is None or block.parent.type not in _LOOPS):
        return None
    behind = file.source.find(b"\n", before.end_byte) + 1
    ahead = file.source.rfind(b"\n", 0, after.start_byte) + 1
    while True:
        above = file.source.rfind(b"\n", 0, ahead - 1) + 1
        if not file.source[above:ahead].lstrip().startswith(b"#pragma"):
            break
        ahead = above
    if not (behind and ahead) or (not wraps and behind > ahead):
        return None
    line = file.source[file.source.rfind(b"\n", 0, after.start_byte) + 1 : after.start_byte]
    return Gap(behind, ahead, line[: len(line) - len(line.lstrip())], wraps)


def _blocks(root: Node) -> Iterator[Node]:
    stack = [root]
    while stack:
        node = stack.pop()
        if node.type == "compound_statement":
            yield node
        stack += reversed(node.named_children)


def _holds(node: Node, line: int) -> bool:
    return node.start_point[0] < line <= node.end_point[0] + 1
