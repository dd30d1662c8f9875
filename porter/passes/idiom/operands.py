# SPDX-License-Identifier: Apache-2.0
"""A from registers: it goes to Tensor Memory, behind the columns of the accumulator, and MMAs read it there. Threads
load and convert it as before, partitioned as the copy to Tensor Memory has it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.scopes import resolve
from porter.model.tiled.tensors import initializer
from porter.passes.idiom.site import Site
from porter.passes.idiom.text import cpp
from porter.ptx.umma import K_BYTES

RULE = "PTR770"
_LIKE = re.compile(r"\bmake_(?:fragment|tensor)_like\b")
_PART = re.compile(r"(?P<slice>\w+)\s*\.\s*partition_A\s*\((?P<tensor>.*)\)\Z", re.DOTALL)


@dataclass(eq=False)
class Operand:
    """The tensor of registers, `name`, and the declaration of what it is loaded from."""

    site: Site
    name: str
    declaration: Node
    part: str
    """The variable that is a thread's part of A."""
    tensor: str
    """What that is a part of."""

    @property
    def words(self) -> dict[str, str]:
        site = self.site
        own = f"{self.in_memory}_part" if site.types.warpgroups > 1 else self.in_memory
        return {"c": site.c, "r2t": site.name("r2t"), "thread": site.name("thread_r2t"), "tensor_part": own}

    @property
    def in_memory(self) -> str:
        """The tensor in Tensor Memory."""
        match = re.fullmatch(r"t(\w)r(\w+)", self.name)
        return self.site.name(f"t{match[1]}t{match[2]}" if match else "tCtA")

    @property
    def columns(self) -> int:
        return self.site.types.depth * self.site.types.bits // 32

    def declared(self, by_rows: bool, front: str) -> str:
        """Lines that declare it behind the accumulator."""
        site, types = self.site, self.site.types
        steps = types.depth * types.bits // 8 // K_BYTES
        share = 1 if by_rows else types.warpgroups
        if steps % share:
            raise site.left(self.declaration, f"steps of k for each warpgroup: there are {steps} for {share}")
        names, several = site.tile_names, types.warpgroups > 1
        return cpp(
            "operand",
            tensor=self.in_memory,
            slice=site.name("cta_mma"),
            mma=site.mma,
            storage=front,
            m=names[0] if names else str(types.rows),
            k=self._depth(),
            base=site.name("tmem_base"),
            column=names[1] if names and types.rows == 128 else str(types.rows // 128 * types.columns),
            shared=several,
            by_rows=by_rows,
            share=site.name("share") if several else "",
            place=site.name("place") if several else "",
            index=site.warpgroup_index,
            steps=steps // share,
            repeat=self.columns // share,
            **self.words,
        )

    def loaded(self, head: str) -> str:
        """The declaration of what threads load: of one tile of several by its number, as copies have no more modes than
        the tensor that they were made for."""
        site, tiles = self.site, self._tiles()
        tile = site.name("tile_A") if tiles else ""
        whole = f"{self.tensor}({site.c}_, {site.c}_, {tile})" if tiles else self.tensor
        part = f"{site.name('cta_mma')}.partition_A({whole})"
        if site.types.warpgroups > 1:
            part = f"{site.c}local_tile({part}, {site.name('share')}, {site.name('place')})"
        for node, number in tiles:
            site.draft.replace(RULE, site.kernel, site.kernel.span(node), f"{self.part}({number})")
        loaded = f"{self.words['thread']}.partition_S({part})"
        return cpp("operand_load", site.unit, tiles=bool(tiles), part=self.part, tile=tile, head=head, loaded=loaded)

    def _tiles(self) -> list[tuple[Node, str]]:
        """Where a tile of A is taken, with its number; none if there is one tile.

        Raises:
            Left: the part of A is used in another way, too.
        """
        kernel, found, others = self.site.kernel, list[tuple[Node, str]](), list[Node]()
        for node in find(kernel.body, "identifier"):
            above = node.parent
            if kernel.text(node) != self.part or above is None or above.type == "init_declarator":
                continue
            arguments = above.child_by_field_name("arguments") if above.type == "call_expression" else None
            modes = [kernel.text(n) for n in arguments.named_children] if arguments is not None else []
            whole = [m.rpartition("::")[2] for m in modes[:3]]
            if len(modes) == 4 and whole == ["_"] * 3 and above.child_by_field_name("function") == node:
                found.append((above, modes[3]))
            else:
                others.append(node)
        if found and (others or not self.tensor.isidentifier()):
            raise self.site.left(self.declaration, f"a tile of `{self.part}` wherever it is used")
        return found

    def _depth(self) -> str:
        """The steps of k of a tile, as the kernel names them where it cuts A into tiles."""
        value = self.site.value_of(self.tensor) if self.tensor.isidentifier() else None
        text = self.site.kernel.text(value) if value is not None else ""
        match = re.search(r"Shape\s*<[^,]*,\s*(?:\w+::)*Int\s*<\s*(\w+)\s*>", text)
        return match[1] if match else str(self.site.types.depth)

    def stored(self) -> str:
        """Lines in front of the MMAs that read it."""
        site = self.site
        return cpp(
            "operand_store", registers=self.name, whole=site.is_whole, threads=str(site.types.threads), **self.words
        )


def find_operand(site: Site) -> Operand | None:
    """The operand, if A is in registers.

    Raises:
        Left: it is, and does not come from a part of A that threads load.
    """
    texts = [f.lexed.plain_text for f in site.program.sources.files.values()]
    if not any(site.program.vocabulary.spellings.stand_in("a_in_registers", text) for text in texts):
        return None
    where = site.handle.declaration
    if len(site.multiplies) != 1 or site.multiplies[0].call.caller is not site.kernel:
        raise site.left(where, "A from registers for MMAs that the kernel issues at one place")
    kernel, node = site.kernel, site.multiplies[0].a
    first = next(find(node, "identifier"), None)
    variable = resolve(kernel, first, kernel.text(first)) if first is not None else None
    if variable is None or variable.declaration is None:
        raise site.left(node, "A from registers as a variable of the kernel")
    name, declaration = variable.name, variable.declaration
    for _ in range(4):
        value = initializer(variable) if variable is not None else None
        part = _PART.match(kernel.text(value)) if value is not None else None
        if variable is not None and part is not None:
            return Operand(site, name, declaration, variable.name, part["tensor"].strip())
        if value is None or not _LIKE.search(kernel.text(value)):
            break
        arguments = value.child_by_field_name("arguments")
        inner = next(find(arguments, "identifier"), None) if arguments is not None else None
        variable = resolve(kernel, inner, kernel.text(inner)) if inner is not None else None
    raise site.left(declaration, "A from registers that are like a part of A in memory")
