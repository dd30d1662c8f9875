# SPDX-License-Identifier: Apache-2.0
"""Two members more at the end of the structure that a kernel takes its shared memory for: the mbarrier by which sums
are complete, and the address of Tensor Memory. Where launches may not ask for as much, they are static."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tree_sitter import Node

from porter.lang.cuda import CudaFile, walk
from porter.lang.text import Span
from porter.model.block_size import size_text
from porter.model.dynamic_shared import amounts
from porter.model.kernels import top_level
from porter.passes.idiom.atoms import owner_of
from porter.passes.idiom.site import Site
from porter.passes.idiom.text import cpp

RULE, TURNS_RULE = "PTR761", "PTR782"
_TAKEN = re.compile(
    r"(?P<name>\w+)\s*=\s*(?P<star>\*)?\s*(?:reinterpret_cast\s*<\s*(?P<cast>[^()]*?)\s*\*\s*>\s*\(|"
    r"\(\s*(?P<old>[^()]*?)\s*\*\s*\)\s*)"
)
_ALIAS = re.compile(r"\busing\s+(\w+)\s*=\s*(?:typename\s+)?([^;]+);")


@dataclass(frozen=True)
class Storage:
    """The variable by which a kernel names its shared memory, with what stands between it and a member; the statement
    that declares it, None if the port does; and the type and the lines by which that does it."""

    front: str
    declaration: Node | None = None
    kind: str = ""
    struct: str = ""
    lines: str = ""


def find_storage(site: Site) -> Storage:
    """The structure that the kernel takes its shared memory for, with two members more, where all launches ask for its
    size; else one of the port's own.

    Raises:
        Left: launches ask for the size of several structures of a name.
    """
    kernel = site.kernel
    for statement in top_level(kernel):
        if statement.type != "declaration" or statement.start_byte >= site.at.start_byte:
            continue
        match = _TAKEN.search(kernel.text(statement))
        if match is None:
            continue
        kind = (match["cast"] or match["old"]).removeprefix("typename").strip()
        found = _structs(site, kind, 0)
        if not found or not _is_asked_for(site, *found[0]):
            break
        if len(found) == 1:
            _add_members(site, *found[0])
            return Storage(f"{match['name']}{'.' if match['star'] else '->'}", statement)
        raise site.left(statement, f"one struct `{kind}`: there are {len(found)}")
    own, name = site.name("AccumulatorStorage"), site.name("accumulator_storage")
    fields = [{"line": line} for line in declared_members(site).split("\n")]
    bytes_of, rotates = site.name("accumulator_bytes") if site.rotates else "", site.rotates
    struct = cpp("struct_of_storage", site.unit, kind=own, fields=fields)
    lines = cpp("storage", site.unit, kind=own, name=name, rotates=rotates, bytes=bytes_of)
    return Storage(f"{name}.", kind=own, struct=struct, lines=lines)


def _is_asked_for(site: Site, file: CudaFile, body: Node) -> bool:
    """Whether all launches of the kernel that stand in the sources ask for the size of a structure."""
    named = body.parent.child_by_field_name("name") if body.parent is not None else None
    names = {file.text(named)} if named is not None else set()
    for one in site.program.sources.files.values():
        names |= {m[1] for m in _ALIAS.finditer(one.lexed.plain_text) if set(re.findall(r"\w+", m[2])) & names}
    asked = [size_text(site.program, caller, node) for caller, node in amounts(site.program, site.kernel)]
    size = re.compile(rf"\bsizeof\s*\((?:[^()]*\W)?(?:{'|'.join(map(re.escape, names))})\b")
    return bool(asked and names) and all(size.search(text) for text in asked)


def _structs(site: Site, kind: str, depth: int) -> list[tuple[CudaFile, Node]]:
    """Structs of the sources that a type may be, through aliases."""
    plain = _without_arguments(kind)
    name, owner = plain.rpartition("::")[2], plain.rpartition("::")[0].rpartition("::")[2]
    found = []
    for file in site.program.sources.files.values():
        for node in walk(file.root):
            body, named = node.child_by_field_name("body"), node.child_by_field_name("name")
            is_class = node.type in ("struct_specifier", "class_specifier") and body is not None
            if body is not None and named is not None and is_class and file.text(named) == name:
                found.append((file, body))
    if len(found) > 1 and owner:
        meant = {owner, *(_without_arguments(m[2]).rpartition("::")[2] for m in _aliases(site, owner))}
        found = [(f, b) for f, b in found if _around(f, b) & meant] or found
    if found or depth > 3:
        return found
    further = {m[2].strip() for m in _aliases(site, name)}
    return [one for text in further for one in _structs(site, text, depth + 1)]


def _without_arguments(kind: str) -> str:
    """A type's name without the arguments of templates in it."""
    while (shorter := re.sub(r"<[^<>]*>", "", kind)) != kind:
        kind = shorter
    return kind.strip()


def _aliases(site: Site, name: str) -> list[re.Match[str]]:
    texts = [f.lexed.plain_text for f in site.program.sources.files.values()]
    return [m for text in texts for m in _ALIAS.finditer(text) if m[1] == name]


def _around(file: CudaFile, body: Node) -> set[str]:
    found, node = set(), body.parent.parent if body.parent is not None else None
    while node is not None:
        named = node.child_by_field_name("name") if node.type.endswith(("_specifier", "_definition")) else None
        if named is not None:
            found.add(re.sub(r"\s|<.*>", "", file.text(named)))
        node = node.parent
    return found


def _add_members(site: Site, file: CudaFile, body: Node) -> None:
    members = [n for n in body.named_children if n.type == "field_declaration"]
    if not members:
        raise site.left(site.handle.declaration, "a member of the structure for shared memory")
    last, owner = members[-1], owner_of(site, file)
    lines, rule = declared_members(site), TURNS_RULE if site.asked.buffers > 1 else RULE
    if body.start_point[0] == body.end_point[0]:
        site.draft.insert(rule, owner, last.end_byte, " " + lines.replace("\n", " "))
        return
    pad = "\n" + site.port.indent(owner, Span(last.start_byte, last.end_byte))
    site.draft.insert(rule, owner, last.end_byte, "".join(pad + line for line in lines.split("\n")))


def declared_members(site: Site) -> str:
    """The declarations of mbarriers, of each warpgroup that issues, and of the address of Tensor Memory."""
    address = f"uint32_t {site.name('tmem_base')};"
    if site.rotates:
        buffers, name = site.asked.buffers, site.name("accumulators")
        pair = f", {site.cluster}" if site.asked.pair else ""
        return cpp("member_of_accumulators", buffers=buffers, of_pair=pair, accumulators=name) + f"\n{address}"
    own = f"[{site.groups}]" if site.groups > 1 else ""
    names = [site.name("accumulator_full")]
    names += [site.name("registers_stored")] if site.groups and not site.meets_whole else []
    return f"uint64_t {', '.join(name + own for name in names)};\n{address}"
