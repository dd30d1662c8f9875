# SPDX-License-Identifier: Apache-2.0
"""Names of libraries stand in rules: the model and the passes hold none, so that a new spelling is a line of YAML."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from porter.rules.load import load_rules

PORTER = Path(__file__).resolve().parents[2] / "porter"
READ_BY_NAME = ("lang/cute_dsl.py", "lang/dsl_*.py", "lang/trees.py")
"""Of the front ends those that read Python."""
WORDS = re.compile(
    r"\b(?:cute|cutlass|deep_gemm|kittens|cuda::device)::|\bcutlass\b|\bcute\.|nvgpu|triton|gluon|\btorch\b"
    r"|_get_dsl|arch_enum|make_trivial|mma_atom|SmemLayoutAtom"
    r"|deep_gemm|kittens|canonical_\w*idx|Num(?:Threads|Warps)Per"
    r"|warpgroup_(?:arrive|commit|wait|fence)|INVALID_CONTROL_PATH|UNREACHABLE|elect_one"
    r"|CUTE_|CUTLASS_|hopper_helpers|sm90_utils|(?<!W)GMMA|SM90_64x|make_gmma|hopper::|ThunderKittens"
    r"|warp_?\??group_?\??(?:idx|index|id)|__(?:any|all|ballot|reduce\w*)_sync|__assert_fail|readfirstlane"
    r"|_SM(?:90|100)A?_ENABLED|SM100_(?:MMA|TMEM)|ComputeCapability|get_device_capability|CUDAExtension|H100|nvrtc|_RS\\b"
)


def words_in(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of names and strings, documentation left out."""
    tree = ast.parse(source)
    documentation = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and id(node) not in documentation:
            value = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            yield node.lineno, value
        elif isinstance(node, ast.Name):
            yield node.lineno, node.id


def found_in(path: str, source: str) -> list[str]:
    return [f"{path}:{line}: {text.strip()[:60]}" for line, text in words_in(source) if WORDS.search(text)]


def test_model_and_passes_hold_no_name_of_a_library() -> None:
    paths = [p for where in ("model/**/*.py", "passes/**/*.py", *READ_BY_NAME) for p in sorted(PORTER.glob(where))]
    assert len(paths) > 90
    found = [line for p in paths for line in found_in(p.relative_to(PORTER).as_posix(), p.read_text("utf-8"))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        'NAME = "cute::warpgroup_arrive"',
        'if name == "warpgroup_wait": pass',
        r'P = re.compile(r"\w*warp_?group_?idx\w*")',
        r'P = re.compile(r"\w*INVALID_CONTROL_PATH|__trap")',
        'P = rb"\\bcanonical_warp_idx"',
        'X = ("__any_sync",)',
    ],
)
def test_a_name_in_code_is_found(source: str) -> None:
    assert found_in("x.py", source)


@pytest.mark.parametrize(
    "source",
    ['"""As cute::warpgroup_arrive does."""', "# cute::warpgroup_arrive", 'X = "wgmma.fence.sync.aligned;"'],
)
def test_what_explains_and_what_ptx_says_is_not(source: str) -> None:
    assert not found_in("x.py", source)


def test_every_head_of_a_recognizer_that_belongs_to_a_library_is_held_to_it() -> None:
    """What a rule has for a name in a namespace is nowhere in code."""
    heads = {"::".join(r.head) for rule in load_rules() for r in rule.recognizers if r.head[1:] and r.head[0] != "std"}
    assert heads
    assert all(WORDS.search(head) for head in heads)
