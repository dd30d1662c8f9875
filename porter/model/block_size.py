# SPDX-License-Identifier: Apache-2.0
"""How many threads a block of a kernel has: what the kernel checks, its launch bound, or its launches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from porter.lang.cuda import find, walk
from porter.lang.text import as_bytes
from porter.model.constants import local_definitions
from porter.model.empty_calls import aborts
from porter.model.functions import Call, Function, Style, declared_name
from porter.model.program import Program
from porter.model.scopes import Variable, declared_names, resolve

LAUNCHERS = {
    "cudaLaunchKernelEx": 1,
    "cudaLaunchKernelExC": 1,
    "cudaLaunchKernel": 0,
    "cudaLaunchCooperativeKernel": 0,
}
"""Functions that launch, and which of their arguments is the kernel."""
_BY_VALUE = re.compile(r"(?:std\s*::\s*)?(?:f|s|sn)?printf|dim3|cuda[A-Z]\w*|cu[A-Z]\w*")
"""Functions outside of the sources that take numbers and sizes by value."""
_ASKED = re.compile(r"cudaFunc|cudaOccupancy|cuFunc|cuOccupancy|sizeof$|decltype$")
"""Functions that take a kernel and do not launch it."""
_CAST = re.compile(r"(?:reinterpret|static)_cast")
_NAMING = (
    "template_function",
    "qualified_identifier",
    "pointer_expression",
    "cast_expression",
    "parenthesized_expression",
    "conditional_expression",
)
_SIZES = re.compile(
    r"dim3|auto|(?:std ?:: ?)?size_t|u?int(?:8|16|32|64)_t|(?:unsigned|signed|int|long|short)(?: (?:int|long|short))*"
)
_WRITTEN = ("call_expression", "compound_literal_expression")
_NAME = re.compile(r"[A-Za-z_]\w*(?:\s*::\s*[A-Za-z_]\w*)*")
_OTHER_AXES = re.compile(r"\b(?:threadIdx|blockDim)\s*\.\s*[yz]\b")
_DEPTH = 8


@dataclass
class _Launch:
    """One launch: its block size as a number if that is known, as text, and the kernel's template arguments."""

    value: int | None
    text: str
    template_args: tuple[str, ...]
    launcher: Function | None


def threads_of(program: Program, function: Function) -> str | None:
    """The threads of a block as a constant expression in the kernel, or an upper bound of them; None if the sources do
    not tell."""
    bound = function.block_size or _launch_bounds(function) or ""
    if _is_hidden(function, bound):
        value = program.constants_around(function).evaluate(bound)
        bound = str(value) if value is not None else ""
    return _checked(program, function) or bound or _launched(program, function)


def _is_hidden(function: Function, text: str) -> bool:
    """Whether a kernel declares a name of an expression in its head, which is another thing in its body then."""
    names = set(_NAME.findall(text))
    if not names:
        return False
    declared = {p.name for p in function.params} | local_definitions(function).keys()
    for declaration in find(function.body, "declaration"):
        for declarator in declaration.children_by_field_name("declarator"):
            declared.update(map(function.text, declared_names(declarator)))
    return bool(names & declared)


# --- what the kernel says


def _checked(program: Program, function: Function) -> str | None:
    """`blockDim.x` of a check that all threads pass or nobody does."""
    if _OTHER_AXES.search(function.text(function.body)):
        return None
    for node in function.body.named_children:
        condition = _condition(program, function, node)
        for left, right in _comparisons(function, condition[0], condition[1]) if condition is not None else ():
            for size, expression in ((left, right), (right, left)):
                if re.fullmatch(r"blockDim\s*\.\s*x", function.text(size)):
                    text = function.text(expression)
                    if _is_visible(program, function, text):
                        return text
    return None


def _condition(program: Program, function: Function, node: Node) -> tuple[Node, str] | None:
    """The condition of a check, with the comparison that it is about: `!=` where it leads to an abort."""
    if node.type == "if_statement":
        arm, condition = node.child_by_field_name("consequence"), node.child_by_field_name("condition")
        if arm is None or condition is None or node.child_by_field_name("alternative") is not None:
            return None
        inner = [c for c in arm.named_children if c.type != "comment"] if arm.type == "compound_statement" else [arm]
        if not inner or not all(_gives_up(program, function, c) for c in inner[-1:]):
            return None
        return (condition.child_by_field_name("value") or condition), "!="
    if node.type != "expression_statement" or not node.named_children:
        return None
    call = node.named_children[0]
    callee, arguments = call.child_by_field_name("function"), call.child_by_field_name("arguments")
    if callee is None or arguments is None or not arguments.named_children:
        return None
    if function.text(callee) in ("assert", "__builtin_assume", "__assume"):
        return arguments.named_children[0], "=="
    return None


