# SPDX-License-Identifier: Apache-2.0
"""Asynchronous copies and tensor maps: PTX ISA 9.0, sections 9.7.9.25 to 9.7.9.28 and 9.7.13.16."""

from __future__ import annotations

from porter.ptx.forms.grammar import COUNTS, Completion, Form, Modifiers, form

_C = Completion
_SM90 = "sm_90@8.0"
# Chip- or family-specific on sm_100 and later (facts: target notes of cp.async.bulk.tensor).
_BLACKWELL = "sm_100a@8.6 sm_101a@8.6 sm_100f@8.8 sm_101f@8.8 sm_110f@9.0"
_BLACKWELL_ALL = "sm_100@8.6"
_BLACKWELL_SPECIFIC = "sm_100a@8.6 sm_101a@8.6 sm_120a@8.7 sm_100f@8.8 sm_101f@8.8 sm_120f@8.8 sm_110f@9.0"
_SPECIFIC = f"sm_90a@8.3 {_BLACKWELL_SPECIFIC}"
_POLICY = "policy:b64?L2_cache_hint"
_REDUCTIONS = "<op:add|min|max|inc|dec|and|or|xor>"


def dimensions(modifiers: Modifiers) -> int:
    """Coordinates of a tensor: one per dimension; a gather or scatter has a column and four rows."""
    if modifiers.get("mode") in ("tile::gather4", "tile::scatter4"):
        return 5
    return int(modifiers["dim"][0])


def _offsets(modifiers: Modifiers) -> int:
    """Spatial offsets of im2col: one per dimension but channels and batch; `w` modes have halo and offset."""
    return 2 if modifiers["mode"].startswith("im2col::w") else dimensions(modifiers) - 2


COUNTS["coords"] = dimensions
COUNTS["im2col"] = _offsets


def _mode_fits(modifiers: Modifiers) -> bool:
    mode = modifiers.get("mode", "tile")
    if mode in ("tile::gather4", "tile::scatter4"):
        return modifiers["dim"] == "2d"
    return not mode.startswith("im2col") or int(modifiers["dim"][0]) >= 3


_MAP = "[map@tensormap, coords:s32*coords]"
_IM2COL = "info:u16*im2col?mode=im2col|im2col::w|im2col::w::128"
_LOAD = f"[=dst@dst], {_MAP}, [+mbar@shared::cluster], {_IM2COL}, mask:u16?multicast_cluster, {_POLICY}"
_LOAD_MODES = "<mode:tile|tile::gather4|im2col|im2col::w|im2col::w::128>?"
_W_MODES = f"mode=im2col::w|im2col::w::128: {_BLACKWELL}"
_CTA_GROUP = f"cta_group: {_BLACKWELL}"

