# SPDX-License-Identifier: Apache-2.0
"""Fifth-generation tensor core: PTX ISA 9.0, section 9.7.16; limits as ptxas 13.0 enforces them."""

from __future__ import annotations

from porter.ptx.forms.grammar import COUNTS, Completion, Form, Modifiers, form
from porter.ptx.tmem import ALLOCATIONS
from porter.ptx.tmem_access import Shape, is_legal_count

_C = Completion
_TCGEN05 = "sm_100a@8.6 sm_101a@8.6 sm_100f@8.8 sm_101f@8.8 sm_110f@9.0"
_ONE_CHIP = "sm_100a@8.6 sm_101a@8.6 sm_103a@8.8 sm_110a@9.0"
_I8 = "sm_100a@8.6 sm_101a@8.6 sm_110a@9.0"
_LD_RED = "sm_101a@8.8 sm_103f@8.8 sm_110f@9.0"
_LATER = "sm_100a@8.7 sm_101a@8.7 sm_100f@8.8 sm_101f@8.8 sm_110f@9.0"
# Family targets name scale vectors by block size only.
_VECTOR = f"size=scale_vec::1X|scale_vec::2X|scale_vec::4X: {_ONE_CHIP}"

_COLUMNS = f"u32({'|'.join(map(str, ALLOCATIONS))})"
_NUM = "<num:x1|x2|x4|x8|x16|x32|x64|x128>"
_SHAPES = "16x64b|16x128b|16x256b|32x32b"


def _registers(modifiers: Modifiers) -> int:
    return int(modifiers["num"][1:]) * Shape(modifiers.get("shape", "32x32b")).registers_per_repeat


def _legal(modifiers: Modifiers) -> bool:
    shape = Shape(modifiers.get("shape", "32x32b"))
    return is_legal_count(shape, int(modifiers["num"][1:]))


COUNTS["tmem"] = _registers
COUNTS["output_lanes"] = lambda m: 4 if m["cta_group"] == "cta_group::1" else 8


def _management() -> list[Form]:
    return [
        form(
            "tcgen05.alloc.<cta_group>.sync.aligned.<space:shared::cta>?.b32",
            f"[=dst@space], columns:{_COLUMNS}", "9.7.16.7.1", _TCGEN05, issue="warp",
        ),
        form(
            "tcgen05.dealloc.<cta_group>.sync.aligned.b32",
            f"taddr:b32, columns:{_COLUMNS}", "9.7.16.7.1", _TCGEN05, issue="warp",
        ),
        form(
            "tcgen05.relinquish_alloc_permit.<cta_group>.sync.aligned",
            "", "9.7.16.7.1", _TCGEN05, issue="warp",
        ),
    ]  # fmt: skip


def _transfers() -> list[Form]:
    rows = []
    for store in (False, True):
        pack = "unpack::16b?" if store else "pack::16b?"
        verb, section = ("st", "9.7.16.8.4") if store else ("ld", "9.7.16.8.3")
        for shapes, split in ((_SHAPES, ""), ("16x32bx2", ", split:imm")):
            memory, data = ("[=taddr@tmem]", ", r:b32*tmem") if store else ("[taddr@tmem]", "=r:b32*tmem, ")
            operands = f"{memory}{split}{data}" if store else f"{data}{memory}{split}"
            rows.append(
                form(
                    f"tcgen05.{verb}.sync.aligned.<shape:{shapes}>.{_NUM}.{pack}.b32",
                    operands, section, _TCGEN05,
                    completion=_C.TCGEN05_ST if store else _C.TCGEN05_LD, issue="warp", rule=_legal,
                )
            )  # fmt: skip
    for shape, split in (("32x32b", ""), ("16x32bx2", ", split:imm")):
        for tail in ("abs?.NaN?.<type:f32>", "<type:u32|s32>"):
            rows.append(
                form(
                    f"tcgen05.ld.red.sync.aligned.<shape:{shape}>.<num:x2|x4|x8|x16|x32|x64|x128>.<op:min|max>.{tail}",
                    f"=r:type*tmem, =value:type, [taddr@tmem]{split}", "9.7.16.8.3", _LD_RED,
                    completion=_C.TCGEN05_LD, issue="warp", rule=_legal,
                )
            )  # fmt: skip
    rows.append(form("tcgen05.wait::ld.sync.aligned", "", "9.7.16.8.5", _TCGEN05, awaits=_C.TCGEN05_LD, issue="warp"))
    rows.append(form("tcgen05.wait::st.sync.aligned", "", "9.7.16.8.5", _TCGEN05, awaits=_C.TCGEN05_ST, issue="warp"))
    return rows


