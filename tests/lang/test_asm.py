# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from pathlib import Path

import pytest

from porter.lang.asm import (
    AsmStatement,
    asm_in_macro,
    asm_statements,
    macro_definitions,
    string_macros,
    unescape,
    unread_asm,
)
from porter.lang.cuda import CudaFile, parse_cuda


def parse(text: str) -> CudaFile:
    return parse_cuda("x.cu", text.encode())


def only(text: str) -> AsmStatement:
    (statement,) = asm_statements(parse(text))
    return statement


WGMMA = r"""
template <int ScaleD, int ScaleA>
__device__ void wgmma(float d[2][8], uint64_t desc_a, uint64_t desc_b) {
  // asm volatile("not this one");
  asm volatile(
      "{\n"
      ".reg .pred p;\n"          // a predicate
      "setp.ne.b32 p, %6, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
      "{%0, %1,  "  "%2, %3},"
      " %4,"
      " %5,"
      " p, %7, 1, 0, 0;\n"
      "}\n"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[1][0]), "+f"(d[1][1])
      : "l"(desc_a), "l"(desc_b), "n"(int32_t(ScaleD)), "n"(int32_t(ScaleA)));
}
"""


def test_template_operands_and_ptx() -> None:
    s = only(WGMMA)
    assert s.template.startswith("{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\nwgmma.mma_async")
    assert "{%0, %1,  %2, %3}, %4, %5, p, %7, 1, 0, 0;\n}\n" in s.template
    assert [o.expr for o in s.outputs] == ["d[0][0]", "d[0][1]", "d[1][0]", "d[1][1]"]
    assert [(o.kind, o.expr) for o in s.inputs] == [
        ("l", "desc_a"),
        ("l", "desc_b"),
        ("n", "int32_t(ScaleD)"),
        ("n", "int32_t(ScaleA)"),
    ]
    assert s.volatile
    assert s.operand(0).is_read
    assert s.operand(0).is_written
    assert s.operand(5).expr == "desc_b"
    with pytest.raises(IndexError):
        s.operand(8)
    assert s.ptx is not None, s.ptx_error
    names = [i.parts[0] for i in s.ptx.instructions()]
    assert names == ["setp", "wgmma"]


def test_spans_are_those_of_the_file() -> None:
    file = parse(WGMMA)
    (s,) = asm_statements(file)
    text = file.text(s.span)
    assert text.startswith("asm volatile(")
    assert text.endswith("(ScaleA)));")
    assert file.text(s.operand(2).expr_span) == "d[1][0]"
    assert s.where.line == 5
    assert file.text(s.template_span).startswith('"{')
    assert file.text(s.template_span).rstrip().endswith('"}\\n"')


def test_named_operands_become_numbers() -> None:
    s = only('void f() { asm("mov.u32 %[out], %[in];" : [out] "=r"(a) : [in] "r"(b + 1)); }')
    assert s.template == "mov.u32 %0, %1;"
    assert s.operand(1).name == "in"
    assert s.operand(1).expr == "b + 1"
    assert not s.volatile
    assert not s.operand(0).is_read
    assert s.ptx is not None


@pytest.mark.parametrize(
    "text",
    [
        '__asm__ __volatile__("fence.proxy.async;" ::: "memory");',
        'asm volatile ("fence.proxy.async;\\n" : : : "memory");',
        'asm volatile(R"(fence.proxy.async;)" ::: "memory")  ;',
        'asm volatile("fence"".proxy" // c "x"\n ".async;" /* "y" */ ::: "memory");',
    ],
)
def test_spellings(text: str) -> None:
    s = only(f"void f() {{ {text} g(); }}")
    assert s.template.strip() == "fence.proxy.async;"
    assert s.clobbers == ("memory",)
    assert s.volatile
    assert s.ptx is not None, s.ptx_error


def test_span_ends_after_the_semicolon() -> None:
    file = parse('void f() { if (x) asm("ret;")\n ; g(); }')
    (s,) = asm_statements(file)
    assert file.text(s.span) == 'asm("ret;")\n ;'


def test_escapes() -> None:
    assert unescape(r"a\n\t\"\\\x41\101\u00e9") == 'a\n\t"\\AA\u00e9'
    assert unescape("a\\\nb") == "ab"


def test_macro_piece_is_never_dropped() -> None:
    s = only('void f() { asm volatile("mov.u32 " DST ", %0;" :: "r"(a)); }')
    assert s.macro_pieces == ("DST",)
    assert s.ptx is None
    assert s.ptx_error is not None
    assert "DST" in s.ptx_error


