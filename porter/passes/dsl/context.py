# SPDX-License-Identifier: Apache-2.0
"""What the passes over one CuTe DSL kernel share: edits, new names, imports they need."""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from porter.lang.cute_dsl import DslFile, walk
from porter.model.dsl.gemm import Gemm
from porter.model.dsl.promotion import Promotion
from porter.passes.dsl.edits import FileEdits

TILED_MMA_RULE = "PTR500"
WARPS_RULE = "PTR501"
STORAGE_RULE = "PTR502"
PIPELINE_RULE = "PTR503"
RESIDENCY_RULE = "PTR504"
MAINLOOP_RULE = "PTR505"
EPILOGUE_RULE = "PTR506"
LIFETIME_RULE = "PTR507"
UNUSED_RULE = "PTR508"
IMPORT_RULE = "PTR509"
ISSUER_RULE = "PTR519"
PROMOTION_RULE = "PTR540"

_IMPORTED_AS = {
    "cutlass.utils.blackwell_helpers": ("sm100_utils", "import cutlass.utils.blackwell_helpers as sm100_utils"),
    "cutlass.cute.nvgpu.tcgen05": ("tcgen05", "from cutlass.cute.nvgpu import tcgen05"),
    "cutlass._mlir.dialects.nvvm": ("nvvm", "from cutlass._mlir.dialects import nvvm"),
    "cutlass.pipeline": ("pipeline", "import cutlass.pipeline as pipeline"),
    "cutlass.utils": ("utils", "import cutlass.utils as utils"),
    "cutlass.cute": ("cute", "import cutlass.cute as cute"),
    "cutlass": ("cutlass", "import cutlass"),
}
"""How NVIDIA's examples import these modules."""


@dataclass(eq=False)
class DslContext:
    """`requested` are import lines that new code needs."""

    file: DslFile
    edits: FileEdits
    requested: dict[str, str] = field(default_factory=dict)
    _taken: set[str] | None = None

    def name(self, qualified: str) -> str:
        """How new code writes a qualified name of the cutlass package; asks for an import where none fits."""
        for module, (alias, line) in _IMPORTED_AS.items():
            if qualified == module or qualified.startswith(module + "."):
                local = next((k for k, v in self.file.imports.items() if v == module), None)
                if local is None:
                    local = self.requested.setdefault(module, line) and alias
                return local + qualified[len(module) :]
        raise ValueError(f"{qualified} is no name of the cutlass package")

    def fresh(self, wanted: str) -> str:
        """A name that nothing in the file has, beginning with `wanted`."""
        if self._taken is None:
            self._taken = {n.value for n in walk(self.file.module) if isinstance(n, cst.Name)}
        number, name = 1, wanted
        while name in self._taken:
            number += 1
            name = f"{wanted}{number}"
        self._taken.add(name)
        return name


@dataclass(eq=False)
class KernelContext:
    """One kernel's GEMM and the names that its port introduces."""

    context: DslContext
    gemm: Gemm
    promotion: Promotion | None = None
    """Set where the threads add up partial sums themselves."""

    def __post_init__(self) -> None:
        fresh = self.context.fresh
        self.acc_pipeline = fresh("acc_pipeline")
        self.acc_producer = fresh("acc_producer_state")
        self.acc_consumer = fresh("acc_consumer_state")
        self.tmem = fresh("tmem")
        self.tmem_ptr = fresh("tmem_ptr")
        self.tmem_barrier = fresh("tmem_barrier")
        self.fake = fresh("tCtAcc_fake")
        self.acc_field = fresh("acc_full_mbar_ptr")
        self.tmem_field = fresh("tmem_holding_buf")
        self.t2r = fresh("tiled_copy_t2r")
        self.t2r_source, self.t2r_target = fresh("tTR_tAcc"), fresh("tTR_rAcc")
        self.thr_t2r = fresh("thr_copy_t2r")

    @property
    def file(self) -> DslFile:
        return self.context.file

    @property
    def edits(self) -> FileEdits:
        return self.context.edits

    def name(self, qualified: str) -> str:
        return self.context.name(qualified)