def _gives_up(program: Program, function: Function, node: Node) -> bool:
    if node.type == "return_statement":
        return True
    inner = node.named_children[0] if node.type == "expression_statement" and node.named_children else node
    call = next((c for c in function.calls if c.node.id == inner.id), None)
    return call is not None and aborts(program, call)


def _comparisons(function: Function, node: Node, wanted: str) -> Iterator[tuple[Node, Node]]:
    """The comparisons that hold in whoever passes: of `a != 1 || b != 2` both are, of `a == 1 && b == 2` too."""
    while node.type in ("parenthesized_expression", "condition_clause") and node.named_children:
        node = node.named_children[0]
    if node.type != "binary_expression":
        return
    operator = node.child_by_field_name("operator")
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    if operator is None or left is None or right is None:
        return
    sign = function.text(operator)
    if sign == ("||" if wanted == "!=" else "&&"):
        yield from _comparisons(function, left, wanted)
        yield from _comparisons(function, right, wanted)
    elif sign == wanted:
        yield left, right


def _launch_bounds(function: Function) -> str | None:
    head_end = function.body.start_byte
    for node in walk(function.node):
        if node.start_byte >= head_end:
            break
        if node.type == "launch_bounds" and node.named_children:
            return function.text(node.named_children[0])
    text = function.file.source[function.node.start_byte : head_end].decode("utf-8", "replace")
    match = re.search(r"__launch_bounds__\s*\(\s*([^,()]+(?:\([^()]*\))?[^,()]*)", text)
    return match.group(1).strip() if match else None


def _is_visible(program: Program, function: Function, text: str) -> bool:
    """Whether an expression means the same in the kernel's head: numbers, template parameters, constants outside."""
    known = program.constants_in(function)
    if known.evaluate(text) is not None:
        return True
    names = {m.group() for m in _NAME.finditer(text)}
    return bool(names) and all(n in function.template_params or _is_outside(program, function, n) for n in names)


def _is_outside(program: Program, function: Function, name: str) -> bool:
    return program.constants_around(function).text(name) is not None


# --- what the launches say


def _launched(program: Program, function: Function) -> str | None:
    launches = list(_launches(program, function)) or list(_launches_in_text(program, function))
    if not launches or not _is_understood(program, function):
        return None
    for index, name in enumerate(function.template_params):
        if name and all(_is_argument(program, launch, index) for launch in launches):
            # exact for every instantiation
            numbers = {launch.value for launch in launches}
            if len(numbers) > 1 or None in numbers:
                return name
    values = [launch.value for launch in launches]
    if None not in values:
        return str(max(v for v in values if v is not None))
    texts = {launch.text for launch in launches}
    if len(texts) != 1:
        return None
    text = texts.pop()
    names = [m.group() for m in _NAME.finditer(text)]
    return text if names and all(_is_outside(program, function, n) for n in names) else None


def _is_argument(program: Program, launch: _Launch, index: int) -> bool:
    """Whether the block size is the template argument with this index."""
    if index >= len(launch.template_args):
        return False
    argument = launch.template_args[index]
    if "".join(argument.split()) == "".join(launch.text.split()):
        return True
    known = program.constants_in(launch.launcher) if launch.launcher is not None else program.constants
    return launch.value is not None and known.evaluate(argument) == launch.value


def is_launched(program: Program, function: Function) -> bool:
    """Whether a launch of the kernel stands in the sources."""
    return next(_launches(program, function), None) is not None


def launch_sizes(program: Program, function: Function) -> set[int]:
    """How many threads launches of a kernel give its blocks, where that is a number; both of a choice."""
    found = set()
    for launch in (*_launches(program, function), *_launches_in_text(program, function)):
        known = program.constants_in(launch.launcher) if launch.launcher is not None else program.constants
        arms = re.split(r"[?:]", launch.text)[1:] if "::" not in launch.text else []
        found |= {v for v in (launch.value, *(known.evaluate(a) for a in arms)) if v is not None}
    return found


