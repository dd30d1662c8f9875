# SPDX-License-Identifier: Apache-2.0
"""Descriptor words of wgmma and tcgen05.mma as a person reads them: fields, what is illegal, and the port's."""

from __future__ import annotations

from collections.abc import Iterator

from porter.diagnostics import Code, PorterError
from porter.ptx.bits import Field
from porter.ptx.block_scale import COUNTS
from porter.ptx.idesc import FIELDS as PLAIN_FIELDS
from porter.ptx.idesc import InstructionDescriptor
from porter.ptx.idesc_scaled import SCALED_FIELDS, ScaledDescriptor
from porter.ptx.smem_desc import FIELDS, Generation, SmemDescriptor, bits_beside_fields
from porter.ptx.swizzle import SwizzleMode
from porter.ptx.umma import Kind
from porter.report.explain import Explanation

_OF: dict[Generation, str] = {"sm_90": "wgmma, SM90", "sm_100": "tcgen05, SM100"}
_SWIZZLES = {SwizzleMode.NONE: "none", SwizzleMode.B128_ATOM32: "128 bytes with atoms of 32"}
_WIDTHS = {True: 32, False: 64}


def explain_word(text: str, instruction: bool) -> Explanation:
    """The explanation of a word as `0x4000004000010840`: of an instruction descriptor of tcgen05.mma (32 bits), or of
    a shared-memory matrix descriptor (64 bits).

    Raises:
        PorterError: BAD_OPTION, for what is no number of so many bits.
    """
    width = _WIDTHS[instruction]
    try:
        word = int(text.replace("_", "").rstrip("uUlL"), 0)
    except ValueError:
        word = -1
    if not 0 <= word < 1 << width:
        problem = f"`{text}` is no descriptor: a number of {width} bits is asked for, such as 0x08200490"
        raise PorterError(Code.BAD_OPTION, option="--idesc" if instruction else "explain", problem=problem)
    if instruction:
        title = "instruction descriptor of tcgen05.mma"
        return Explanation(f"{word:#010x}", title, tuple(_instruction(word)))
    title = "shared-memory matrix descriptor"
    return Explanation(f"{word:#018x}", title, tuple(_shared(word)))


# --- shared memory


def _shared(word: int) -> Iterator[tuple[str, str]]:
    for generation, name in _OF.items():
        yield name, _as_shared(word, generation)
    if not _is_legal(word, "sm_100"):
        found = SmemDescriptor.decode(word, "sm_90")
        yield "a port has", f"{found.encode('sm_100'):#018x}: {_changes(word, found)}"
    if word < 1 << _WIDTHS[True]:
        yield "see also", f"porter explain --idesc {word:#x}, should this be an instruction descriptor"


def _is_legal(word: int, generation: Generation) -> bool:
    try:
        SmemDescriptor.decode(word, generation)
    except ValueError:
        return False
    return True


def _as_shared(word: int, generation: Generation) -> str:
    try:
        found = SmemDescriptor.decode(word, generation)
    except ValueError as error:
        return f"illegal: {str(error).partition(': ')[2]}"
    fields = FIELDS[generation]
    parts = [
        f"start {found.address:#x} {_bits(fields['start'])}",
        f"leading dimension {'at' if found.lbo_absolute else 'offset'} {found.lbo} bytes {_bits(fields['lbo'])}",
        f"stride dimension offset {found.sbo} bytes {_bits(fields['sbo'])}",
        f"swizzle {_SWIZZLES.get(found.swizzle, f'{found.swizzle.span} bytes')} {_bits(fields['swizzle'])}",
    ]
    if found.base_offset:
        parts.append(f"base offset {found.base_offset} {_bits(fields['base_offset'])}")
    beside = [bit for bit in bits_beside_fields(generation) if word >> bit & 1]
    if beside:
        parts.append(f"bits that wgmma does not look at: {', '.join(map(str, beside))}")
    return "; ".join(parts)


def _changes(word: int, found: SmemDescriptor) -> str:
    """What the descriptor of SM100 has that this one of SM90 has not."""
    old, new = FIELDS["sm_90"]["swizzle"], FIELDS["sm_100"]["swizzle"]
    parts = [f"version 1 {_bits(FIELDS['sm_100']['version'])}"]
    if found.swizzle is not SwizzleMode.NONE:
        parts.append(
            f"the same swizzle, {old.get(word)} {_bits(old)} on SM90, is {new.get(found.encode('sm_100'))} {_bits(new)}"
        )
    if any(word >> bit & 1 for bit in bits_beside_fields("sm_90")):
        parts.append("bits beside the fields are cleared")
    return "; ".join(parts)


# --- instructions


def _instruction(word: int) -> Iterator[tuple[str, str]]:
    illegal = dict[str, list[str]]()
    for kind in Kind:
        legal, text = _as_instruction(word, kind)
        if legal:
            yield f"kind::{kind.value}", text
        else:
            illegal.setdefault(text, []).append(kind.value)
    for text, kinds in illegal.items():
        yield f"not kind::{', '.join(kinds)}", text


def _as_instruction(word: int, kind: Kind) -> tuple[bool, str]:
    """Whether a word is legal for a kind, by one CTA or a pair; what it says, or what is wrong."""
    decode = ScaledDescriptor.decode if kind.block_scaled else InstructionDescriptor.decode
    try:
        found = decode(word, kind)
    except ValueError as error:
        return False, str(error).partition(": ")[2]
    wrong = {
        name: found.problems(cta_group=group, ws=ws)
        for name, group, ws in (("cta_group::1", 1, False), ("cta_group::2", 2, False), (".ws", 1, True))
        if not (ws and kind.block_scaled)
    }
    factors = min(map(found.scale_problems, _counts(kind)), key=len) if isinstance(found, ScaledDescriptor) else []
    issued = [name for name, problems in wrong.items() if not problems]
    if factors or not issued:
        return False, "; ".join([*min(wrong.values(), key=len), *factors])
    fields = SCALED_FIELDS if kind.block_scaled else PLAIN_FIELDS
    majors = {False: "K-major", True: "MN-major"}
    parts = [
        f"M = {found.m} {_bits(fields['m'])}, N = {found.n} {_bits(fields['n'])}",
        f"A {found.a_type.value} {majors[found.a_mn_major]}, B {found.b_type.value} {majors[found.b_mn_major]}, "
        f"D {found.d_type.value}",
        *_further(found),
        f"legal with {', '.join(issued)}",
    ]
    return True, "; ".join(parts)


def _counts(kind: Kind) -> set[int]:
    """Factors along K that MMAs of a kind may have."""
    return {count for (of, _), count in COUNTS.items() if of is kind}


def _further(found: InstructionDescriptor) -> Iterator[str]:
    """Of what few descriptors have."""
    for name, is_set in (("A", found.negate_a), ("B", found.negate_b)):
        if is_set:
            yield f"{name} negated"
    if found.saturate:
        yield "D saturates"
    if found.sparse:
        yield f"A is sparse, selector {found.sparsity_selector}"
    if found.max_shift:
        yield f"greatest shift of B {found.max_shift}"
    if isinstance(found, ScaledDescriptor):
        yield f"factors {found.scale_type.value}, ids {found.a_scale_id} of A and {found.b_scale_id} of B"


def _bits(field: Field) -> str:
    if field.width == 1:
        return f"(bit {field.shift})"
    return f"(bits {field.shift}-{field.shift + field.width - 1})"
