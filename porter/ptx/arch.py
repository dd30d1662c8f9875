# SPDX-License-Identifier: Apache-2.0
"""Targets: the macros nvcc defines for them, and the limits of their chips.

Which instructions a target has is the instruction table's business.

Sources: PTX ISA 9.0 §11.1.2 (targets); macros as nvcc 13.0 predefines them; limits from CUTLASS
(shared-memory capacity of sm90 and sm100), DeepGEMM (csrc/jit_kernels/heuristics/sm100.hpp) and the CUDA
programming guide, "Compute Capabilities"; blocks and barriers of an SM from cuda_occupancy.h of CUDA 13.0. Numbers of
SMs are those of H100, B200 and B300, Jetson Thor and GeForce RTX 5090 (NVIDIA's data sheets; CUTLASS, ThunderKittens).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from porter.ptx.shared_window import SYSTEM_SHARED

WARP = 32
"""Threads of a warp (PTX ISA 9.0 §10, WARP_SZ)."""
MUFU = frozenset(("ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh"))
"""Instructions that the multi-function unit evaluates."""
BANKS = 32
BANK_BYTES = 4
"""Banks of shared memory, which take turns at every 4 bytes (CUDA C++ Programming Guide, Shared Memory)."""


@dataclass(frozen=True)
class Target:
    """A `-arch` target. `suffix` is "a" (this chip only), "f" (its family) or "" (any later chip).

    `macros` are those that device code can tell targets apart by.
    """

    name: str
    sm: int
    suffix: str
    macros: dict[str, int]

    @property
    def compute(self) -> str:
        """The virtual architecture, `compute_90a`."""
        return f"compute_{self.sm}{self.suffix}"


@dataclass(frozen=True)
class Limits:
    """Per-SM and per-block limits; sizes in bytes. `multiprocessors` is how many SMs a chip has.

    `shared_per_block` needs the opt-in attribute above `shared_per_block_default`; `shared_reserved` is what
    the system takes of each block's shared memory.
    """

    shared_per_block: int
    shared_per_block_default: int = 48 * 1024
    shared_per_sm: int = 228 * 1024
    shared_reserved: int = SYSTEM_SHARED
    registers_per_sm: int = 65536
    registers_per_thread: int = 255
    threads_per_block: int = 1024
    threads_in_z: int = 64
    warps_per_sm: int = 64
    blocks_per_sm: int = 32
    named_barriers: int = 16
    barriers_per_sm: int = 64
    cluster_max: int = 16
    multiprocessors: int = 132


def feature_macro(sm: int) -> str:
    """What nvcc defines for `sm_..a` of a chip alone (CUDA C++ Programming Guide, Feature-specific macros)."""
    return f"__CUDA_ARCH_FEAT_SM{sm}_ALL"


def _macros(sm: int, suffix: str) -> dict[str, int]:
    arch = sm * 10
    macros = {"__CUDA_ARCH__": arch}
    if suffix == "a":
        macros[feature_macro(sm)] = 1
        macros["__CUDA_ARCH_SPECIFIC__"] = arch
    if suffix:
        macros["__CUDA_ARCH_FAMILY_SPECIFIC__"] = arch
    return macros


def _targets() -> dict[str, Target]:
    suffixes = {90: ("", "a"), **dict.fromkeys((100, 103, 110, 120), ("", "a", "f"))}
    return {
        f"sm_{sm}{suffix}": Target(f"sm_{sm}{suffix}", sm, suffix, _macros(sm, suffix))
        for sm, kinds in suffixes.items()
        for suffix in kinds
    }


TARGETS = _targets()

SHARED_LIMIT = 227 * 1024
"""Bytes of shared memory that a block may opt in to, on sm_90a and sm_100a alike."""
LOCAL_LIMIT = 512 * 1024
"""Bytes of local memory of a thread (CUDA C++ Programming Guide, technical specifications per compute capability)."""
_DATACENTER_BLACKWELL = Limits(shared_per_block=SHARED_LIMIT, multiprocessors=148)
LIMITS: dict[int, Limits] = {
    90: Limits(shared_per_block=SHARED_LIMIT),
    100: _DATACENTER_BLACKWELL,
    103: _DATACENTER_BLACKWELL,
    110: Limits(
        shared_per_block=SHARED_LIMIT, warps_per_sm=48, blocks_per_sm=24, barriers_per_sm=24, multiprocessors=20
    ),
    120: Limits(
        shared_per_block=99 * 1024,
        shared_per_sm=100 * 1024,
        warps_per_sm=48,
        blocks_per_sm=24,
        barriers_per_sm=24,
        multiprocessors=170,
    ),
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


CHIPS = frozenset({50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 101, 103, 110, 120, 121})
"""Numbers of chips that code is written for (CUDA C++ Programming Guide, Compute Capabilities; PTX ISA 9.0 §11.1.2)."""

HOPPER = 90
AROUND_HOPPER = (89, HOPPER, 100, 120)
"""Chips before Hopper, Hopper, and those behind it: what tells none of them apart is about something else."""


@dataclass(frozen=True)
class PortTarget:
    """An architecture-specific target with tcgen05 and Tensor Memory. `sm` is its number, such as 103."""

    sm: int

    @property
    def name(self) -> str:
        return f"sm_{self.sm}a"

    @property
    def chip(self) -> str:
        """As lists of CMake have it: `103a`."""
        return f"{self.sm}a"

    @property
    def capability(self) -> tuple[int, int]:
        return divmod(self.sm, 10)

    @property
    def version(self) -> str:
        """The compute capability as it is written: `10.3`."""
        return "{}.{}".format(*self.capability)

    @property
    def macro(self) -> str:
        """What nvcc defines for this target alone."""
        return feature_macro(self.sm)

    @property
    def following(self) -> int:
        """The first major number behind this chip's."""
        return self.capability[0] + 1


SM100A = PortTarget(100)
PORT_TARGETS = (SM100A, PortTarget(103), PortTarget(110))
"""Chips that ports can be for, with tcgen05 and Tensor Memory: B200, B300 and Thor. They differ in their names, and in
little else: sm_103a has no kind::i8 (PTX ISA 9.0 §9.7.16; §11.1.2: sm_101a is sm_110a; CUDA C++ Programming Guide,
Compute Capabilities)."""
LARGEST_GRID = (1 << 16) - 1
"""Blocks of a grid along y and z (CUDA C++ Programming Guide, technical specifications)."""
