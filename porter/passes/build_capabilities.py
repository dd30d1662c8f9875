# SPDX-License-Identifier: Apache-2.0
"""Python that asks for the device's compute capability: comparisons that admit Hopper admit the port's chip."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

import libcst as cst

from porter.lang.python import PythonFile, element_values, python_module
from porter.lang.text import Edit, EditGroup, Safety, Span
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
    file = asking_module(source, spellings)
    if file is None:
        return None
    ported = forms_of(target.sm)
    found = list(_comparisons(file, spellings, ported))
    if any(values & set(ported.values()) for _, values in found):
        return None
    edits = [_edit(path, file, node, keep, ported) for node, values in found if values & set(ported)]
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


def asking_module(source: bytes, spellings: Spellings, given: Collection[str] = ()) -> PythonFile | None:
    """A module that may ask for a capability, itself or by the functions that are `given`; None for one that does not,
    or does not parse."""
    named = any(re.search(rb"\b" + re.escape(name.encode()) + rb"\b", source) for name in given)
    if not named and not spellings.stand_in("python_asked", source.decode("latin-1")):
        return None
    return python_module(source)


def _edit(path: str, file: PythonFile, node: cst.Comparison, keep: bool, forms: Mapping[object, Form]) -> Edit:
    operator, right = node.comparisons[0].operator, node.comparisons[0].comparator
    if isinstance(operator, (cst.In, cst.NotIn)):
        # the elements, each in front of its port
        own = next(e for e in element_values(right) or () if literal(e) in forms)
        written = file.text(own)
        ported = _written(forms[literal(own)], written)
        return Edit(path, file.span(own), (f"{written}, {ported}" if keep else ported).encode())
    value, written, where = literal(right), file.text(right), file.span(right)
    new = _written(forms[value], written)
    if keep:
        sign = re.compile(rb"==|!=").search(file.source, file.span(node.left).end, where.start)
        assert sign is not None
        first, between = sign.start(), file.source[sign.end() : where.start].decode()
        equal = isinstance(operator, cst.Equal)
        new = f"{'in' if equal else 'not in'}{between or ' '}({_written(value, written)}, {new})"
        if file.source[first - 1 : first] not in b" \t)":
            new = " " + new
        where = Span(first, where.end)
    return Edit(path, where, new.encode())


def _written(value: object, manner: str) -> str:
    """A value with the quotes of another one."""
    return repr(value).replace("'", '"') if manner.startswith('"') else repr(value)


def _comparisons(
    file: PythonFile, spellings: Spellings, forms: Mapping[object, Form]
) -> Iterator[tuple[cst.Comparison, set[Form]]]:
    """Comparisons of a capability for equality or membership, with the values that it is compared with."""
    kinds = Capabilities(file, spellings)
    for node in kinds.nodes:
        if not isinstance(node, cst.Comparison) or len(node.comparisons) != 1:
            continue
        wanted, (compared,) = kinds.of(node.left), node.comparisons
        if wanted is None:
            continue
        listed: Sequence[cst.BaseExpression] = ()
        if isinstance(compared.operator, (cst.Equal, cst.NotEqual)):
            listed = [compared.comparator]
        elif isinstance(compared.operator, (cst.In, cst.NotIn)):
            listed = element_values(compared.comparator) or ()
        values = {v for e in listed for v in [literal(e)] if v in (wanted, forms[wanted]) and type(v) is type(wanted)}
        if values:
            yield node, values
