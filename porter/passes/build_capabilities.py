# SPDX-License-Identifier: Apache-2.0
"""Python that asks for the device's compute capability: comparisons that admit Hopper admit the port's chip."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from porter.lang.text import Edit, EditGroup, LineIndex, Safety, Span
from porter.model.spellings import Spellings
from porter.ptx.arch import PortTarget

RULE = "PTR228"

_Form = tuple[int, int] | int | str


def ported_forms(target: PortTarget) -> dict[object, _Form]:
    """Hopper's capability in each of its forms, and that of the port's chip."""
    major, minor = target.capability
    return {(9, 0): (major, minor), 9: major, 90: target.sm, "9.0": target.version, "90": str(target.sm)}


def capability_group(
    path: str, source: bytes, keep: bool, spellings: Spellings, target: PortTarget
) -> EditGroup | None:
    """Comparisons for equality with Hopper's capability; with `keep` they admit both chips. None where there are none,
    and where the module asks for Blackwell too: which of its branches is for the port is not known."""
    tree = asking_module(source, spellings)
    if tree is None:
        return None
    ported = ported_forms(target)
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


def asking_module(source: bytes, spellings: Spellings) -> ast.Module | None:
    """A module that may ask for a capability; None for one that does not, or does not parse."""
    if not spellings.stand_in("python_asked", source.decode("latin-1")):
        return None
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _edit(
    path: str, source: bytes, starts: LineIndex, node: ast.Compare, keep: bool, forms: Mapping[object, _Form]
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
    tree: ast.Module, spellings: Spellings, forms: Mapping[object, _Form]
) -> Iterator[tuple[ast.Compare, set[_Form]]]:
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


def literal(node: ast.expr) -> _Form:
    """A pair, number or text that is written down; the empty text for everything else."""
    try:
        value = ast.literal_eval(node)
        hash(value)
    except (ValueError, TypeError):
        return ""
    return value if isinstance(value, (tuple, int, str)) else ""


class Capabilities:
    """What expressions of a module hold of a capability, told by Hopper's value of it: (9, 0), 9, 90, "9.0", "90"."""

    def __init__(self, tree: ast.Module, spellings: Spellings) -> None:
        self._spellings = spellings
        self.names: dict[str, _Form] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                self._assign(node.targets[0], node.value)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        found = self.of(value)
        if isinstance(target, ast.Name):
            if found is None:
                self.names.pop(target.id, None)
            else:
                self.names[target.id] = found
        elif isinstance(target, ast.Tuple) and found == (9, 0) and target.elts and isinstance(target.elts[0], ast.Name):
            self.names[target.elts[0].id] = 9

    def of(self, node: ast.expr) -> _Form | None:
        if isinstance(node, ast.Call):
            return self._called(node)
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == 0:
            return 9 if self.of(node.value) == (9, 0) else None
        if isinstance(node, ast.Attribute):
            return 9 if self._spellings.are("python_major", node.attr) else None
        if isinstance(node, ast.JoinedStr):
            return self._joined([v.value for v in node.values if isinstance(v, ast.FormattedValue)], node)
        if not isinstance(node, ast.BinOp):
            return None
        if isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant) and self.of(node.right) == (9, 0):
            return {"%d.%d": "9.0", "%d%d": "90", "%s.%s": "9.0", "%s%s": "90"}.get(str(node.left.value))
        if isinstance(node.op, ast.Add) and isinstance(node.left, ast.BinOp):
            ten = node.left.right
            scaled = isinstance(node.left.op, ast.Mult) and isinstance(ten, ast.Constant) and ten.value == 10
            return 90 if scaled and self.of(node.left.left) == 9 else None
        return None

    def _called(self, node: ast.Call) -> _Form | None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if self._spellings.are("python_capability", name):
            return (9, 0)
        one = node.args[0] if len(node.args) == 1 else None
        if name == "int" and one is not None and self.of(one) == "90":
            return 90
        if name == "join" and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Constant):
            mapped = isinstance(one, ast.Call) and getattr(one.func, "id", "") == "map" and len(one.args) == 2
            if mapped and isinstance(one, ast.Call) and self.of(one.args[1]) == (9, 0):
                return {"": "90", ".": "9.0"}.get(str(node.func.value.value))
        return None

    def _joined(self, values: list[ast.expr], node: ast.JoinedStr) -> _Form | None:
        """f"{major}.{minor}" and f"{major}{minor}"."""
        if len(values) != 2 or self.of(values[0]) != 9:
            return None
        between = "".join(str(v.value) for v in node.values if isinstance(v, ast.Constant))
        return {"": "90", ".": "9.0"}.get(between)


def _offset(lines: LineIndex, node: ast.expr) -> int:
    return lines.line_start(node.lineno) + node.col_offset


def _end(lines: LineIndex, node: ast.expr) -> int:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return lines.line_start(node.end_lineno) + node.end_col_offset
