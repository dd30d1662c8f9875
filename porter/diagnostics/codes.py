# SPDX-License-Identifier: Apache-2.0
"""The one list of diagnostics. Texts stand in the module of the part that speaks; add new ones at its end."""

from __future__ import annotations

from enum import Enum

from porter.diagnostics import build, files, front_ends, hazards, porting, rules, simulator, verification


class Code(Enum):
    """All diagnostics, each with its stable ID and texts."""

    # PT0xxx: command line, files, configuration
    FILE_NOT_FOUND = files.FILE_NOT_FOUND
    NOT_TEXT = files.NOT_TEXT
    UNKNOWN_SOURCE_KIND = files.UNKNOWN_SOURCE_KIND
    WOULD_OVERWRITE = files.WOULD_OVERWRITE
    BAD_OPTION = files.BAD_OPTION
    UNKNOWN_ID = files.UNKNOWN_ID
    NOTHING_TO_PORT = files.NOTHING_TO_PORT
    WRITE_FAILED = files.WRITE_FAILED
    NO_SOURCES = files.NO_SOURCES
    NO_KERNEL = files.NO_KERNEL
    IS_DIRECTORY = files.IS_DIRECTORY
    NOTHING_TO_RUN = files.NOTHING_TO_RUN
    NOTHING_TO_BUILD = files.NOTHING_TO_BUILD
    CONFIG_FILE = files.CONFIG_FILE
    CONFIG_DIFFERS = files.CONFIG_DIFFERS
    INTERNAL = files.INTERNAL

    # PT1xxx: front ends
    UNREADABLE_SOURCE = front_ends.UNREADABLE_SOURCE
    UNPARSED_REGION = front_ends.UNPARSED_REGION
    UNREAD_ASM = front_ends.UNREAD_ASM
    UNREAD_PTX = front_ends.UNREAD_PTX
    UNRESOLVED_INCLUDE = front_ends.UNRESOLVED_INCLUDE
    EMBEDDED_SOURCE = front_ends.EMBEDDED_SOURCE
    DSL_UNREADABLE = front_ends.DSL_UNREADABLE
    INCLUDE_NOT_READ = front_ends.INCLUDE_NOT_READ

    # PT2xxx: porting
    WGMMA_FORM = porting.WGMMA_FORM
    ACCUMULATOR_USE = porting.ACCUMULATOR_USE
    LIBRARY_CONSTRUCT = porting.LIBRARY_CONSTRUCT
    TMEM_TOO_LARGE = porting.TMEM_TOO_LARGE
    NOT_ANALYSED = porting.NOT_ANALYSED
    NO_KERNEL_REACHES = porting.NO_KERNEL_REACHES
    BARRIER_IDS = porting.BARRIER_IDS
    WARPGROUPS_UNKNOWN = porting.WARPGROUPS_UNKNOWN
    RULE_IGNORED = porting.RULE_IGNORED
    SPARSE_WGMMA = porting.SPARSE_WGMMA
    BINARY_WGMMA = porting.BINARY_WGMMA
    KERNEL_LEFT = porting.KERNEL_LEFT
    TMEM_SIZE_UNKNOWN = porting.TMEM_SIZE_UNKNOWN
    REGISTERS_KEPT_TRUE = porting.REGISTERS_KEPT_TRUE
    EXTRA_BARRIER = porting.EXTRA_BARRIER
    HALF_RATE = porting.HALF_RATE
    SHARED_MEMORY_GROWS = porting.SHARED_MEMORY_GROWS
    DSL_CONSTRUCT = porting.DSL_CONSTRUCT
    DSL_SUPPORT_TAKEN = porting.DSL_SUPPORT_TAKEN
    DSL_PATCHED = porting.DSL_PATCHED
    DSL_COPIED = porting.DSL_COPIED
    DSL_OBSTACLE = porting.DSL_OBSTACLE

    # PT3xxx: build
    NO_TOOLKIT = build.NO_TOOLKIT
    BAD_TOOLKIT = build.BAD_TOOLKIT
    NO_HOST_COMPILER = build.NO_HOST_COMPILER
    NVCC_ERROR = build.NVCC_ERROR
    PTXAS_ERROR = build.PTXAS_ERROR
    ENTRY_NOT_FOUND = build.ENTRY_NOT_FOUND
    ENTRY_AMBIGUOUS = build.ENTRY_AMBIGUOUS
    LINK_ERROR = build.LINK_ERROR
    PTXAS_WARNING = build.PTXAS_WARNING
    TOOL_MISSING = build.TOOL_MISSING
    COMPILER_TIMEOUT = build.COMPILER_TIMEOUT
    PORT_DOES_NOT_COMPILE = build.PORT_DOES_NOT_COMPILE
    ORIGINAL_DOES_NOT_COMPILE = build.ORIGINAL_DOES_NOT_COMPILE
    PORT_SPILLS = build.PORT_SPILLS
    NOT_COMPILED = build.NOT_COMPILED
    HOST_HEADERS = build.HOST_HEADERS
    NOT_INSTANTIATED = build.NOT_INSTANTIATED
    PORT_WITHOUT_MMA = build.PORT_WITHOUT_MMA
    NO_DSL = build.NO_DSL
    DSL_ERROR = build.DSL_ERROR
    DSL_UNTESTED = build.DSL_UNTESTED
    SHARED_MEMORY_EXCEEDED = build.SHARED_MEMORY_EXCEEDED

    # PT4xxx: simulator
    SIM_UNKNOWN_INSTRUCTION = simulator.SIM_UNKNOWN_INSTRUCTION
    SIM_BUDGET = simulator.SIM_BUDGET
    SIM_DEADLOCK = simulator.SIM_DEADLOCK
    SIM_OUT_OF_BOUNDS = simulator.SIM_OUT_OF_BOUNDS
    SIM_MISALIGNED = simulator.SIM_MISALIGNED
    SIM_TMEM_ALLOCATION = simulator.SIM_TMEM_ALLOCATION
    SIM_TMEM_UNALLOCATED = simulator.SIM_TMEM_UNALLOCATED
    SIM_TMEM_LEAK = simulator.SIM_TMEM_LEAK
    SIM_TMEM_ACCESS = simulator.SIM_TMEM_ACCESS
    SIM_MBARRIER = simulator.SIM_MBARRIER
    SIM_DESCRIPTOR = simulator.SIM_DESCRIPTOR
    SIM_TRAP = simulator.SIM_TRAP
    SIM_LAUNCH = simulator.SIM_LAUNCH
    SIM_COLLECTIVE = simulator.SIM_COLLECTIVE
    SIM_TENSOR_MAP = simulator.SIM_TENSOR_MAP
    SIM_BARRIER = simulator.SIM_BARRIER
    SIM_REGISTERS = simulator.SIM_REGISTERS
    HAZARD_TENSOR_MEMORY = hazards.HAZARD_TENSOR_MEMORY
    HAZARD_TENSOR_LIFETIME = hazards.HAZARD_TENSOR_LIFETIME
    HAZARD_OPERAND = hazards.HAZARD_OPERAND
    HAZARD_SHARED_MEMORY = hazards.HAZARD_SHARED_MEMORY
    HAZARD_MBARRIER = hazards.HAZARD_MBARRIER
    HAZARD_ISSUE = hazards.HAZARD_ISSUE
    HAZARD_REGISTERS = hazards.HAZARD_REGISTERS
    HAZARD_GLOBAL_MEMORY = hazards.HAZARD_GLOBAL_MEMORY
    HAZARD_INHERITED = hazards.HAZARD_INHERITED
    HAZARD_NOT_MENDED = hazards.HAZARD_NOT_MENDED

    # PT5xxx: verification
    CASE_NOT_FOUND = verification.CASE_NOT_FOUND
    CASE_NOT_YAML = verification.CASE_NOT_YAML
    CASE_FIELD = verification.CASE_FIELD
    CASE_EXPRESSION = verification.CASE_EXPRESSION
    CASE_DOES_NOT_FIT = verification.CASE_DOES_NOT_FIT
    CASE_REFERENCE = verification.CASE_REFERENCE
    CASE_PARAMETERS = verification.CASE_PARAMETERS
    UNKNOWN_FAMILY = verification.UNKNOWN_FAMILY
    BACKEND_UNAVAILABLE = verification.BACKEND_UNAVAILABLE
    PTX_UNREADABLE = verification.PTX_UNREADABLE
    ORIGINAL_DIFFERS = verification.ORIGINAL_DIFFERS
    PORT_DIFFERS = verification.PORT_DIFFERS
    PORT_BITS_DIFFER = verification.PORT_BITS_DIFFER
    CONTROL_PASSED = verification.CONTROL_PASSED
    STRAY_WRITE = verification.STRAY_WRITE
    INPUT_CHANGED = verification.INPUT_CHANGED
    RUN_FAILED = verification.RUN_FAILED
    RUN_INCOMPLETE = verification.RUN_INCOMPLETE
    PORT_INCOMPLETE = verification.PORT_INCOMPLETE
    ORIGINAL_RACES = verification.ORIGINAL_RACES
    RUNTIME_NOT_BUILT = verification.RUNTIME_NOT_BUILT
    PROGRAM_NOT_CONNECTED = verification.PROGRAM_NOT_CONNECTED
    PROGRAM_NO_PTX = verification.PROGRAM_NO_PTX
    PROGRAM_UNANSWERED = verification.PROGRAM_UNANSWERED
    PROGRAM_TIMEOUT = verification.PROGRAM_TIMEOUT
    CANNOT_EMULATE = verification.CANNOT_EMULATE
    GPU_ERROR = verification.GPU_ERROR
    GPU_TIMEOUT = verification.GPU_TIMEOUT
    GPU_OUT_OF_MEMORY = verification.GPU_OUT_OF_MEMORY
    GPU_PROCESS_ENDED = verification.GPU_PROCESS_ENDED
    GPU_REFUSED = verification.GPU_REFUSED
    RECORD_UNREADABLE = verification.RECORD_UNREADABLE
    RECORD_MISMATCH = verification.RECORD_MISMATCH
    RECORD_MISSING = verification.RECORD_MISSING
    CAPTURE_NO_PTX = verification.CAPTURE_NO_PTX
    CAPTURE_NO_CUPTI = verification.CAPTURE_NO_CUPTI
    CAPTURE_NOT_BUILT = verification.CAPTURE_NOT_BUILT
    CAPTURE_NOTHING = verification.CAPTURE_NOTHING
    CAPTURE_LEFT_OUT = verification.CAPTURE_LEFT_OUT
    CAPTURE_NO_SOURCE = verification.CAPTURE_NO_SOURCE

    # PT6xxx: rules
    RULE_FILE = rules.RULE_FILE
    RULE_DUPLICATE = rules.RULE_DUPLICATE
    RULE_UNKNOWN = rules.RULE_UNKNOWN

    @property
    def id(self) -> str:
        return self.value.id

    @classmethod
    def by_id(cls, id: str) -> Code | None:
        """The code with this ID (case-insensitive), or None."""
        return next((code for code in cls if code.value.id == id.upper()), None)
