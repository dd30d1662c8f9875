# SPDX-License-Identifier: Apache-2.0
"""Strings that only the preprocessor puts together, in macros whose bodies have an argument many times."""

from __future__ import annotations

import re
import time

import pytest

from porter.lang.cuda import parse_cuda
from porter.lang.expansion import joined_strings
from porter.lang.sources import SourceSet

WORD = re.compile(r"wgmma\.\w+")
BRANCHES = 5


def found(text: str) -> list[tuple[int, str]]:
    sources = SourceSet("k.cu", {"k.cu": parse_cuda("k.cu", text.encode())})
    return sorted((j.span.start, j.text) for j in joined_strings(sources, WORD, re.compile(b"")))


def branch(name: str) -> str:
    """A macro that has its last argument in every branch, as those that choose a type have it."""
    lines = [f"    case {i}: {{ using type = T{i}; {{ __VA_ARGS__ }} break; }} \\" for i in range(BRANCHES)]
    return "\n".join([f"#define {name}(value, type, ...) \\", "  switch (value) { \\", *lines,
                      '    default: fail("type"); \\', "  }\n"])  # fmt: skip


HEAD = "".join(branch(f"BRANCH_{i}") for i in range(6)) + '#define WG "wg"\n#define S_(x) #x\n#define S(x) S_(x)\n'


def nested(depth: int, code: str) -> str:
    for i in range(depth):
        code = f"BRANCH_{i}(value, T, {code})"
    return f"{HEAD}void f(int value) {{ {code} }}\n"


FILLER = "int a = g<T>(b); h(a, [&](int c) { return c + 1; }); " * 40
STATEMENTS = {
    "one": ('asm("wg" "mma.fence;");', ["wgmma.fence"]),
    "of macros": ('asm(WG "mma.fence;");', ["wgmma.fence"]),
    "stringized": ('asm(S(wgmma) ".fence;");', ["wgmma.fence"]),
    "first": ('asm(WG "mma.fence;"); ' + FILLER, ["wgmma.fence"]),
    "last": (FILLER + 'asm(WG "mma.fence;");', ["wgmma.fence"]),
    "in the middle": (FILLER + 'asm(WG "mma.fence;"); ' + FILLER, ["wgmma.fence"]),
    "in braces": (FILLER + '{ { asm(WG "mma.fence;"); } } ' + FILLER, ["wgmma.fence"]),
    "in a lambda": (FILLER + 'h([&] { asm(WG "mma.fence;"); }); ' + FILLER, ["wgmma.fence"]),
    "two": ('asm(WG "mma.fence;"); ' + FILLER + 'asm(WG "mma.wait_group;");', ["wgmma.fence", "wgmma.wait_group"]),
    "none": (FILLER, []),
    "without an end": (FILLER + 'asm(WG "mma.fence")', ["wgmma.fence"]),
}


@pytest.mark.parametrize("depth", [1, 2, 6])
@pytest.mark.parametrize("name", STATEMENTS)
def test_what_stands_in_every_branch_is_found(name: str, depth: int) -> None:
    code, words = STATEMENTS[name]
    began = time.process_time()
    assert sorted({text for _, text in found(nested(depth, code))}) == words
    # five branches in five branches: without an end if each were read
    assert time.process_time() - began < 5


SIDE_BY_SIDE = {
    "behind itself": ('#define TWICE(x) x x\n', 'TWICE("mma.fence;" "wg")'),
    "behind itself with statements": ('#define TWICE(x) x x\n', 'TWICE("mma.fence"; a(); b(); c = "wg")'),
    "in front of a text": ('#define TWICE(x) x; x "mma.fence"\n', 'TWICE(a(); b(); c(); d = "wg")'),
    "behind a text": ('#define TWICE(x) x; "wg" x\n', 'TWICE("mma.fence"; a(); b(); c())'),
    "in front of another": ('#define BOTH(x, y) x; y; x y\n', 'BOTH(a(); b(); c = "wg", "mma.fence"; a(); b())'),
}  # fmt: skip


@pytest.mark.parametrize("name", SIDE_BY_SIDE)
def test_ends_of_an_argument_meet_what_stands_beside_it(name: str) -> None:
    head, use = SIDE_BY_SIDE[name]
    assert [text for _, text in found(f"{head}void f() {{ {use}; }}\n")] == ["wgmma.fence"]


PIECE = re.compile(rb"\bw(?:g(?:m(?:ma?)?)?)?\b|gmma")
HEADERS = {
    "a macro": ('#define WG "wg"\n', 'void f() { asm(WG "mma.fence;"); }'),
    "a macro of a macro": ('#define W "wg"\n#define WG W\n', 'void f() { asm(WG "mma.fence;"); }'),
    "a macro that is pasted": (
        '#define A_1 "wg"\n#define CAT(a, b) a##b\n',
        'void f() { asm(CAT(A_, 1) "mma.fence;"); }',
    ),
    "a macro that pastes in another": (
        '#define A_1 "wg"\n#define CAT(a, b) a##b\n#define PICK(n) CAT(A_, n)\n',
        'void f() { asm(PICK(1) "mma.fence;"); }',
    ),
    "a whole statement": ('#define FENCE() asm("wg" "mma.fence;")\n', "void f() { FENCE(); }"),
    "a name in another's argument": ('#define WG "wg"\n#define ID(x) x\n', 'void f() { asm(ID(WG) "mma.fence;"); }'),
    "a stringized argument": ("#define S(x) #x\n", 'void f() { asm(S(wgmma) ".fence;"); }'),
}


@pytest.mark.parametrize("name", HEADERS)
def test_what_macros_of_another_file_bring_is_found(name: str) -> None:
    texts = dict(zip(("k.h", "k.cu"), HEADERS[name], strict=True), other="int g(int a) { return a; }\n")
    sources = SourceSet("k.cu", {path: parse_cuda(path, text.encode()) for path, text in texts.items()})
    found = joined_strings(sources, WORD, PIECE)
    assert [(j.path, j.text) for j in found] == [("k.cu", "wgmma.fence")]
    assert found == joined_strings(sources, WORD, re.compile(b""))
