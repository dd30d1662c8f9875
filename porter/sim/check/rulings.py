# SPDX-License-Identifier: Apache-2.0
"""Where the text of the PTX ISA and the code in circulation differ: what the checker does about it.

`docs/rulings.md` has a section for each, by its ID: the question, what the text says, what each level says. A hazard
that is not an error at practice level names the ruling that tolerates it.
"""

from __future__ import annotations

from enum import StrEnum


class Ruling(StrEnum):
    ACCUMULATOR_COPIES = "accumulator-copies"
    ALIGNED_BARRIER = "aligned-barrier"
    ALLOC_PERMIT = "alloc-permit"
    ALLOCATED_WORD = "allocated-word"
    ALLOCATION_ORDER = "allocation-order"
    BENIGN_RACE = "benign-race"
    BLOCK_END = "block-end"
    BOX_BEYOND = "box-beyond"
    CLUSTER_EXIT = "cluster-exit"
    COMMIT_ARRIVAL = "commit-arrival"
    EMPTY_COMMIT = "empty-commit"
    FENCE_BEFORE_BARRIER = "fence-before-barrier"
    IMPLICIT_TRIGGER = "implicit-trigger"
    INIT_FENCE = "init-fence"
    LANE_FIELD = "lane-field"
    LAPPED_WAIT = "lapped-wait"
    LOAD_DEPENDENCE = "load-dependence"
    LOCKSTEP = "lockstep"
    MAP_IN_FLIGHT = "map-in-flight"
    MBARRIER_REUSE = "mbarrier-reuse"
    MBARRIER_SCOPE = "mbarrier-scope"
    NEVER_WRITTEN = "never-written"
    ONE_LANE = "one-lane"
    OWN_BLOCK = "own-block"
    PADDING_ROWS = "padding-rows"
    PAIR_ALLOCATION = "pair-allocation"
    PAIR_FREE = "pair-free"
    PEER_START = "peer-start"
    PROXY_FENCE = "proxy-fence"
    READ_ONLY_LOAD = "read-only-load"
    REGISTER_MOVES = "register-moves"
    RELAXED_ORDER = "relaxed-order"
    SAME_BYTES = "same-bytes"
    SHARED_FLAG = "shared-flag"
    SHARED_OFFSET = "shared-offset"
    STORE_ASYNC = "store-async"
    STORE_SOURCES = "store-sources"
    TENSOR_PIPELINE = "tensor-pipeline"
    TENSORMAP_RELEASE = "tensormap-release"
    THREAD_SYNC_FENCE = "thread-sync-fence"
    WARPGROUP_WAIT = "warpgroup-wait"
    WGMMA_REGISTERS = "wgmma-registers"
