# SPDX-License-Identifier: Apache-2.0
"""One source for both chips: the ported functions beside the original ones, chosen by the compiler's target.

Nothing of the original is changed or moved: a port is text in front of the lines that it is for, under a condition that
only a compilation for the port's chip meets, and the original follows in the branch for everything else, the host's own
compilation among it. Conditions and comparisons that admit Hopper admit both chips.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from tree_sitter import Node

from porter.diagnostics import Code, Diagnostic
from porter.lang.cuda import CudaFile, enclosing, find, location, span
from porter.lang.forms import condition
from porter.lang.preprocessor import conditionals, line_end
from porter.lang.sources import SourceSet
from porter.lang.text import Edit, EditGroup, Safety, Span, apply_groups, merged
from porter.ptx.arch import SM100A, PortTarget
from porter.rules.rule import Region, Rule

RULE = "PTR230"


@dataclass(eq=False)
class BothForms:
    """What keeps Hopper beside its port: edits of the original, and what was left for its author to decide."""

    groups: list[EditGroup] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    target: PortTarget = SM100A


def keep_hopper(
    sources: SourceSet, groups: Sequence[EditGroup], rules: Sequence[Rule], target: PortTarget = SM100A
) -> BothForms:
    """The groups of a port turned into additions to the sources.

    Edits of a function, a directive or a line of declarations become a second form of it. Conditions of the
    preprocessor and comparisons with Hopper's compute capability outside of those take in both chips; comments stay.
    A compiler option in a string names one chip, so it is left, and reported.
    """
    by_id = {rule.id: rule for rule in rules}
    result = BothForms(target=target)
    for path, file in sources.files.items():
        mine = [(by_id.get(g.rule), g, e) for g in groups for e in g.edits if e.path == path]
        if mine:
            _keep_in(file, mine, result)
    return result


_Placed = tuple[Rule | None, EditGroup, Edit]


def _keep_in(file: CudaFile, edits: list[_Placed], result: BothForms) -> None:
    forms = [(g, e) for rule, g, e in edits if _has_two_forms(file, rule, e)]
    units = _units(file, [e.span for _, e in forms if len(e.span) or not _stands_alone(file, e)])
    inside = [(g, e) for _, g, e in edits if any(u.contains(e.span) for u in units)]
    added: list[Edit] = []
    for unit in units:
        added += _beside(file, unit, [(g, e) for g, e in inside if unit.contains(e.span)], result.target)
    for _, edit in forms:
        if not any(unit.contains(edit.span) for unit in units):
            added.append(Edit(file.path, edit.span, _only_for_port(file, edit.replacement, result.target)))
    if added:
        rules = tuple(dict.fromkeys(f"{g.rule} {g.title}" for g, _ in inside))
        result.groups.append(
            EditGroup(
                RULE,
                "Blackwell's form beside Hopper's",
                _least_safe(g for g, _ in [*inside, *forms]),
                tuple(added),
                "The compiler's target chooses; Hopper's form is the original, byte for byte.",
                ("CUDA C++ Programming Guide, Feature-specific macros",),
                rules,
            )
        )
    for rule, group, edit in edits:
        if (group, edit) in forms or any(unit.contains(edit.span) for unit in units):
            continue
        _admit(file, rule, group, edit, result)


def _has_two_forms(file: CudaFile, rule: Rule | None, edit: Edit) -> bool:
    """Whether an edit changes code, and no condition or comparison that can admit both chips."""
    if rule is None or rule.pattern is None:
        return True
    return rule.region is Region.CODE and _comparison(file, edit) is None


def _least_safe(groups: Iterable[EditGroup]) -> Safety:
    return Safety.REVIEW if any(g.safety is not Safety.SAFE for g in groups) else Safety.SAFE


# Units ------------------------------------------------------------------------------------------------


def _units(file: CudaFile, spans: Sequence[Span]) -> list[Span]:
    """The lines that stand in two forms: whole functions and directives, balanced in their conditionals."""
    units = merged([_lines(file.source, _whole(file, s)) for s in spans])
    while True:
        grown = merged([_balanced(file, _lines(file.source, _covering(file, unit))) for unit in units])
        if grown == units:
            return units
        units = grown


def _whole(file: CudaFile, where: Span) -> Span:
    """The function, macro or statement outside of functions that holds an edit."""
    for directive in file.lexed.directives:
        if directive.start <= where.start and where.end <= directive.end:
            return directive
    node = file.root.descendant_for_byte_range(where.start, max(where.start, where.end - 1))
    function = node and _outermost_function(node)
    return span(function) if function is not None else where


def _outermost_function(node: Node) -> Node | None:
    """The function around a node, with its template's head; of a lambda or a local class the function around those."""
    found: Node | None = None
    current: Node | None = node
    while current is not None:
        if current.type == "function_definition":
            found = current
        current = current.parent
    if found is None:
        return None
    while found.parent is not None and found.parent.type == "template_declaration":
        found = found.parent
    return found


