# SPDX-License-Identifier: Apache-2.0
"""Targets: which instruction families they have, the macros nvcc defines for them, and their limits.

Sources: PTX ISA 9.0 §11.1.2 (targets) and the target notes of each instruction, as ptxas 13.0 enforces them;
macros as nvcc 13.0 predefines them; limits from CUTLASS (sm90/sm100 shared-memory capacity), DeepGEMM
(csrc/jit_kernels/heuristics/sm100.hpp) and the CUDA programming guide.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class Feature(Enum):
    """Instruction families that not every target has."""

    WGMMA = "wgmma"
    TCGEN05 = "tcgen05"
    TCGEN05_I8 = "tcgen05.mma.kind::i8"
    TCGEN05_SHIFT = "tcgen05.shift"
    TCGEN05_LD_RED = "tcgen05.ld.red"
    SETMAXNREG = "setmaxnreg"
    TENSORMAP_REPLACE = "tensormap.replace"
    TMA_CTA_GROUP = "cp.async.bulk.tensor.cta_group"


@dataclass(frozen=True)
class Target:
    """A `-arch` target. `suffix` is "a" (this chip only), "f" (its family) or "" (any later chip)."""

    name: str
    sm: int
    suffix: str
    features: frozenset[Feature]
    min_ptx: tuple[int, int]
    macros: dict[str, int]

    @property
    def generation(self) -> int:
        """90, 100, 103, ...: the number in the name."""
        return self.sm

    @property
    def compute(self) -> str:
        """The virtual architecture, `compute_90a`."""
        return f"compute_{self.sm}{self.suffix}"


@dataclass(frozen=True)
class Limits:
    """Per-SM and per-block limits; sizes in bytes."""

    shared_per_block: int
    shared_per_block_default: int = 48 * 1024
    shared_per_sm: int = 228 * 1024
    shared_reserved: int = 1024
    registers_per_sm: int = 65536
    registers_per_thread: int = 255
    threads_per_block: int = 1024
    warps_per_sm: int = 64
    blocks_per_sm: int = 32
    named_barriers: int = 16
    cluster_portable: int = 8
    cluster_max: int = 16
    tmem_lanes: int = 0
    tmem_columns: int = 0


def _macros(sm: int, suffix: str) -> dict[str, int]:
    arch = sm * 10
    macros = {"__CUDA_ARCH__": arch}
    if suffix == "a":
        macros[f"__CUDA_ARCH_FEAT_SM{sm}_ALL"] = 1
        macros["__CUDA_ARCH_SPECIFIC__"] = arch
    if suffix in ("a", "f"):
        macros["__CUDA_ARCH_FAMILY_SPECIFIC__"] = arch
    return macros


_F = Feature
_BLACKWELL_F = {_F.TCGEN05, _F.SETMAXNREG, _F.TENSORMAP_REPLACE, _F.TMA_CTA_GROUP}


def _targets() -> dict[str, Target]:
    rows: list[tuple[int, str, set[Feature], tuple[int, int]]] = [
        (90, "", set(), (7, 8)),
        (90, "a", {_F.WGMMA, _F.SETMAXNREG, _F.TENSORMAP_REPLACE}, (8, 0)),
        (100, "", set(), (8, 6)),
        (100, "a", _BLACKWELL_F | {_F.TCGEN05_I8, _F.TCGEN05_SHIFT}, (8, 6)),
        (100, "f", _BLACKWELL_F, (8, 8)),
        (103, "", set(), (8, 8)),
        (103, "a", _BLACKWELL_F | {_F.TCGEN05_SHIFT, _F.TCGEN05_LD_RED}, (8, 8)),
        (103, "f", _BLACKWELL_F | {_F.TCGEN05_LD_RED}, (8, 8)),
        (110, "a", _BLACKWELL_F | {_F.TCGEN05_I8, _F.TCGEN05_LD_RED}, (9, 0)),
        (120, "", set(), (8, 7)),
        (120, "a", {_F.SETMAXNREG, _F.TENSORMAP_REPLACE}, (8, 7)),
    ]
    return {
        f"sm_{sm}{suffix}": Target(
            f"sm_{sm}{suffix}", sm, suffix, frozenset(features), ptx, _macros(sm, suffix)
        )
        for sm, suffix, features, ptx in rows
    }


TARGETS = _targets()

LIMITS: dict[int, Limits] = {
    90: Limits(shared_per_block=227 * 1024),
    100: Limits(shared_per_block=227 * 1024, tmem_lanes=128, tmem_columns=512),
    103: Limits(shared_per_block=227 * 1024, tmem_lanes=128, tmem_columns=512),
    110: Limits(shared_per_block=227 * 1024, tmem_lanes=128, tmem_columns=512),
    120: Limits(shared_per_block=99 * 1024, shared_per_sm=100 * 1024, warps_per_sm=48),
}

_NAME = re.compile(r"(?:sm|compute)_(\d+)([af]?)")


def target(name: str) -> Target:
    """The target of a name such as `sm_90a` or `compute_100a`. Raises ValueError if it is not known."""
    match = _NAME.fullmatch(name)
    found = TARGETS.get(f"sm_{match[1]}{match[2]}") if match else None
    if found is None:
        raise ValueError(f"unknown target {name}; known are {', '.join(TARGETS)}")
    return found


def limits(name: str) -> Limits:
    """Limits of a target's chip. Raises ValueError if the target is not known."""
    return LIMITS[target(name).sm]