FORMS: tuple[Form, ...] = (
    # cp.async: 4, 8 or 16 bytes per thread.
    form(
        "cp.async.ca.<dst:shared|shared::cta>.global.L2::cache_hint?.<prefetch>?",
        f"[=dst@dst], [src@global], size:imm(4|8|16), src_size:u32?, {_POLICY}",
        "9.7.9.25.3.1",
        "sm_80@7.0",
        completion=_C.CP_ASYNC_GROUP,
    ),
    form(
        "cp.async.cg.<dst:shared|shared::cta>.global.L2::cache_hint?.<prefetch>?",
        f"[=dst@dst], [src@global], size:imm(16), src_size:u32?, {_POLICY}",
        "9.7.9.25.3.1",
        "sm_80@7.0",
        completion=_C.CP_ASYNC_GROUP,
    ),
    form("cp.async.commit_group", "", "9.7.9.25.3.2", "sm_80@7.0", commits=_C.CP_ASYNC_GROUP),
    form("cp.async.wait_group", "n:imm", "9.7.9.25.3.3", "sm_80@7.0", awaits=_C.CP_ASYNC_GROUP),
    form("cp.async.wait_all", "", "9.7.9.25.3.3", "sm_80@7.0", awaits=_C.CP_ASYNC_GROUP),
    form(
        "cp.async.mbarrier.arrive.noinc?.<space:shared|shared::cta>?.b64",
        "[+mbar@space]",
        "9.7.13.15.15",
        "sm_80@7.0",
        completion=_C.MBARRIER_ARRIVE,
        commits=_C.CP_ASYNC_GROUP,
    ),
    # Bulk copies: a run of bytes.
    form(
        "cp.async.bulk.<dst:shared::cta>.global.mbarrier::complete_tx::bytes.L2::cache_hint?",
        f"[=dst@dst], [src@global], size:u32, [+mbar@shared::cta], {_POLICY}",
        "9.7.9.25.4.1",
        "sm_90@8.6",
        completion=_C.MBARRIER_TX,
    ),
    form(
        "cp.async.bulk.<dst:shared::cluster>.global.mbarrier::complete_tx::bytes.multicast::cluster?.L2::cache_hint?",
        f"[=dst@dst], [src@global], size:u32, [+mbar@shared::cluster], mask:u16?multicast_cluster, {_POLICY}",
        "9.7.9.25.4.1",
        _SM90,
        completion=_C.MBARRIER_TX,
    ),
    form(
        "cp.async.bulk.<dst:shared::cluster>.shared::cta.mbarrier::complete_tx::bytes",
        "[=dst@dst], [src@shared::cta], size:u32, [+mbar@shared::cluster]",
        "9.7.9.25.4.1",
        _SM90,
        completion=_C.MBARRIER_TX,
    ),
    form(
        "cp.async.bulk.<dst:global>.shared::cta.bulk_group.L2::cache_hint?.cp_mask?",
        f"[=dst@dst], [src@shared::cta], size:u32, {_POLICY}, mask:u16?cp_mask",
        "9.7.9.25.4.1",
        _SM90,
        f"cp_mask: {_BLACKWELL_ALL}",
        completion=_C.BULK_GROUP,
    ),
    form(
        "cp.reduce.async.bulk.<dst:shared::cluster>.shared::cta.mbarrier::complete_tx::bytes.<op:and|or|xor|add|inc"
        "|dec|min|max>.<type:b32|u32|s32|u64>",
        "[+dst@dst], [src@shared::cta], size:u32, [+mbar@shared::cluster]",
        "9.7.9.25.4.2",
        _SM90,
        completion=_C.MBARRIER_TX,
        rule=lambda m: _reduces(m, cluster=True),
    ),
    form(
        "cp.reduce.async.bulk.<dst:global>.shared::cta.bulk_group.L2::cache_hint?.<op:and|or|xor|add|inc|dec|min|max>"
        ".<type:f16|bf16|b32|u32|s32|b64|u64|s64|f32|f64>",
        f"[+dst@dst], [src@shared::cta], size:u32, {_POLICY}",
        "9.7.9.25.4.2",
        _SM90,
        completion=_C.BULK_GROUP,
        rule=lambda m: _reduces(m, cluster=False),
    ),
    form(
        "cp.reduce.async.bulk.<dst:global>.shared::cta.bulk_group.L2::cache_hint?.<op:add>.noftz.<type:f16|bf16>",
        f"[+dst@dst], [src@shared::cta], size:u32, {_POLICY}",
        "9.7.9.25.4.2",
        _SM90,
        completion=_C.BULK_GROUP,
    ),
    form(
        "cp.async.bulk.prefetch.L2.global.L2::cache_hint?",
        f"[&src@global], size:u32, {_POLICY}",
        "9.7.9.25.4.3",
        _SM90,
        completion=_C.UNTRACKED,
    ),
    form(
        "multimem.cp.async.bulk.<dst:global>.shared::cta.bulk_group.cp_mask?",
        "[=dst@dst], [src@shared::cta], size:u32, mask:u16?cp_mask",
        "9.7.9.26",
        "sm_90@9.1",
        "cp_mask: sm_100@9.1",
        completion=_C.BULK_GROUP,
    ),
    form(
        "multimem.cp.reduce.async.bulk.<dst:global>.shared::cta.bulk_group.<op:and|or|xor|add|inc|dec|min|max>"
        ".<type:f16|bf16|b32|u32|s32|b64|u64|s64|f32|f64>",
        "[+dst@dst], [src@shared::cta], size:u32",
        "9.7.9.27",
        "sm_90@9.1",
        completion=_C.BULK_GROUP,
        rule=lambda m: _reduces(m, cluster=False),
    ),
    form(
        "multimem.cp.reduce.async.bulk.<dst:global>.shared::cta.bulk_group.<op:add>.noftz.<type:f16|bf16>",
        "[+dst@dst], [src@shared::cta], size:u32",
        "9.7.9.27",
        "sm_90@9.1",
        completion=_C.BULK_GROUP,
    ),
    # Tensor copies (TMA).
    form(
        f"cp.async.bulk.tensor.<dim>.<dst:shared::cta>.global.{_LOAD_MODES}.mbarrier::complete_tx::bytes.<cta_group>?"
        ".L2::cache_hint?",
        f"[=dst@dst], {_MAP}, [+mbar@shared::cta], {_IM2COL}, {_POLICY}",
        "9.7.9.25.5.2",
        "sm_90@8.6",
        f"mode=im2col::w: {_BLACKWELL_ALL}",
        f"mode=im2col::w::128: {_BLACKWELL}",
        _CTA_GROUP,
        f"mode=tile::gather4: {_BLACKWELL_ALL}",
        completion=_C.MBARRIER_TX,
        rule=_mode_fits,
    ),
    form(
        f"cp.async.bulk.tensor.<dim>.<dst:shared::cluster>.global.{_LOAD_MODES}.mbarrier::complete_tx::bytes"
        ".multicast::cluster?.<cta_group>?.L2::cache_hint?",
        _LOAD,
        "9.7.9.25.5.2",
        _SM90,
        _W_MODES,
        _CTA_GROUP,
        f"mode=tile::gather4: {_BLACKWELL}",
        completion=_C.MBARRIER_TX,
        rule=_mode_fits,
    ),
    form(
        "cp.async.bulk.tensor.<dim>.global.shared::cta.<mode:tile|tile::scatter4|im2col_no_offs>?.bulk_group"
        ".L2::cache_hint?",
        f"[=map@tensormap, coords:s32*coords], [src@shared::cta], {_POLICY}",
        "9.7.9.25.5.2",
        _SM90,
        f"mode=tile::scatter4: {_BLACKWELL}",
        completion=_C.BULK_GROUP,
        rule=_mode_fits,
    ),
    form(
        f"cp.reduce.async.bulk.tensor.<dim>.global.shared::cta.{_REDUCTIONS}.<mode:tile|im2col_no_offs>?.bulk_group"
        ".L2::cache_hint?",
        f"[+map@tensormap, coords:s32*coords], [src@shared::cta], {_POLICY}",
        "9.7.9.25.5.3",
        _SM90,
        completion=_C.BULK_GROUP,
        rule=_mode_fits,
    ),
    form(
        f"cp.async.bulk.prefetch.tensor.<dim>.L2.global.{_LOAD_MODES}.L2::cache_hint?",
        f"[&map@tensormap, coords:s32*coords], {_IM2COL}, {_POLICY}",
        "9.7.9.25.5.4",
        _SM90,
        _W_MODES,
        f"mode=tile::gather4: {_BLACKWELL}",
        completion=_C.UNTRACKED,
        rule=_mode_fits,
    ),
    form("cp.async.bulk.commit_group", "", "9.7.9.25.6.1", _SM90, commits=_C.BULK_GROUP),
    form("cp.async.bulk.wait_group.read?", "n:imm", "9.7.9.25.6.2", _SM90, awaits=_C.BULK_GROUP),
    # Tensor maps in memory.
    form(
        "tensormap.replace.tile.<field:global_address>.<space:global|shared::cta>?.b1024.b64",
        "[+map@space], value:b64",
        "9.7.9.28",
        _SPECIFIC,
    ),
    form(
        "tensormap.replace.tile.<field:rank>.<space:global|shared::cta>?.b1024.b32",
        "[+map@space], value:b32",
        "9.7.9.28",
        _SPECIFIC,
    ),
    form(
        "tensormap.replace.tile.<field:box_dim|global_dim|element_stride>.<space:global|shared::cta>?.b1024.b32",
        "[+map@space], ordinal:imm(0..4), value:b32",
        "9.7.9.28",
        _SPECIFIC,
    ),
    form(
        "tensormap.replace.tile.<field:global_stride>.<space:global|shared::cta>?.b1024.b64",
        "[+map@space], ordinal:imm(0..4), value:b64",
        "9.7.9.28",
        _SPECIFIC,
    ),
    form(
        "tensormap.replace.tile.<field:elemtype|interleave_layout|swizzle_mode|fill_mode>.<space:global|shared::cta>?"
        ".b1024.b32",
        "[+map@space], value:imm",
        "9.7.9.28",
        _SPECIFIC,
    ),
    form(
        "tensormap.replace.tile.<field:swizzle_atomicity>.<space:global|shared::cta>?.b1024.b32",
        "[+map@space], value:imm",
        "9.7.9.28",
        _BLACKWELL_SPECIFIC,
    ),
    form(
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.<scope>.sync.aligned",
        "[=dst@global], [src@shared::cta], size:imm(128)",
        "9.7.13.16",
        "sm_90@8.3",
        issue="warp",
    ),
)

# Operation and type of `cp.reduce.async.bulk` (PTX ISA 9.0, its table of destinations).
_CLUSTER_TYPES = {
    "and": ("b32",), "or": ("b32",), "xor": ("b32",), "inc": ("u32",), "dec": ("u32",),
    "add": ("u32", "s32", "u64"), "min": ("u32", "s32"), "max": ("u32", "s32"),
}  # fmt: skip
_ORDERED = ("u32", "s32", "u64", "s64", "f16", "bf16")
_GLOBAL_TYPES = {
    "and": ("b32", "b64"), "or": ("b32", "b64"), "xor": ("b32", "b64"), "inc": ("u32",), "dec": ("u32",),
    "add": ("u32", "s32", "u64", "f32", "f64"), "min": _ORDERED, "max": _ORDERED,
}  # fmt: skip


def _reduces(modifiers: Modifiers, cluster: bool) -> bool:
    return modifiers["type"] in (_CLUSTER_TYPES if cluster else _GLOBAL_TYPES)[modifiers["op"]]