def _covering(file: CudaFile, unit: Span) -> Span:
    """The unit with every function and directive that begins or ends in it."""
    start, end = unit.start, unit.end
    for node in find(file.root, "function_definition"):
        whole = _outermost_function(node)
        if whole is None:
            continue
        where = span(whole)
        inner = where.contains(unit) and not unit.contains(where)
        if where.overlaps(unit) and not inner:
            start, end = min(start, where.start), max(end, where.end)
    for directive in file.lexed.directives:
        if directive.overlaps(Span(start, end)):
            start, end = min(start, directive.start), max(end, directive.end)
    return Span(start, end)


def _lines(source: bytes, where: Span) -> Span:
    start = source.rfind(b"\n", 0, where.start) + 1
    if where.end > start and source[where.end - 1 : where.end] == b"\n":
        return Span(start, where.end)
    return Span(start, line_end(source, where.end))


def _balanced(file: CudaFile, unit: Span) -> Span:
    """The unit with every conditional of which it holds a directive and not all."""
    for conditional in conditionals(file):
        outer = conditional.span
        cut = [d for d in file.lexed.directives if outer.contains(d) and unit.contains(d) and _is_branch(file, d)]
        own = [d for d in cut if _belongs(file, conditional.span, d)]
        if own and not unit.contains(outer):
            unit = Span(min(unit.start, outer.start), max(unit.end, outer.end))
    return unit


_BRANCH = re.compile(rb"[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif|elifdef|elifndef|else|endif)\b")


def _is_branch(file: CudaFile, directive: Span) -> bool:
    return _BRANCH.match(file.source, directive.start) is not None


def _belongs(file: CudaFile, outer: Span, directive: Span) -> bool:
    """Whether a directive is one of this conditional's own, not of one within it."""
    within = [c.span for c in conditionals(file) if outer.contains(c.span) and c.span != outer]
    return not any(inner.contains(directive) for inner in within)


# Texts ------------------------------------------------------------------------------------------------


def _beside(file: CudaFile, unit: Span, edits: Sequence[tuple[EditGroup, Edit]], target: PortTarget) -> list[Edit]:
    """Insertions around a unit: its port in front of it, the end of the choice behind it."""
    newline = file.newline.encode()
    shifted = []
    for group, edit in edits:
        where = Span(edit.span.start - unit.start, edit.span.end - unit.start)
        shifted.append(replace(group, edits=(Edit("", where, edit.replacement),)))
    original = file.source[unit.start : unit.end]
    ported = apply_groups({"": original}, shifted)[""]
    whole = original.endswith(b"\n")
    ported += b"" if ported.endswith(b"\n") else newline
    front = b"#if " + condition(target) + newline + ported + b"#else" + newline
    back = (b"" if whole else newline) + b"#endif" + newline
    return [Edit(file.path, Span(unit.start, unit.start), front), Edit(file.path, Span(unit.end, unit.end), back)]


def _stands_alone(file: CudaFile, edit: Edit) -> bool:
    """Whether an insertion is of whole lines outside of functions, so that it needs no other form."""
    at = edit.span.start
    if not edit.replacement.endswith(b"\n") or (at and file.source[at - 1 : at] != b"\n"):
        return False
    node = file.root.descendant_for_byte_range(at, at)
    holder = node and enclosing(node, "function_definition", "class_specifier", "struct_specifier", "enum_specifier")
    return holder is None or not holder.start_byte < at < holder.end_byte


def _only_for_port(file: CudaFile, text: bytes, target: PortTarget) -> bytes:
    newline = file.newline.encode()
    return b"#if " + condition(target) + newline + text + b"#endif" + newline


