# SPDX-License-Identifier: Apache-2.0
"""`porter explain` of a descriptor word."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from porter.cli.main import main
from porter.diagnostics import PorterError
from porter.ptx.idesc import InstructionDescriptor
from porter.ptx.idesc_scaled import ScaledDescriptor
from porter.ptx.smem_desc import SWIZZLE_CODES, SmemDescriptor
from porter.ptx.types import ElementType
from porter.ptx.umma import Kind
from porter.report.descriptors import explain_word

T = ElementType


def descriptors() -> Iterator[SmemDescriptor]:
    dice = random.Random(0)
    for swizzle in SWIZZLE_CODES["sm_90"]:
        for _ in range(25):
            start, lbo, sbo = (dice.randrange(1 << 14) * 16 for _ in range(3))
            yield SmemDescriptor(start, lbo, sbo, swizzle, dice.randrange(8))


def shared(word: str) -> dict[str, str]:
    return dict(explain_word(word, instruction=False).fields)


def instruction(word: int) -> dict[str, str]:
    return dict(explain_word(f"{word:#x}", instruction=True).fields)


def test_a_port_has_the_same_operand() -> None:
    for descriptor in descriptors():
        fields = shared(hex(descriptor.encode("sm_90")))
        word, _, _ = fields["a port has"].partition(":")
        assert SmemDescriptor.decode(int(word, 0), "sm_100") == descriptor
        assert f"start {descriptor.address:#x} " in fields["wgmma, SM90"]
        of_port = shared(word)
        assert f"stride dimension offset {descriptor.sbo} bytes" in of_port["tcgen05, SM100"]
        assert "a port has" not in of_port


def test_a_word_of_hopper_is_none_of_sm100() -> None:
    fields = shared("0x4000004000010840")
    assert "swizzle 128 bytes (bits 62-63)" in fields["wgmma, SM90"]
    assert fields["tcgen05, SM100"] == "illegal: bits 46-48 are 0b000, an SM100 descriptor has 0b001"
    assert "is 2 (bits 61-63)" in fields["a port has"]


def test_bits_that_hopper_does_not_look_at_are_told() -> None:
    fields = shared("0x4001004000010840")
    assert "does not look at: 48" in fields["wgmma, SM90"]
    assert fields["a port has"].startswith("0x4000404000010840: ")
    assert "cleared" in fields["a port has"]


@pytest.mark.parametrize("word", ["0x1_0000_0000_0000_0000", "0xgg", "9x", "-1", "1.5"])
def test_what_is_no_word_is_refused(word: str) -> None:
    with pytest.raises(PorterError, match="is no descriptor"):
        explain_word(word, instruction=False)


@pytest.mark.parametrize("text", ["0x4000004000010840ull", "0x4000_0040_0001_0840", "4611686293305362496"])
def test_words_are_written_in_many_ways(text: str) -> None:
    assert explain_word(text, instruction=False).name == "0x4000004000010840"


def test_an_instruction_descriptor_is_told_for_each_kind() -> None:
    fields = instruction(0x08200490)
    assert fields["kind::f16"].startswith("M = 128 (bits 24-28), N = 128 (bits 17-22); A bf16 K-major, B bf16 K-major")
    assert "cta_group::2" in fields["kind::f16"]
    assert "undefined" in fields["not kind::tf32"]
    assert "no f32 accumulator" in fields["not kind::i8"]
    assert not any("mxf" in name and not name.startswith("not") for name in fields)


def test_rows_of_64_are_for_one_cta() -> None:
    word = InstructionDescriptor(Kind.TF32, 64, 256, T.F32, T.TF32, T.TF32, b_mn_major=True).encode()
    text = instruction(word)["kind::tf32"]
    assert "cta_group::1" in text
    assert "cta_group::2" not in text
    assert "B tf32 MN-major" in text


def test_block_scaled_kinds_name_their_factors() -> None:
    word = ScaledDescriptor(Kind.MXF4NVF4, 128, 64, T.F32, T.E2M1, T.E2M1, b_scale_id=0).encode()
    text = instruction(word)["kind::mxf4nvf4"]
    assert "factors ue8m0, ids 0 of A and 0 of B" in text


@pytest.mark.parametrize(
    ("word", "said"),
    [
        (0x08800490, "N = 512, more than the field of N holds"),
        (0x28200490, "M = 640, more than the field of M holds"),
        (0x08200490 | 1 << 6, "reserved bits 0x40 are set"),
    ],
)
def test_sizes_that_do_not_fit_are_told_as_sizes(word: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        InstructionDescriptor.decode(word, Kind.F16)
    of_kinds = instruction(word)
    assert said in next(text for name, text in of_kinds.items() if name.startswith("not kind::f16"))


def test_words_on_the_command_line() -> None:
    told = CliRunner().invoke(main, ["explain", "0x4000004000010840"], catch_exceptions=False)
    assert told.exit_code == 0
    assert "shared-memory matrix descriptor" in told.output
    of_instruction = CliRunner().invoke(main, ["explain", "--format", "json", "--idesc", "0x08200490"])
    entry = json.loads(of_instruction.output)["entries"][0]
    assert entry["name"] == "0x08200490"
    assert entry["fields"]["kind::f16"].startswith("M = 128")
    refused = CliRunner().invoke(main, ["explain", "0x12z"])
    assert refused.exit_code == 2
    assert "is no descriptor" in refused.output
    assert CliRunner().invoke(main, ["explain", ""]).exit_code == 2
