# SPDX-License-Identifier: Apache-2.0
"""`// porter: keep ID`: findings of `porter check` that are wanted as they are, and comments that keep nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes_cli import porter

FENCE = 'asm volatile("wgmma.fence.sync.aligned;" ::: "memory");'
KERNEL = f"__global__ void k() {{ {FENCE} }}\n"
NARROW = (
    "__global__ void k(unsigned base, unsigned* out) {{ unsigned v;\n"
    '  asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%0}}, [%1];" : "=r"(v) : "r"(base));{}\n'
    '  asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");\n  out[0] = v; }}\n'
)


def found(folder: Path, text: str, *options: str, name: str = "k.cu") -> list[tuple[str, int]]:
    """IDs and lines of the findings of one file."""
    (folder / name).write_text(text)
    result = porter("check", folder / name, "--format", "json", *options, code=None)
    document = json.loads(result.stdout)
    listed = [(f["id"], f["location"]["line"]) for f in document["findings"]]
    assert result.exit_code == bool(listed)
    return sorted(listed)


@pytest.mark.parametrize(
    "text",
    [
        KERNEL.rstrip() + " // porter: keep PT7001\n",
        "// porter: keep PT7001\n" + KERNEL,
        "//porter:keep PT7001, why not\n\n\n" + KERNEL,
        "  /* porter: keep PT7003, PT7001 */\n" + KERNEL,
        "// porter: keep PTR120\n" + KERNEL,
        f"__global__ void k() {{\n  // porter: keep PT7001\n  {FENCE.replace('(', '(    ', 1)}\n}}\n",
        f"__global__ void k() {{\n  {FENCE} // porter: keep PT7001\n  {FENCE} // porter: keep PT7001\n}}\n",
    ],
)
def test_a_kept_place_is_no_finding(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, text) == []


def test_places_that_are_not_kept_stay_findings(tmp_path: Path) -> None:
    text = f"__global__ void k() {{\n  {FENCE} // porter: keep PT7001\n  {FENCE}\n}}\n"
    assert found(tmp_path, text) == [("PT7001", 3)]


@pytest.mark.parametrize(
    "comment",
    [
        "// porter: keep PT7001",
        "// porter: keep PTR999",
        "// porter: keep PT9999",
        "// porter: keep",
        "// porter: keep me",
    ],
)
def test_what_keeps_nothing_is_a_finding(tmp_path: Path, comment: str) -> None:
    assert found(tmp_path, f"{comment}\n__global__ void k() {{}}\n") == [("PT7012", 1)]


@pytest.mark.parametrize(
    "comment",
    [
        "// porter: keeper PT7001",  # another word
        "// the porter: PT7001",
        "// porter: keep PT7002",  # of `--sm100`
        "// porter: keep PTR150",  # of `porter port`
    ],
)
def test_what_this_check_does_not_look_for_is_not_unused(tmp_path: Path, comment: str) -> None:
    assert found(tmp_path, f"{comment}\n__global__ void k() {{}}\n") == []


def test_a_comment_two_lines_above_does_not_reach(tmp_path: Path) -> None:
    assert found(tmp_path, "// porter: keep PT7001\nint a;\n" + KERNEL) == [("PT7001", 3), ("PT7012", 1)]


def test_findings_of_sm100_are_kept_too(tmp_path: Path) -> None:
    assert found(tmp_path, NARROW.format(""), "--sm100") == [("PT7002", 2)]
    assert found(tmp_path, NARROW.format(" // porter: keep PT7002"), "--sm100") == []
    assert found(tmp_path, NARROW.format(" // porter: keep PT7003"), "--sm100") == [("PT7002", 2), ("PT7012", 2)]
    flags = "FLAGS = -arch=sm_100{}\n"
    assert found(tmp_path, flags.format(""), "--sm100", name="Makefile") == [("PT7010", 1)]
    assert found(tmp_path, flags.format(" # porter: keep PT7010"), "--sm100", name="Makefile") == []
