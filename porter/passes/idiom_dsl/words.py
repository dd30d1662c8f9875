# SPDX-License-Identifier: Apache-2.0
"""What the new lines of a kernel call things: modules as the file does, all else by names that it does not have."""

from __future__ import annotations

from typing import Any

from porter.passes.emit import sections
from porter.passes.idiom_dsl.imports import Imports
from porter.passes.idiom_dsl.kernel import Kernel
from porter.passes.idiom_dsl.names import IN_SECTIONS, OPTIONAL
from porter.passes.idiom_dsl.parts import Parts
from porter.passes.idiom_dsl.text import deeper

_FILE = "sm100_dsl.py.txt"
_OWN = {
    "sums": "acc_full",
    "fills": "acc_fill_state",
    "reads": "acc_state",
    "tmem": "tmem",
    "barriers": "acc_barriers",
    "address": "tmem_address",
    "pointer": "tmem_ptr",
    "atom": "load_atom",
    "acc_tiles": "acc_epi",
    "load": "tiled_load",
    "thread": "thr_load",
    "from_tmem": "tTR_tAcc",
    "registers": "tTR_rAcc",
    "tile_of": "tAcc",
    "part": "acc_part",
    "place": "acc_place",
    "any": "multiplies",
    "gathered": "tmem_barrier",
    "issues": "is_mma_warp",
    "k": "k_block",
    "k_part": "k_part",
    "rank": "cta_rank",
    "columns": "acc_columns",
    "asked": "tile_barriers",
    "answer": "next_tile",
    "next": "next_tiles",
    "took": "tile_state",
    "asks": "ask_state",
    "asking": "ask_tiles",
    "asked_for": "tile",
    "read": "acc_read",
    "done": "acc_done",
    "free": "load_free",
    "commits": "mma_barriers",
    "commit": "mma_done",
    "mine": "team_done",
    "phase": "team_phase",
    "own_team": "team",
    "ready": "team_ready",
    "team_columns": "team_columns",
    "team_pointer": "team_ptr",
    "tensors": "tmem_tensors",
    "tensor": "tensor",
    "each": "team_index",
}


class Plain(dict[str, Any]):
    """Values for sections of `mappings/emit/sm100_dsl.py.txt`, each made when it is first asked for."""

    def __init__(self, kernel: Parts, imports: Imports, **values: Any) -> None:
        super().__init__(**values)
        self["fences"] = OPTIONAL["fence"] not in kernel.facts.absent
        self._kernel, self._imports = kernel, imports

    def __missing__(self, name: str) -> Any:
        new = self._imports.of(IN_SECTIONS[name]) if name in IN_SECTIONS else self._kernel.fresh(_OWN[name])
        self[name] = new
        return new

    def text(self, section: str, **more: Any) -> str:
        """A section's lines."""
        self.update(more)
        return "".join(sections(_FILE)[section].written(self)).strip("\n")


class Words(Plain):
    """Those of a kernel of which one warp executes the main loop."""

    def __init__(self, kernel: Kernel, imports: Imports) -> None:
        in_turns = kernel.repeats or bool(kernel.region.turns)
        super().__init__(kernel, imports, mma=kernel.mma, repeats=in_turns, fills_here=in_turns)
        self.update(stages=1, counters=2, all_stages="", one_stage="", this_stage="")
        self.update(pair=False, leads="", mmas_beside=kernel.accumulator.parts if kernel.accumulator.views else 0)
        names = kernel.accumulator.names
        self["acc"] = names[0] if len(names) == 1 else kernel.fresh("accumulators")
        self["more"] = [
            {"other": name, "other_from": kernel.fresh(f"{_OWN['from_tmem']}_{name}"),
             "other_registers": kernel.fresh(f"{_OWN['registers']}_{name}")}
            for name in names[1:]
        ]  # fmt: skip

    def with_stages(self, stages: int, acc: str) -> None:
        """With so many accumulators, called `acc`, which take turns: who fills them counts for itself."""
        self.update(stages=stages, counters=2 * stages, acc=acc, fills_here=False)
        self.update(all_stages=", None", one_stage=", 0", this_stage=f", {self['reads']}.index")

    def text_if_any(self, section: str, **more: Any) -> str:
        """The same, where the main loop may have no MMA only if it has one."""
        text = self.text(section, **more)
        return f"if {self['any']}:\n{deeper(text)}" if self["known"] else text

    def loaded(self, section: str, **more: Any) -> str:
        """A load of the accumulator, or zeros where there is no MMA."""
        text = self.text_if_any(section, **more)
        return f"{text}\nelse:\n    {self['registers']}.fill(0)" if self["known"] else text
