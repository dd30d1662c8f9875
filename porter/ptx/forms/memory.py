# SPDX-License-Identifier: Apache-2.0
"""Moves, loads, stores, addresses, atomics: PTX ISA 9.0, sections 9.7.9 and 9.7.13.5 to 9.7.13.7."""

from __future__ import annotations

from porter.ptx.forms.grammar import GROUPS, Completion, Form, Modifiers, form
from porter.ptx.special import TYPE_BYTES

_LD_SPACE = "<space:const|global|local|param|param::entry|param::func|shared|shared::cta|shared::cluster>"
_ST_SPACE = "<space:global|local|param|param::func|shared|shared::cta|shared::cluster>"
_SMEM_GLOBAL = "<space:global|shared|shared::cta|shared::cluster>"
_LOAD = "=d:mem_type*vec, [a@space], policy:b64?L2_cache_hint"
_STORE = "[=a@space], b:mem_type*vec, policy:b64?L2_cache_hint"
# 256-bit accesses exist for global memory only (PTX ISA 9.0, `ld`: Target ISA notes).
_SUBSPACE = "space=param::entry|param::func: sm_50@8.3"
_WIDE = (
    "vec=v8: sm_100@8.8",
    "vec=v4&mem_type=b64|u64|s64|f64: sm_100@8.8",
    "mem_type=b128: sm_70@8.3",
    "mem_type=b128&scope=sys: sm_70@8.4",
    _SUBSPACE,
)


def _legal_width(modifiers: Modifiers) -> bool:
    """Vectors have at most 128 bits, 256 in global memory; only those take a level-2 eviction priority."""
    vec = modifiers.get("vec")
    if vec is None:
        return "evict2" not in modifiers
    bits = int(vec[1:]) * TYPE_BYTES[modifiers["mem_type"]] * 8
    if modifiers["mem_type"] == "b128":
        return False
    if "evict2" in modifiers and bits != 256:
        return False
    if vec == "v8":
        return bits == 256 and modifiers.get("space", "global") == "global"
    return bits <= (256 if modifiers.get("space") == "global" else 128)


def _access(pattern: str, operands: str, section: str, *also: str) -> Form:
    return form(pattern, operands, section, "sm_50", *_WIDE, *also, rule=_legal_width)


_MMIO = "scope: sm_70@8.2"
_EVICT2 = "evict2: sm_100@8.8"

