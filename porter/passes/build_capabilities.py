# SPDX-License-Identifier: Apache-2.0
"""Python that asks for the device's compute capability: comparisons that admit Hopper admit the port's chip."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping

from porter.lang.text import Edit, EditGroup, LineIndex, Safety, Span
from porter.model.spellings import Spellings
from porter.passes.python_flow import Capabilities, Form, literal
from porter.ptx.arch import PortTarget

RULE = "PTR228"


def forms_of(chip: int) -> dict[object, Form]:
    """Hopper's capability in each of its forms, and that of another chip."""
    other = PortTarget(chip)
    pair = other.capability
    return {(9, 0): pair, 9: pair[0], 90: chip, 900: 10 * chip, "9.0": other.version, "90": str(chip)}


def capability_group(
    path: str, source: bytes, keep: bool, spellings: Spellings, target: PortTarget
) -> EditGroup | None:
    """Comparisons for equality with Hopper's capability; with `keep` they admit both chips. None where there are none,
    and where the module asks for Blackwell too: which of its branches is for the port is not known."""
    tree = asking_module(source, spellings)
    if tree is None:
        return None
    ported = forms_of(target.sm)
    found = list(_comparisons(tree, spellings, ported))
    if any(values & set(ported.values()) for _, values in found):
        return None
    starts = LineIndex(source)
    edits = [_edit(path, source, starts, node, keep, ported) for node, values in found if values & set(ported)]
    if not edits:
        return None
    return EditGroup(
        RULE,
        "Compute capability in build code",
        Safety.REVIEW,
        tuple(edits),
        f"{target.name} is compute capability {target.version}. The comparison is taken to admit the GPU "
        "that the kernels are for.",
        ("CUDA C++ Programming Guide, Compute Capabilities",),
    )


def asking_module(source: bytes, spellings: Spellings, given: Collection[str] = ()) -> ast.Module | None:
    """A module that may ask for a capability, itself or by the functions that are `given`; None for one that does not,
    or does not parse."""
    named = any(re.search(rb"\b" + re.escape(name.encode()) + rb"\b", source) for name in given)
    if not named and not spellings.stand_in("python_asked", source.decode("latin-1")):
        return None
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _edit(
    path: str, source: bytes, starts: LineIndex, node: ast.Compare, keep: bool, forms: Mapping[object, Form]
) -> Edit:
    right = node.comparators[0]
    first, last = _offset(starts, right), _end(starts, right)
    if isinstance(node.ops[0], (ast.In, ast.NotIn)):
        # the elements, each in front of its port
        assert isinstance(right, (ast.Tuple, ast.List, ast.Set))
        own = next(e for e in right.elts if literal(e) in forms)
        first, last = _offset(starts, own), _end(starts, own)
        ported = _written(forms[literal(own)], source[first:last])
        written = source[first:last].decode()
        return Edit(path, Span(first, last), (f"{written}, {ported}" if keep else ported).encode())
    value = literal(right)
    new = _written(forms[value], source[first:last])
    if keep:
        starts_at = first
        between = source[_end(starts, node.left) : first]
        operator = re.search(rb"==|!=", between)
        assert operator is not None
        first = _end(starts, node.left) + operator.start()
        between = between[operator.end() :]
        equal = isinstance(node.ops[0], ast.Eq)
        new = (
            f"{'in' if equal else 'not in'}{between.decode() or ' '}({_written(value, source[starts_at:last])}, {new})"
        )
        if source[first - 1 : first] not in b" \t)":
            new = " " + new
    return Edit(path, Span(first, last), new.encode())


def _written(value: object, manner: bytes) -> str:
    """A value with the quotes of another one."""
    return repr(value).replace("'", '"') if manner.startswith(b'"') else repr(value)


def _comparisons(
    tree: ast.Module, spellings: Spellings, forms: Mapping[object, Form]
) -> Iterator[tuple[ast.Compare, set[Form]]]:
    """Comparisons of a capability for equality or membership, with the values that it is compared with."""
    kinds = Capabilities(tree, spellings)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare) or len(node.ops) != 1:
            continue
        wanted, right = kinds.of(node.left), node.comparators[0]
        if wanted is None:
            continue
        listed: list[ast.expr] = []
        if isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
            listed = [right]
        elif isinstance(node.ops[0], (ast.In, ast.NotIn)) and isinstance(right, (ast.Tuple, ast.List, ast.Set)):
            listed = right.elts
        values = {v for e in listed for v in [literal(e)] if v in (wanted, forms[wanted]) and type(v) is type(wanted)}
        if values:
            yield node, values


def _offset(lines: LineIndex, node: ast.expr) -> int:
    return lines.line_start(node.lineno) + node.col_offset


def _end(lines: LineIndex, node: ast.expr) -> int:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return lines.line_start(node.end_lineno) + node.end_col_offset