def _copies() -> list[Form]:
    formats = "<format:b8x16>?.<source:b6x16_p32|b4x16_p64>?"
    # Destination lanes: all 128, one of each 32, or 64 or 32 lanes repeated in the other warps' groups.
    shapes = (
        "<shape:128x256b|4x256b|128x128b>",
        "<shape:64x128b>.<multicast:warpx2::02_13|warpx2::01_23>",
        "<shape:32x128b>.<multicast:warpx4>",
    )
    rows = [
        form(
            f"tcgen05.cp.<cta_group>.{shape}.{formats}",
            "[=taddr@tmem], source_desc:b64", "9.7.16.9.2", _TCGEN05,
            completion=_C.TCGEN05_COMMIT, rule=lambda m: ("format" in m) == ("source" in m),
        )
        for shape in shapes
    ]  # fmt: skip
    rows.append(
        form(
            "tcgen05.shift.<cta_group>.down", "[+taddr@tmem]", "9.7.16.9.3", _ONE_CHIP,
            completion=_C.TCGEN05_COMMIT,
        )
    )  # fmt: skip
    return rows


_COLLECTOR_A = "<collector:collector::a::fill|collector::a::use|collector::a::lastuse|collector::a::discard>?"
_COLLECTOR_B = "<collector:{}>?".format(
    "|".join(f"collector::b{i}::{op}" for i in range(4) for op in ("fill", "use", "lastuse", "discard"))
)


def _keeps_a(modifiers: Modifiers) -> bool:
    """A shifted A is not kept in the collector."""
    collector = modifiers.get("collector", "")
    return "ashift" not in modifiers or not collector.endswith(("fill", "::use"))


def _products() -> list[Form]:
    rows: list[Form] = []

    def add(pattern: str, operands: str, section: str, needs: str, *also: str) -> None:
        rows.append(form(pattern, operands, section, needs, *also, completion=_C.TCGEN05_COMMIT, rule=_keeps_a))

    for sparse in (False, True):
        sp, meta = ("sp.", "[meta@tmem], ") if sparse else ("", "")
        section = "9.7.16.10.9.2" if sparse else "9.7.16.10.9.1"
        ws_section = "9.7.16.10.9.4" if sparse else "9.7.16.10.9.3"
        for a, shift in (("a:b64", ""), ("[a@tmem]", "ashift?.")):
            plain = f"[+d@tmem], {a}, b:b64, {meta}idesc:b32"
            lanes = "disable_output_lane:b32*output_lanes?"
            tail = f"{shift}{_COLLECTOR_A}"
            for kinds, scale, needs in (
                ("kind::f16|kind::tf32", ", scale_input_d:imm(0..15)?", _TCGEN05),
                ("kind::f8f6f4", "", _TCGEN05),
                ("kind::i8", "", _I8),
            ):
                add(
                    f"tcgen05.mma.{sp}<cta_group>.<kind:{kinds}>.{tail}",
                    f"{plain}, {lanes}, enable_input_d:pred{scale}",
                    section,
                    needs,
                    "@scale_input_d: sm_100a@8.6 sm_101a@8.6 sm_100f@8.8",
                )
                add(
                    f"tcgen05.mma.ws.{sp}<cta_group:cta_group::1>.<kind:{kinds}>.{_COLLECTOR_B}",
                    f"{plain}, enable_input_d:pred, zero_column_mask:b64?",
                    ws_section,
                    needs,
                )
            for kind, size in (
                ("kind::mxf8f6f4", "<size:scale_vec::1X|block32>?"),
                ("kind::mxf4", "<size:scale_vec::2X|block32>?"),
                ("kind::mxf4nvf4", "<size:scale_vec::2X|scale_vec::4X|block16|block32>"),
            ):
                add(
                    f"tcgen05.mma.{sp}<cta_group>.<kind:{kind}>.block_scale.{size}.{_COLLECTOR_A}",
                    f"{plain}, [scale_a@tmem], [scale_b@tmem], enable_input_d:pred",
                    section,
                    _ONE_CHIP if sparse and kind != "kind::mxf8f6f4" else _TCGEN05,
                    _VECTOR,
                    f"kind=kind::mxf4nvf4: {_LATER}",
                    "!size: sm_100a@8.8 sm_101a@8.8 sm_100f@8.8 sm_101f@8.8 sm_110f@9.0",
                    "size=block16|block32: sm_100a@8.8 sm_101a@8.8 sm_100f@8.8 sm_101f@8.8 sm_110f@9.0",
                )
    return rows


def _synchronization() -> list[Form]:
    return [
        form("tcgen05.fence::before_thread_sync", "", "9.7.16.11", _TCGEN05),
        form("tcgen05.fence::after_thread_sync", "", "9.7.16.11", _TCGEN05),
        form(
            "tcgen05.commit.<cta_group>.mbarrier::arrive::one.<space:shared::cluster>?.multicast::cluster?.b64",
            "[+mbar@space], mask:b16?multicast_cluster", "9.7.16.12.1", _TCGEN05,
            completion=_C.MBARRIER_ARRIVE, commits=_C.TCGEN05_COMMIT,
        ),
    ]  # fmt: skip


FORMS: tuple[Form, ...] = (
    *_management(),
    *_transfers(),
    *_copies(),
    *_products(),
    *_synchronization(),
)
