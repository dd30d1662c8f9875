# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tree_sitter import Node, Query, QueryCursor, QueryError, Tree

from porter.lang import cuda
from porter.lang.cuda import (
    CudaFile,
    enclosing,
    error_nodes,
    find,
    find_around,
    function_specifiers,
    parse_cuda,
    parse_tree,
    span,
    walk,
)


def line_ends(text: bytes) -> list[int]:
    return [i for i, c in enumerate(text) if c in b"\r\n"]


def check_lengths(file: CudaFile) -> None:
    assert len(file.masked) == len(file.source)
    assert line_ends(file.masked) == line_ends(file.source)


KERNEL = Path(__file__).parents[2] / "corpus/gemm_ws/gemm_ws.cu"
HARD = {
    "align": b"__global__ void k() { extern __shared__ __align__(128) unsigned char s[]; }\n",
    "postfix alignas": b"__global__ void k() { extern __shared__ float s[] alignas(128); }\n",
    "cluster dims": b"__global__ void __cluster_dims__(2, 1, 1)\nk(int *p) { *p = 1; }\n",
    "loop macro": b"void f() { UNROLL_LOOP\n for (int i = 0; i < 4; ++i) { g(i); } }\n",
    "loop macro with count": b"void f() { MY_UNROLL(4)\n for (int i = 0; i < 4; ++i) { g(i); } }\n",
    "specifier": b"LIB_DEVICE void f(int a) { g(a); }\n",
    "unknown specifier": b"WOBBLE void f(int a) { g(a); }\nWOBBLE static int h(int b) { return b; }\n",
    "if and": b"#if (defined(A) and defined(B))\nint a;\n#endif\n",
    "typename": b"template <class T> void f() { g(typename T::X{}); return typename T::template Y<1>::Z{}; }",
    "lambda": b"void f() { auto g = [=] __device__ (int i) { return i; }; }\n",
    "lambda specifier": b"void f() { auto g = [&](int i) LIB_INLINE { return i; }; }\n",
    "default argument": b"struct A {}; void f(A a = {}, B b = {C::d}) { g(a); }\n",
    "bitfields": b"union D { struct { uint16_t a_ : 14, : 2; uint8_t : 6, x_ : 2; } b; };\n",
    "comparison": b"conditional_t<B >= 90, int, float> y; std::conditional_t<A::v >= 90, int, float> z;\n",
    "missing comma": b'void f() { asm volatile("x [%0], %1;" :: "r"(a)  "l"(b)); }\n',
    "statement macro": b"void f() {\n  CHECK_IT(a)\n  g(a);\n}\n",
    "friend": b"struct S { LIB_DEVICE constexpr friend bool operator>(S a, S b) { return 1; } };\n",
    "requires": b"template <class T, LIB_REQUIRES(is_x<T>::value && !b<T>())>\nvoid f(T t) { g(t); }\n",
    "return in arguments": b"bool f() { CHECK(g(a), return false); return true; }\n",
}


@pytest.mark.parametrize("name", HARD)
def test_masks_make_hard_sources_parse(name: str) -> None:
    source = HARD[name]
    file = parse_cuda("x.cu", source)
    check_lengths(file)
    assert not error_nodes(file.tree), (name, file.masked)
    assert file.unparsed == ()
    assert file.coverage == 1.0


@pytest.mark.parametrize("name", [n for n in HARD if n not in ("lambda specifier", "statement macro")])
def test_hard_sources_are_hard(name: str) -> None:
    # Otherwise the test above would prove nothing.
    assert parse_tree(HARD[name]).root_node.has_error


def test_macros_that_stand_for_specifiers_are_resolved() -> None:
    source = (
        b"#define KERN __global__ static\n#define FORCE __forceinline__\n#define MINE_OWN FORCE __device__\n"
        b"int x; // __global__\n"
        b"KERN void __launch_bounds__(128) k(float *p) { p[0] = 1; }\n"
        b"MINE_OWN int f(int a) { return a; }\n"
        b"template <class T> KERN void t(T *p) { p[0] = 1; }\n"
        b"void host() {}\n"
    )
    file = parse_cuda("x.cu", source)
    assert not error_nodes(file.tree)
    kernels = list(find(file.root, "function_definition"))
    assert len(kernels) == 4
    flags = ["__global__" in function_specifiers(file, f) for f in kernels]
    assert flags == [True, False, True, False]
    assert "__device__" in function_specifiers(file, kernels[1])


def test_specifiers_of_an_unmasked_kernel() -> None:
    file = parse_cuda("x.cu", b'extern "C" __global__ void k(int *p) { *p = 1; }\nstatic int g() { return 1; }\n')
    kernel, other = find(file.root, "function_definition")
    assert "__global__" in function_specifiers(file, kernel)
    assert "__global__" not in function_specifiers(file, other)