def _launches(program: Program, function: Function) -> Iterator[_Launch]:
    for call in program.callers(function):
        syntax = next((c for c in call.node.named_children if c.type == "kernel_call_syntax"), None)
        parts = [c for c in syntax.named_children if c.type != "comment"] if syntax is not None else []
        if len(parts) >= 2:
            yield _launch(program, call.caller, parts[1], call.template_args)
    for launcher in program.functions:
        for call in launcher.calls:
            if call.name in LAUNCHERS and len(call.args) > LAUNCHERS[call.name]:
                yield from _launched_by_runtime(program, function, call)


def _launched_by_runtime(program: Program, function: Function, call: Call) -> Iterator[_Launch]:
    launcher = call.caller
    kernel = call.args[LAUNCHERS[call.name]]
    named = kernel_named(program, function, launcher, kernel, 0)
    if named is None:
        return
    block: Node | None = None
    if LAUNCHERS[call.name] == 0:
        block = call.args[2] if len(call.args) > 2 else None
    else:
        block = _configured(program, launcher, call.args[0])
    if block is not None:
        yield _launch(program, launcher, block, named)
    else:
        yield _Launch(None, "", named, launcher)


def launches_in(program: Program, function: Function) -> Iterator[tuple[Function, Node]]:
    """Where a kernel is launched: the `<<<…>>>`, or the call of the runtime, with the function that it stands in."""
    for launcher in program.functions:
        for syntax in find(launcher.body, "kernel_call_syntax"):
            called = syntax.parent.child_by_field_name("function") if syntax.parent is not None else None
            if called is not None and kernel_named(program, function, launcher, called, 0) is not None:
                yield launcher, syntax
        for call in launcher.calls:
            at = LAUNCHERS.get(call.name, len(call.args))
            if at < len(call.args) and kernel_named(program, function, launcher, call.args[at], 0) is not None:
                yield launcher, call.node


def kernel_named(
    program: Program, function: Function, launcher: Function, node: Node, depth: int
) -> tuple[str, ...] | None:
    """The template arguments with which an expression names the kernel; None if it names something else."""
    for inner in walk(node):
        if inner.type not in ("identifier", "template_function", "qualified_identifier"):
            continue
        text = launcher.text(inner)
        name = re.sub(r"<.*", "", text, flags=re.DOTALL).split("::")[-1].strip()
        if name == function.name:
            found = program.names.functions_named(launcher, inner)
            if found and function not in found:
                return None
            lists = list(find(inner, "template_argument_list"))
            return tuple(launcher.text(c) for c in lists[0].named_children) if lists else ()
        variable = resolve(launcher, inner, name) if inner.type == "identifier" and depth < _DEPTH else None
        value = variable.declarator.child_by_field_name("value") if variable and variable.declarator else None
        if value is not None:
            return kernel_named(program, function, launcher, value, depth + 1)
    return None


def _configured(program: Program, launcher: Function, given_to: Node) -> Node | None:
    """What a `cudaLaunchConfig_t` says of the block; None if that is not clear."""
    name = launcher.text(given_to).lstrip("&").strip()
    if not re.fullmatch(r"\w+", name) or not _stays(program, launcher, name, "blockDim"):
        return None
    meant, found = resolve(launcher, given_to, name), list[Node]()
    for node in find(launcher.body, "assignment_expression", "init_declarator"):
        if not _is_of(launcher, node, name, meant):
            continue
        left, value = node.child_by_field_name("left"), node.child_by_field_name("right")
        if left is not None and re.fullmatch(rf"{name}\s*\.\s*blockDim", launcher.text(left)):
            found += [value] if value is not None else []
        declarator, given = node.child_by_field_name("declarator"), node.child_by_field_name("value")
        if declarator is None or given is None or launcher.text(declarator) != name:
            continue
        if given.type == "initializer_list":
            parts = [c for c in given.named_children if c.type != "comment"]
            pairs = [c for c in parts if c.type == "initializer_pair"]
            named = [c for c in pairs if launcher.text(c).lstrip().startswith(".blockDim")]
            if named:
                found += [v for c in named if (v := c.child_by_field_name("value")) is not None]
            elif len(parts) > 1 and not pairs:
                found.append(parts[1])
    return found[0] if len(found) == 1 else None