FORMS: tuple[Form, ...] = (
    form("mov.<type:pred|b16|b32|b64|b128|u16|u32|u64|s16|s32|s64|f32|f64>", "=d:type, a:type", "9.7.9.3"),
    form("mov.b16", "=d:b8*2, a:b16", "9.7.9.4"),
    form("mov.b16", "=d:b16, a:b8*2", "9.7.9.4"),
    *(
        form(f"mov.{whole}", operands, "9.7.9.4", "sm_70@8.3" if whole == "b128" else "sm_50")
        for whole, element, count in (
            ("b32", "b16", 2),
            ("b32", "b8", 4),
            ("b64", "b32", 2),
            ("b64", "b16", 4),
            ("b128", "b64", 2),
            ("b128", "b32", 4),
        )
        for operands in (f"=d:{element}*{count}, a:{whole}", f"=d:{whole}, a:{element}*{count}")
    ),
    _access(
        f"ld.weak?.{_LD_SPACE}?.<cop:ca|cg|cs|lu|cv>?.L2::cache_hint?.<prefetch>?.<vec>?.<mem_type>",
        _LOAD,
        "9.7.9.8",
    ),
    _access(
        "ld.weak?.<space:global>?.<evict1>?.<evict2>?.L2::cache_hint?.<prefetch>?.<vec>?.<mem_type>",
        _LOAD,
        "9.7.9.8",
        _EVICT2,
    ),
    _access(f"ld.volatile.{_SMEM_GLOBAL}?.<prefetch>?.<vec>?.<mem_type>", "=d:mem_type*vec, [a@space]", "9.7.9.8"),
    _access(
        f"ld.<sem:relaxed|acquire>.<scope>.{_SMEM_GLOBAL}?.<evict1>?.<evict2>?.L2::cache_hint?.<prefetch>?"
        ".<vec>?.<mem_type>",
        _LOAD,
        "9.7.9.8",
        _EVICT2,
    ),
    _access("ld.mmio.relaxed.<scope:sys>.<space:global>?.<mem_type>", "=d:mem_type, [a@space]", "9.7.9.8", _MMIO),
    _access("ld.<space:global>.<cop:ca|cg|cs>?.nc.L2::cache_hint?.<prefetch>?.<vec>?.<mem_type>", _LOAD, "9.7.9.9"),
    _access(
        "ld.<space:global>.nc.<evict1>?.<evict2>?.L2::cache_hint?.<prefetch>?.<vec>?.<mem_type>",
        _LOAD,
        "9.7.9.9",
        _EVICT2,
    ),
    _access("ldu.<space:global>?.<vec:v2|v4>?.<mem_type>", "=d:mem_type*vec, [a@space]", "9.7.9.10"),
    _access(f"st.weak?.{_ST_SPACE}?.<cop:wb|cg|cs|wt>?.L2::cache_hint?.<vec>?.<mem_type>", _STORE, "9.7.9.11"),
    _access(
        "st.weak?.<space:global>?.<evict1>?.<evict2>?.L2::cache_hint?.<vec>?.<mem_type>",
        _STORE,
        "9.7.9.11",
        _EVICT2,
    ),
    _access(f"st.volatile.{_SMEM_GLOBAL}?.<vec>?.<mem_type>", "[=a@space], b:mem_type*vec", "9.7.9.11"),
    _access(
        f"st.<sem:relaxed|release>.<scope>.{_SMEM_GLOBAL}?.<evict1>?.<evict2>?.L2::cache_hint?.<vec>?.<mem_type>",
        _STORE,
        "9.7.9.11",
        _EVICT2,
    ),
    _access("st.mmio.relaxed.<scope:sys>.<space:global>?.<mem_type>", "[=a@space], b:mem_type", "9.7.9.11", _MMIO),
    form(
        "st.async.weak?.<space:shared::cluster>?.mbarrier::complete_tx::bytes.<vec:v2|v4>?"
        ".<type:b32|b64|u32|u64|s32|s64|f32|f64>",
        "[=a@shared::cluster], b:type*vec, [+mbar@shared::cluster]",
        "9.7.9.12",
        "sm_90@8.1",
        completion=Completion.MBARRIER_TX,
        rule=lambda m: m.get("vec") != "v4" or m["type"][1:] == "32",
    ),
    form("st.bulk.weak?.<space:shared::cta>?", "[=a@space], size:u64, initval:imm(0)", "9.7.9.13", "sm_100@8.6"),
    # Over several devices.
    *(
        form(
            f"multimem.ld_reduce.{order}.<space:global>?.<op:{op}>.{rest}",
            "=d:type*vec, [a@space]" if "vec" in rest else "=d:type, [a@space]",
            "9.7.9.14",
            "sm_90@8.1",
            "acc_f32: sm_90@8.2",
            rule=rule,
        )
        for order in ("weak?", "<sem:relaxed|acquire>.<scope>")
        for op, rest, rule in (
            ("min|max", "<type:u32|s32|u64|s64>", None),
            ("add", "<type:u32|s32|u64|f64>", None),
            ("and|or|xor", "<type:b32|b64>", None),
            ("add", "<vec:v2|v4>?.<type:f32>", None),
            (
                "min|max|add",
                "acc::f32?.<vec:v2|v4>?.<type:f16x2|bf16x2>",
                lambda m: "acc_f32" not in m or m["op"] == "add",
            ),
        )
    ),
    *(
        form(
            f"multimem.st.{order}.<space:global>?.<vec:v2|v4>?.<type:{types}>",
            "[=a@space], b:type*vec",
            "9.7.9.14",
            "sm_90@8.1",
            rule=lambda m: "vec" not in m or m["type"] in ("f32", "f16x2", "bf16x2"),
        )
        for order in ("weak?", "<sem:relaxed|release>.<scope>")
        for types in ("b32|b64|u32|s32|u64|s64|f64|f32|f16x2|bf16x2",)
    ),
    *(
        form(
            f"multimem.red.{order}<space:global>?.<op:{op}>.{rest}",
            "[+a@space], b:type*vec" if "vec" in rest else "[+a@space], b:type",
            "9.7.9.14",
            "sm_90@8.1",
        )
        for order in ("", "<sem:relaxed|release>.<scope>.")
        for op, rest in (
            ("min|max", "<type:u32|s32|u64|s64>"),
            ("and|or|xor", "<type:b32|b64>"),
            ("add", "<type:u32|s32|u64|f64>"),
            ("add", "<vec:v2|v4>?.<type:f32|f16x2|bf16x2>"),
        )
    ),
    # Caches.
    form("prefetch.<space:global|local>?.<level:L1|L2>", "[&a@space]", "9.7.9.15"),
    form(
        "prefetch.<space:global>?.<level:L2::evict_last|L2::evict_normal>",
        "[&a@space]",
        "9.7.9.15",
        "sm_80@7.4",
    ),
    form("prefetchu.L1", "[&a]", "9.7.9.15"),
    form("prefetch.<space:const|param>?.tensormap", "[&a@space]", "9.7.9.15", "sm_90@8.0"),
    form("applypriority.<space:global>?.L2::evict_normal", "[&a@space], size:imm(128)", "9.7.9.16", "sm_80@7.4"),
    form("discard.<space:global>?.L2", "[=a@space], size:imm(128)", "9.7.9.17", "sm_80@7.4"),
    form(
        "createpolicy.range.<space:global>?.<primary:L2::evict_last|L2::evict_normal|L2::evict_first"
        "|L2::evict_unchanged>.<secondary:L2::evict_first|L2::evict_unchanged>?.b64",
        "=policy:b64, [&a@space], primary_size:u32, total_size:u32",
        "9.7.9.18",
        "sm_80@7.4",
    ),
    form(
        "createpolicy.fractional.<primary:L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged>"
        ".<secondary:L2::evict_first|L2::evict_unchanged>?.b64",
        "=policy:b64, fraction:f32?",
        "9.7.9.18",
        "sm_80@7.4",
    ),
    form("createpolicy.cvt.L2.b64", "=policy:b64, property:b64", "9.7.9.18", "sm_80@7.4"),
    # Addresses.
    form(
        "isspacep.<space:const|global|local|shared|shared::cta|shared::cluster|param|param::entry>",
        "=p:pred, a:u64",
        "9.7.9.19",
        "sm_50",
        _SUBSPACE,
    ),
    form(
        "cvta.to?.<space:const|global|local|shared|shared::cta|shared::cluster|param|param::entry>.<type:u64>",
        "=d:type, a:type",
        "9.7.9.20",
        "sm_50",
        _SUBSPACE,
    ),
    form("mapa.<space:shared::cluster>.<type:u32|u64>", "=d:type, a:type, b:u32", "9.7.9.23", "sm_90@7.8"),
    form("mapa.<type:u32|u64>", "=d:type, a:type, b:u32", "9.7.9.23", "sm_90@7.8"),
    form("getctarank.<space:shared::cluster>.<type:u32|u64>", "=d:u32, a:type", "9.7.9.24", "sm_90@7.8"),
    form("getctarank.<type:u32|u64>", "=d:u32, a:type", "9.7.9.24", "sm_90@7.8"),
)