def test_clean_source_is_not_masked() -> None:
    source = b"// and or not\n__global__ void __launch_bounds__(128) k(int *p) { if (p and not q) { *p = 1; } }\n"
    file = parse_cuda("x.cu", source)
    assert file.masked == source
    assert file.rules == ()


def test_what_is_certain_is_masked_with_one_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    parses: list[bytes] = []
    plain = cuda.parse_tree

    def parse(text: bytes, edited: Tree | None = None) -> Tree:
        parses.append(text)
        return plain(text, edited)

    monkeypatch.setattr(cuda, "parse_tree", parse)
    source = (
        b'#define MY_CALL __device__ inline\n#define MY_REPEAT _Pragma("unroll")\n'
        b"MY_CALL MY_CALL void f() {\n  MY_REPEAT\n  for (;;) g();\n}\n"
        b"OTHER_HOST_DEVICE static void h() {\n  OTHER_UNROLL\n  for (;;) g();\n}\n"
    )
    file = parse_cuda("x.cu", source)
    assert not parses
    assert not error_nodes(file.tree)
    assert set(file.rules) == {"specifier macros", "loop macros"}
    assert len(parses) == 1


def test_a_constant_that_looks_like_a_specifier_stays() -> None:
    source = b"bool f(int x, bool b) { return x == SOME_DEVICE && b; }\nint g() { return K_UNROLL + 1; }\n"
    file = parse_cuda("x.cu", source)
    assert file.masked == source


def test_macro_in_comment_or_string_is_not_touched() -> None:
    source = b'LIB_DEVICE void f() { /* LIB_DEVICE */ g("LIB_DEVICE void"); } // LIB_DEVICE x\n'
    file = parse_cuda("x.cu", source)
    assert file.masked.count(b"LIB_DEVICE") == 3


def test_a_mask_that_does_not_help_is_dropped() -> None:
    source = b"void f() { int not_closed = (1 + ; }\nvoid g(int a) { if (a and b) { h(); } }\n"
    file = parse_cuda("x.cu", source)
    assert "alternative operators" not in file.rules
    assert error_nodes(file.tree)
    assert 0 < file.coverage < 1
    text = " ".join(file.text(s) for s in file.unparsed)
    assert "void g" not in text


def test_latin_bytes_bom_and_crlf_survive() -> None:
    source = b'\xef\xbb\xbf// caf\xe9 \xe4\r\nvoid f() { g("\xc3\xa9"); }\r\n/* \xff */\r\n'
    file = parse_cuda("x.cu", source)
    check_lengths(file)
    assert not error_nodes(file.tree)
    assert file.source == source
    function = next(find(file.root, "function_definition"))
    assert file.text(span(function)).encode("utf-8", "surrogateescape") == b'void f() { g("\xc3\xa9"); }'
    comment = next(find(file.root, "comment"))
    assert file.text(comment).encode("utf-8", "surrogateescape").startswith(b"// caf\xe9")


def test_location_and_tree_helpers() -> None:
    file = parse_cuda("dir/x.cu", b"int a;\nvoid f() {\n  if (a) { g(1); }\n}\n")
    call = next(find(file.root, "call_expression"))
    where = file.location(call)
    assert (where.path, where.line, where.column) == ("dir/x.cu", 3, 12)
    assert str(where) == "dir/x.cu:3:12"
    function = enclosing(call, "function_definition")
    assert function is not None
    assert file.text(function).startswith("void f()")
    assert enclosing(call, "class_specifier") is None
    starts = [n.start_byte for n in walk(file.root)]
    assert starts == sorted(starts)
    # Every node exactly once.
    nodes = list(walk(file.root))
    assert len({n.id for n in nodes}) == len(nodes)


def test_empty_file() -> None:
    file = parse_cuda("x.cu", b"")
    assert file.coverage == 1.0
    assert list(find(file.root, "function_definition")) == []


def wheel_sources() -> list[Path]:
    package = pytest.importorskip("cutlass_library")
    base = Path(package.__file__).parent / "source" / "examples"
    return sorted(p for e in ("cu", "cuh", "h", "hpp") for p in base.rglob(f"*.{e}"))


@pytest.mark.external
@pytest.mark.parametrize("part", [
    pytest.param(lambda n: n % 5 == 0, id="a fifth"),
    pytest.param(lambda n: n % 5 > 0, id="the others", marks=pytest.mark.slow),
])  # fmt: skip
def test_masks_keep_length_and_lines_of_every_example(part: Callable[[int], bool]) -> None:
    files = [path for n, path in enumerate(wheel_sources()) if part(n)]
    assert len(files) > 20
    clean = 0
    for path in files:
        file = parse_cuda(str(path), path.read_bytes())
        check_lengths(file)
        clean += not error_nodes(file.tree)
    # The share of clean files falls if a mask is lost.
    assert clean / len(files) > 0.85