def _is_of(launcher: Function, node: Node, name: str, meant: Variable | None) -> bool:
    """Whether an assignment or a declaration is not that of another variable with the same name."""
    if meant is None or meant.declarator is None:
        return True
    if node.type == "init_declarator":
        return launcher.text(node.child_by_field_name("declarator") or node) != name or node.id == meant.declarator.id
    there = resolve(launcher, node, name)
    return there is None or there.key == meant.key


def _stays(program: Program, launcher: Function, name: str, part: str = "") -> bool:
    """Whether a variable of host code, or the `part` of it, is changed by nothing but an assignment to the whole
    `part`; for a variable without `part` by nothing at all."""
    if any(name in program.macros.words(macro) for macro in program.macros.by_name):
        return False
    for node in find(launcher.body, "identifier"):
        if launcher.text(node) != name or node.parent is None:
            continue
        inner, outer, fields = node, node.parent, list[str]()
        while outer.parent is not None and outer.type in ("field_expression", "parenthesized_expression"):
            field = outer.child_by_field_name("field")
            fields += [launcher.text(field)] if field is not None else []
            inner, outer = outer, outer.parent
        if part and fields and fields[0] != part:
            continue
        is_written = outer.type == "update_expression" or outer.child_by_field_name("left") == inner
        if outer.type in ("assignment_expression", "update_expression") and is_written:
            if fields != [part]:
                return False
        elif (outer.type == "pointer_expression" and launcher.text(outer).startswith("&")) or _is_bound(outer, inner):
            call = outer.parent.parent if outer.type == "pointer_expression" and outer.parent is not None else None
            if not part or call is None or _callee(launcher, call) not in LAUNCHERS:
                return False
        elif outer.type == "argument_list" and not _takes_copy(program, launcher, outer, inner):
            return False
    return True


def _is_bound(outer: Node, inner: Node) -> bool:
    """Whether a reference is bound to what an initializer names."""
    declarator = outer.child_by_field_name("declarator") if outer.type == "init_declarator" else None
    is_value = declarator is not None and outer.child_by_field_name("value") == inner
    return is_value and declarator is not None and declarator.type == "reference_declarator"


def _takes_copy(program: Program, launcher: Function, arguments: Node, argument: Node) -> bool:
    """Whether a call or an initializer leaves an argument as it is."""
    node = arguments.parent
    if node is None or node.type != "call_expression" or _BY_VALUE.fullmatch(_callee(launcher, node)):
        return True
    call = next((c for c in launcher.calls if c.node.id == node.id), None)
    targets = program.targets(call) if call is not None else []
    for target in targets:
        index = next((i for i, a in enumerate(call.args if call is not None else ()) if a == argument), -1)
        if not 0 <= index < len(target.params):
            return False
        kind = program.names.type_of_param(target, target.params[index])
        if kind.kind == "unknown" or (kind.reference and not kind.const):
            return False
    return bool(targets)


def _callee(function: Function, node: Node) -> str:
    callee = node.child_by_field_name("function") if node.type == "call_expression" else None
    return function.text(callee).split("<")[0].strip() if callee is not None else ""


def _is_understood(program: Program, function: Function) -> bool:
    """Whether all that host code does with a kernel is known: launches, and questions about it."""
    word = re.compile(rb"\b" + as_bytes(function.name) + rb"\b")
    for launcher in program.functions:
        if launcher.style is Style.MACRO or not word.search(launcher.file.source, *_range(launcher)):
            continue
        for node in find(launcher.body, "identifier"):
            if launcher.text(node) != function.name:
                continue
            meant = program.names.functions_named(launcher, node)
            if (not meant or function in meant) and not _is_launched(launcher, node, 0):
                return False
    return True


def _range(function: Function) -> tuple[int, int]:
    return function.body.start_byte, function.body.end_byte