def test_string_macro_of_the_file_is_filled_in() -> None:
    s = only(
        '#define FOUR "{%0, %1, " "%2, %3}"\n'
        'void f() { asm("st.global.v4.f32 [%4], " FOUR ";" :: "f"(a), "f"(b), "f"(c), "f"(d), "l"(p)); }'
    )
    assert s.template == "st.global.v4.f32 [%4], {%0, %1, %2, %3};"
    assert s.macro_pieces == ()
    assert s.ptx is not None


def test_string_macro_with_two_meanings_is_left_out() -> None:
    file = parse('#if A\n#define OP "add"\n#else\n#define OP "sub"\n#endif\n#define Q "x"\n#define Q "x"\n')
    assert string_macros(macro_definitions(file)) == {"Q": "x"}


def test_template_that_depends_on_if() -> None:
    text = (
        'void f() {\n  asm volatile("mov.u32 %0, "\n#if A\n    "1;"\n#else\n    "2;"\n#endif\n'
        '    : "=r"(x));\n  g();\n}\n'
    )
    file = parse(text)
    (s,) = asm_statements(file)
    assert s.ptx is None
    assert s.ptx_error == "the template depends on #if"
    assert unread_asm(file) == []
    assert [o.expr for o in s.outputs] == ["x"]


MACRO = """#define FENCE() asm volatile("wgmma.fence.sync.aligned;\\n" ::: "memory")
#define MMA(d, a, N) \\
  do { \\
    asm volatile("wgmma.mma_async.m64n" #N "k16 %0, " \\
                 "%1;\\n" \\
                 : "+f"(d##_0) \\
                 : "l"(a)); \\
  } while (0)
#define PAIR asm("ret;"); asm("exit;")
#define MAKE(N) template <> struct Mma<N> { static __device__ void go(float &d) { asm("ret;" : "+f"(d)); } };
void f() { FENCE(); MMA(x, y, 64); }
"""


def test_asm_in_macros() -> None:
    file = parse(MACRO)
    assert asm_statements(file) == []
    macros = {m.name: m for m in macro_definitions(file)}
    (fence,) = asm_in_macro(file, macros["FENCE"])
    assert fence.template == "wgmma.fence.sync.aligned;\n"
    assert file.text(fence.span) == 'asm volatile("wgmma.fence.sync.aligned;\\n" ::: "memory")'
    assert fence.macro is macros["FENCE"]
    assert fence.ptx is not None

    (mma,) = asm_in_macro(file, macros["MMA"])
    assert mma.macro_pieces == ("#N",)
    assert mma.ptx is None
    assert mma.outputs[0].expr == "d##_0"
    assert mma.inputs[0].expr == "a"
    text = file.text(mma.span)
    assert text.startswith("asm volatile(")
    assert text.endswith(': "l"(a));')
    assert mma.where.line == 4

    assert [s.template for s in asm_in_macro(file, macros["PAIR"])] == ["ret;", "exit;"]
    (made,) = asm_in_macro(file, macros["MAKE"])
    assert made.outputs[0].expr == "d"


def test_crlf_macro() -> None:
    source = MACRO.replace("\n", "\r\n").encode()
    file = parse_cuda("x.cu", source)
    macro = next(m for m in macro_definitions(file) if m.name == "MMA")
    (s,) = asm_in_macro(file, macro)
    assert s.template == "wgmma.mma_async.m64n\x00#N\x00k16 %0, %1;\n"
    assert source[s.span.start : s.span.end].endswith(b'"l"(a));')


def test_unread_asm_is_reported() -> None:
    file = parse(
        'void f() { asm volatile(SOME_TEXT(1) : (x), ; }\n// asm volatile(\nint asm_count; const char *s = "asm (";\n'
    )
    found = asm_statements(file)
    unread = unread_asm(file)
    assert len(found) + len(unread) == 1
    assert all(s.ptx is None for s in found)


def test_not_ptx_says_why() -> None:
    s = only('void f() { asm("this is } not PTX %0" :: "r"(a)); }')
    assert s.ptx is None
    assert s.ptx_error


@pytest.mark.external
def test_every_wgmma_of_the_wheel_is_read() -> None:
    package = pytest.importorskip("cutlass_library")
    path = Path(package.__file__).parent / "source/include/cute/arch/mma_sm90_gmma.hpp"
    source = path.read_bytes()
    file = parse_cuda(str(path), source)
    statements = asm_statements(file)
    assert unread_asm(file) == []
    # One statement with a wgmma.mma_async for each place outside comments that spells it.
    assert sum("wgmma.mma_async" in s.template for s in statements) == source.count(b'"wgmma.mma_async') > 100
    assert [s.where for s in statements if s.ptx is None] == []
    for s in statements:
        if "wgmma.mma_async" not in s.template:
            continue
        used = max((int(n) for n in re.findall(r"%(\d+)", s.template)), default=-1)
        assert used == len(s.operands) - 1