# Conditions and comparisons ---------------------------------------------------------------------------


def _admit(file: CudaFile, rule: Rule | None, group: EditGroup, edit: Edit, result: BothForms) -> None:
    assert rule is not None
    if rule.region is Region.DIRECTIVE:
        made = _both_conditions(file, edit)
    elif rule.region is Region.CODE:
        made = _both_capabilities(file, edit)
    else:
        made = None
        text = file.source[edit.span.start : edit.span.end].decode("utf-8", "replace")
        if rule.region is Region.STRING and _OPTION.search(_string_around(file, edit.span)):
            values = {"text": text, "becomes": edit.replacement.decode("utf-8", "replace")}
            result.diagnostics.append(Diagnostic(Code.LEFT_FOR_ONE_CHIP, location(file, edit.span), values))
    if made is not None and made.replacement != file.source[made.span.start : made.span.end]:
        made_group = EditGroup(
            group.rule, f"{group.title}: both chips", group.safety, (made,), group.reason, group.references
        )
        result.groups.append(made_group)


_OPTION = re.compile(r"(?:^|\s)(?:--?gpu-arch\w*|-arch|--?generate-code|-gencode)\b|arch=")


def _string_around(file: CudaFile, where: Span) -> str:
    start = file.source.rfind(b"\n", 0, where.start) + 1
    return file.source[start : line_end(file.source, where.end)].decode("utf-8", "replace").replace('"', " ")


_DEFINED = re.compile(rb"(?:defined\s*\(\s*|defined\s+)$")


def _both_conditions(file: CudaFile, edit: Edit) -> Edit | None:
    """An edit that makes a condition of the preprocessor hold where it held before, and where the port's would."""
    source = file.source
    before, after = source[edit.span.start : edit.span.end], edit.replacement
    if re.search(rb">=", before):
        # what holds from Hopper on holds for Blackwell
        return None
    start = source.rfind(b"\n", 0, edit.span.start) + 1
    short = re.compile(rb"([ \t]*#[ \t]*)(ifdef|ifndef)([ \t]+)").match(source, start)
    if short is not None and short.end() == edit.span.start:
        no = b"!" if short[2] == b"ifndef" else b""
        joined = b" && " if no else b" || "
        text = short[1] + b"if " + joined.join(no + b"defined(" + name + b")" for name in (before, after))
        return Edit(edit.path, Span(start, edit.span.end), text)
    opened = _DEFINED.search(source, start, edit.span.start)
    if opened is None:
        return Edit(edit.path, edit.span, b"(" + before + b" || " + after + b")")
    end = edit.span.end
    if b"(" in opened[0]:
        end = source.index(b")", end) + 1
    return Edit(edit.path, Span(opened.start(), end), b"(defined(" + before + b") || defined(" + after + b"))")


def _comparison(file: CudaFile, edit: Edit) -> Node | None:
    """The comparison with a number that an edit changes."""
    node = file.root.descendant_for_byte_range(edit.span.start, max(edit.span.start, edit.span.end - 1))
    while node is not None and node.end_byte <= edit.span.end + 1 and node.type != "binary_expression":
        node = node.parent
    found = node if node is not None and node.type == "binary_expression" else None
    right = found and found.child_by_field_name("right")
    return found if right and right.type == "number_literal" and right.end_byte == edit.span.end else None


_JOINED = {b"==": b" || ", b"!=": b" && "}


def _both_capabilities(file: CudaFile, edit: Edit) -> Edit | None:
    """An edit that lets a comparison with Hopper's capability admit both chips; None if it does as it stands."""
    node = _comparison(file, edit)
    assert node is not None
    operator = node.child_by_field_name("operator")
    join = _JOINED.get(operator.text or b"") if operator is not None else None
    number, ported = re.compile(rb"\d+$"), re.search(rb"\d+$", edit.replacement)
    before = file.source[node.start_byte : node.end_byte]
    if operator is not None and operator.text == b"<" and ported is not None and re.search(rb"\b100?$", before):
        # what keeps Blackwell out keeps out what follows it
        return Edit(edit.path, span(node), number.sub(ported[0], before))
    if join is None or ported is None:
        return None
    return Edit(edit.path, span(node), b"(" + before + join + number.sub(ported[0], before) + b")")