def _is_launched(launcher: Function, node: Node, depth: int) -> bool:
    """Whether a name of a kernel, or of a variable that holds one, stands where it is launched or asked about."""
    inner, outer = node, node.parent
    while outer is not None:
        call = outer.parent if outer.type == "argument_list" else None
        if outer.type not in _NAMING and (call is None or not _CAST.fullmatch(_callee(launcher, call))):
            break
        inner = outer if call is None else call
        outer = inner.parent
    if outer is None:
        return True
    if outer.type == "call_expression":
        return depth == 0 and any(c.type == "kernel_call_syntax" for c in outer.named_children)
    if outer.type == "argument_list" and outer.parent is not None:
        name = _callee(launcher, outer.parent)
        return name in LAUNCHERS or _ASKED.match(name) is not None
    if outer.type != "init_declarator" or outer.child_by_field_name("value") != inner or depth > 1:
        # its own declaration
        return outer.type == "init_declarator" and depth > 0 and outer.child_by_field_name("value") != inner
    declared = declared_name(outer)
    name = launcher.text(declared) if declared is not None else ""
    same = [n for n in find(launcher.body, "identifier") if launcher.text(n) == name]
    return all(_is_launched(launcher, n, depth + 1) for n in same)


def _launch(program: Program, launcher: Function, block: Node, template_args: tuple[str, ...]) -> _Launch:
    text = size_text(program, launcher, block, 0)
    value = program.constants_in(launcher).evaluate(text) if text else None
    return _Launch(value, text, template_args, launcher)


def size_text(program: Program, launcher: Function, block: Node, depth: int = 0) -> str:
    """A block argument as the product of its dimensions, and a number as what its variables hold; empty if it is not
    read."""
    if depth > _DEPTH:
        return ""
    if block.type in ("argument_list", "initializer_list"):
        parts = [c for c in block.named_children if c.type != "comment"]
        texts = [size_text(program, launcher, c, depth + 1) for c in parts]
        return texts[0] if len(texts) == 1 else " * ".join(f"({t})" for t in texts) if all(texts) else ""
    if block.type in _WRITTEN:
        head = block.child_by_field_name("function") or block.child_by_field_name("type")
        arguments = block.child_by_field_name("arguments") or block.child_by_field_name("value")
        if head is not None and arguments is not None and launcher.text(head) == "dim3":
            return size_text(program, launcher, arguments, depth + 1)
        return launcher.text(block)
    variable = resolve(launcher, block, launcher.text(block)) if block.type == "identifier" else None
    declarator = variable.declarator if variable is not None else None
    value = declarator.child_by_field_name("value") if declarator is not None else None
    if value is not None and variable is not None and variable.declaration is not None:
        kind = variable.declaration.child_by_field_name("type")
        known = kind is not None and _SIZES.fullmatch(" ".join(launcher.text(kind).split())) is not None
        is_kept = known and not variable.is_reference and _stays(program, launcher, variable.name)
        return size_text(program, launcher, value, depth + 1) if is_kept else ""
    return launcher.text(block)


def _launches_in_text(program: Program, function: Function) -> Iterator[_Launch]:
    """Launches in text that was not understood as a call, such as a macro's. Where the names in it are declared is not
    known: they have to be the same everywhere."""
    pattern = re.compile(
        rb"\b" + as_bytes(function.name) + rb"\s*(?:<[^;(){}]*>)?\s*<<<\s*([^;]*?)>>>",
        re.DOTALL,
    )
    for file in program.sources.files.values():
        for match in pattern.finditer(file.source):
            parts = split_commas(match.group(1).decode("utf-8", "replace"))
            if len(parts) >= 2:
                block = _dimensions(program, parts[1].strip())
                names = [m.group() for m in _NAME.finditer(block)]
                known = all(
                    program.constants.agrees(program.constants_in(f), n) for n in names for f in program.functions
                )
                yield _Launch(program.constants.evaluate(block) if known else None, block if known else "", (), None)


def _dimensions(program: Program, block: str) -> str:
    """What the only variable of a name is made from, if that is a `dim3`."""
    if not re.fullmatch(r"\w+", block):
        return block
    declared = re.compile(rf"\bdim3\s+{block}\s*[({{]([^;]*)[)}}]\s*;")
    texts = [file.source.decode("utf-8", "replace") for file in program.sources.files.values()]
    found = {m.group(1) for text in texts for m in declared.finditer(text)}
    changed = any(re.search(rf"\b{block}\s*(?:\.\s*\w+\s*)?[-+*/]?=[^=]|&\s*{block}\b", text) for text in texts)
    if len(found) != 1 or changed:
        return block
    return " * ".join(f"({p.strip()})" for p in split_commas(found.pop()))


def split_commas(text: str) -> list[str]:
    """The parts of a list between commas outside of brackets."""
    parts, depth, current = [], 0, ""
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += character
    return [*parts, current]