def test_dead_branches_are_not_code() -> None:
    source = b"#if 0\nvoid f() { g(; }\n#if X\nint y;\n#endif\n#else\nint x;\n#endif\n"
    file = parse_cuda("x.cu", source)
    assert len(file.masked) == len(source)
    assert not error_nodes(file.tree)
    assert b"g(" not in file.masked
    assert b"int y" not in file.masked
    assert b"int x;" in file.masked


def test_pragma_in_front_of_a_body_without_braces() -> None:
    source = b"void f() {\n  for (int i = 0; i < 4; ++i)\n#pragma unroll\n    for (int j = 0; j < 4; ++j) g(i, j);\n}\n"
    file = parse_cuda("x.cu", source)
    loops = [n for n in walk(file.root) if n.type == "for_statement"]
    assert len(loops) == 2
    assert loops[0].end_byte == loops[1].end_byte


@pytest.mark.parametrize("name", HARD)
def test_errors_are_those_that_a_query_finds(name: str) -> None:
    query = Query(cuda.LANGUAGE, "(ERROR) @error (MISSING) @error")
    seen = 0
    for end in range(0, len(HARD[name]) + 1, 7):
        tree = parse_tree(HARD[name][:end] + b" int f(")
        expected = QueryCursor(query).captures(tree.root_node).get("error", [])
        assert {(span(n), n.type) for n in error_nodes(tree)} == {(span(n), n.type) for n in expected}
        assert len(error_nodes(tree)) == len(expected)
        seen += len(expected)
    assert seen


TYPES = [
    ("identifier",), ("call_expression", "field_expression"), ("declaration", "init_declarator"),
    ("function_definition", "compound_statement"), ("number_literal", "true", "type_identifier", "primitive_type"),
    ("expression",), ("comment", "ERROR", "statement"),
]  # fmt: skip


@pytest.mark.parametrize("types", TYPES)
def test_nodes_are_the_same_by_walk_and_by_query(types: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [*HARD.values(), KERNEL.read_bytes()]
    found: list[list[Node]] = []
    for walked in (0, 10**9):
        monkeypatch.setattr(cuda, "_WALKED", walked)
        cuda._of_types.cache_clear()
        roots = [parse_tree(source).root_node for source in sources]
        found.append([n for root in roots for part in (root, *root.named_children) for n in cuda.find(part, *types)])
    assert found[0]
    assert [(span(n), n.type) for n in found[0]] == [(span(n), n.type) for n in found[1]]


def test_a_type_that_is_not_one_is_no_type() -> None:
    with pytest.raises(QueryError):
        cuda.find(parse_tree(b"int i;").root_node, "identifer")


def test_nodes_around_places() -> None:
    text = b"int a;\nnamespace n { K void f() { struct S { void g() {} }; } void h() {} }\nvoid i() {}\n"
    root = parse_tree(text).root_node
    every = list(find(root, "function_definition"))
    assert len(every) == 4
    assert find_around(root, "function_definition", []) == []
    assert find_around(root, "function_definition", list(range(len(text)))) == every
    assert find_around(root, "function_definition", [text.index(b"g()")]) == every[:2]
    # between two nodes a place belongs to the one behind it
    assert find_around(root, "function_definition", [text.index(b" void h")]) == [every[2]]
    assert find_around(root, "function_definition", [0, text.index(b"i()")]) == [every[3]]


@pytest.mark.parametrize(("text", "kinds"), [
    ("bf16 (*a)[8 * N] = reinterpret_cast<bf16 (*)[8 * N]>(x);", ["declaration"]),
    ("float (&r)[8] = *y;", ["declaration"]),
    ("uint64_t (*q)[2][3] = (uint64_t (*)[2][3])x;", ["declaration"]),
    ("/* rows */ ns::Vec<int, 3> ( * w ) [4] = z;", ["comment", "declaration"]),
    ("int i = 0; half (*p)[4] = x;", ["declaration", "declaration"]),
    ("view(*p)[0] = 1;", ["expression_statement"]),
    ("x = f (*p)[0] == 1;", ["expression_statement"]),
    ("if (i) f (*p)[0] = 1;", ["if_statement"]),
    ("return (*p)[1] = 2;", ["return_statement"]),
    ("f (*p)[0] == 1;", ["expression_statement"]),
])  # fmt: skip
def test_a_pointer_to_an_array_is_declared(text: str, kinds: list[str]) -> None:
    file = parse_cuda("k.cu", f"void f() {{ {text} }}".encode())
    body = file.root.children[0].child_by_field_name("body")
    assert body is not None
    assert [n.type for n in body.named_children] == kinds
    assert file.text(body) == f"{{ {text} }}"