GROUPS["sem"] = "relaxed|acquire|release|acq_rel"
_ATOM = f"<sem>?.<scope>?.{_SMEM_GLOBAL}?"
_RED = f"<sem:relaxed|release>?.<scope>?.{_SMEM_GLOBAL}?"
_UPDATES = (
    ("and|or|xor", "b32|b64", "sm_50"),
    ("add", "u32|s32|u64|f32|f64", "sm_60"),
    ("inc|dec", "u32", "sm_50"),
    ("min|max", "u32|s32|u64|s64", "sm_50"),
)
_VECTOR_UPDATES = (
    ("add", "<vec:v2|v4>.<type:f32>"),
    ("add|min|max", "noftz.<vec:v2|v4|v8>.<type:f16|bf16>"),
    ("add|min|max", "noftz.<vec:v2|v4>.<type:f16x2|bf16x2>"),
)


def _atomics() -> list[Form]:
    rows = [
        form(
            f"atom.{_ATOM}.exch.L2::cache_hint?.<type:b32|b64|b128>",
            "=d:type, [+a@space], b:type, policy:b64?L2_cache_hint",
            "9.7.13.5",
            "sm_50",
            "type=b128: sm_90@8.3",
        ),
        form(
            f"atom.{_ATOM}.cas.<type:b16|b32|b64|b128>",
            "=d:type, [+a@space], b:type, c:type",
            "9.7.13.5",
            "sm_50",
            "type=b128: sm_90@8.3",
        ),
    ]
    for name, order, result, section in (
        ("atom", _ATOM, "=d:type, ", "9.7.13.5"),
        ("red", _RED, "", "9.7.13.6"),
    ):
        operands = f"{result}[+a@space], b:type, policy:b64?L2_cache_hint"
        for op, types, needs in _UPDATES:
            rows.append(form(f"{name}.{order}.<op:{op}>.L2::cache_hint?.<type:{types}>", operands, section, needs))
        rows.append(
            form(
                f"{name}.{order}.<op:add>.noftz.L2::cache_hint?.<type:f16|f16x2|bf16|bf16x2>",
                operands,
                section,
                "sm_70@6.2",
                "type=bf16|bf16x2: sm_90@7.8",
            )
        )
        vector = result.replace("type", "type*vec") + "[+a@space], b:type*vec, policy:b64?L2_cache_hint"
        sems = order.partition(".")[0]
        for op, rest in _VECTOR_UPDATES:
            pattern = f"{name}.{sems}.<scope>?.<space:global>?.<op:{op}>.L2::cache_hint?.{rest}"
            rows.append(form(pattern, vector, section, "sm_90@8.1"))
    for op, types in (
        ("inc|dec", "u32"),
        ("min|max", "u32|s32"),
        ("and|or|xor", "b32"),
        ("add", "u32|s32|u64"),
    ):
        rows.append(
            form(
                f"red.async.relaxed.cluster.<space:shared::cluster>?.mbarrier::complete_tx::bytes.<op:{op}>"
                f".<type:{types}>",
                "[+a@shared::cluster], b:type, [+mbar@shared::cluster]",
                "9.7.13.7",
                "sm_90@8.1",
                completion=Completion.MBARRIER_TX,
            )
        )
    return rows


FORMS += tuple(_atomics())
