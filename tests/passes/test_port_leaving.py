# SPDX-License-Identifier: Apache-2.0
"""Threads that end before the others, however that is written: they come to where Tensor Memory is freed, or the port
is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kernels import LOOP, STORE, compiles, kernel, port_text, ported, refused

PART = "threadIdx.x >= steps"
QUIT = '__device__ void quit() { asm volatile("exit;"); }\n'
ASKED = '__device__ bool quit() { asm volatile("exit;"); return true; }\n'
MAYBE = '{ if (c) asm volatile("exit;"); '

ENDED = {
    "a call": (QUIT, f"if ({PART}) quit();"),
    "and": (ASKED, f"{PART} && quit();"),
    "or": (ASKED, f"!({PART}) || quit();"),
    "?:": (ASKED, f"{PART} ? quit() : false;"),
    "?: of void": (QUIT, f"{PART} ? quit() : (void)0;"),
    "a comma": (QUIT, f"if ({PART}) quit(), out[0] = 1.f;"),
    "an initial value": (ASKED, f"bool b = {PART} && quit();"),
    "a condition": (ASKED, f"while ({PART} && quit()) ;"),
    "a function between": (f"{QUIT}__device__ void leave(bool c) {{ if (c) quit(); }}\n", f"leave({PART});"),
    "a macro": ('#define QUIT() asm volatile("exit;")\n', f"if ({PART}) QUIT();"),
    "a macro without parameters": ('#define QUIT asm volatile("exit;")\n', f"if ({PART}) QUIT;"),
    "a macro with its condition": (f"#define QUIT(c) do {MAYBE} }} while (0)\n", f"QUIT({PART});"),
    "a macro that calls": (f"{QUIT}#define QUIT(c) do {{ if (c) quit(); }} while (0)\n", f"QUIT({PART});"),
    "a macro that calls in an expression": (f"{ASKED}#define QUIT(c) ((c) && quit())\n", f"QUIT({PART});"),
    "a macro that names": (f"{QUIT}#define QUIT quit\n", f"if ({PART}) QUIT();"),
    "a lambda": ("", f'auto quit = [] {{ asm volatile("exit;"); }}; if ({PART}) quit();'),
    "a lambda that is called at once": ("", f'if ({PART}) [] {{ asm volatile("exit;"); }}();'),
    "a template": ('template <int N> __device__ void quit() { asm volatile("exit;"); }\n', f"if ({PART}) quit<1>();"),
    "a namespace": (f"namespace u {{ {QUIT}}}\n", f"if ({PART}) u::quit();"),
    "a method": (f"struct Q {{ {QUIT}}};\n", f"Q q; if ({PART}) q.quit();"),
    "a static method": (f"struct Q {{ static {QUIT}}};\n", f"if ({PART}) Q::quit();"),
    "a template's type": (
        f"struct Q {{ static {QUIT}}};\ntemplate <class P> __device__ void go(bool c) {{ if (c) P::quit(); }}\n",
        f"go<Q>({PART});",
    ),
    "a call operator": ('struct Q { __device__ void operator()() { asm("exit;"); } };\n', f"if ({PART}) Q{{}}();"),
    "a constructor": (f"struct Q {{ __device__ Q(bool c) {MAYBE} }} }};\n", f"Q q({PART});"),
    "a constructor in braces": (f"struct Q {{ __device__ Q(bool c) {MAYBE} }} }};\n", f"Q q{{{PART}}};"),
    "a member's value": (f"{ASKED}struct Q {{ bool b = quit(); }};\n", f"if ({PART}) {{ Q q; }}"),
    "a member of a constructor": (
        f"{ASKED}struct Q {{ bool b; __device__ Q(bool c) : b(c && quit()) {{}} }};\n",
        f"Q q({PART});",
    ),
    "a destructor": (f"struct Q {{ bool c; __device__ ~Q() {MAYBE} }} }};\n", f"{{ Q q{{{PART}}}; }}"),
    "an operator": (f"struct Q {{ bool c; __device__ void operator!() {MAYBE} }} }};\n", f"!Q{{{PART}}};"),
    "a conversion": (
        f"struct Q {{ bool c; __device__ operator bool() const {MAYBE} return c; }} }};\n",
        f"if (Q{{{PART}}}) out[0] = 1.f;",
    ),
    "a conversion outside of its class": (
        f"struct Q {{ bool c; __device__ operator bool(); }};\n__device__ Q::operator bool() {MAYBE} return c; }}\n",
        f"Q q{{{PART}}}; if (q) out[0] = 1.f;",
    ),
    "a default argument": (f"{ASKED}__device__ void g(bool b = quit()) {{}}\n", f"if ({PART}) g();"),
    "a pointer": (QUIT, f"void (*p)() = quit; if ({PART}) p();"),
    "an address": (QUIT, f"auto p = &quit; if ({PART}) (*p)();"),
    "an argument": (f"{QUIT}template <class F> __device__ void call(F f) {{ f(); }}\n", f"if ({PART}) call(quit);"),
    "a guard in asm": (
        "",
        'asm volatile("{ .reg .pred p; setp.ge.u32 p, %0, %1; @p exit; }" :: "r"(threadIdx.x), "r"(steps));',
    ),
    "a return in asm with a guard": (
        "",
        'asm volatile("{ .reg .pred p; setp.ge.u32 p, %0, %1; @p ret; }" :: "r"(threadIdx.x), "r"(steps));',
    ),
    "a return in asm of a function": ('__device__ void quit() { asm("ret.uni;"); }\n', f"if ({PART}) quit();"),
    "braces in asm": ("", f'if ({PART}) asm volatile("{{ exit; }}");'),
    "libcu++": ("#include <cuda/ptx>\n", f"if ({PART}) cuda::ptx::exit();"),
    "libcu++ by another name": ("#include <cuda/ptx>\nnamespace ptx = cuda::ptx;\n", f"if ({PART}) ptx::exit();"),
}

RETURNED = {
    "exit": ("", f'if ({PART}) asm volatile("exit;");'),
    "exit and a new line": ("", f'if ({PART}) asm volatile("\\texit ;\\n\\t");'),
    "exit with a comment": ("", f'if ({PART}) asm volatile("exit; // not needed" ::: "memory");'),
    "exit in two strings": ("", f'if ({PART}) asm("ex" "it;");'),
    "exit in a raw string": ("", f'if ({PART}) __asm__ __volatile__(R"(exit;)");'),
    "exit in an expression of statements": ("", f'(void)({{ if ({PART}) asm("exit;"); 1; }});'),
    "ret": ("", f'if ({PART}) asm volatile("ret;");'),
    "return": ("", f"if ({PART}) return;"),
    "a block": ("", f"{{ if ({PART}) return; }}"),
    "an inner branch": ("", f"if (steps > 1) {{ if ({PART}) return; }}"),
    "a loop": ("", "for (int i = 0; i < steps; ++i) { if (threadIdx.x == i) return; }"),
    "a switch": ("", "switch (threadIdx.x) { case 3: return; default: break; }"),
    "a macro": ("#define LEAVE return\n", f"if ({PART}) LEAVE;"),
    "a macro with its condition": ("#define GUARD(c) if (c) return\n", f"GUARD({PART});"),
    "a macro without a semicolon": ("#define GUARD(c) if (c) return;\n", f"GUARD({PART})"),
    "a macro of a macro": ("#define OUT return\n#define GUARD(c) do { if (c) OUT; } while (0)\n", f"GUARD({PART});"),
}


def _first(before: str, statement: str) -> str:
    return kernel(f"    {statement}\n    float acc[8] = {{0}};\n{LOOP}{STORE}", before=before)


def _last(before: str, statement: str) -> str:
    return kernel(f"    float acc[8] = {{0}};\n{LOOP}    {statement}\n{STORE}", before=before)


@pytest.mark.parametrize("name", ENDED)
def test_threads_that_end_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    found = refused(tmp_path, _last(*ENDED[name]))
    assert any("where Tensor Memory is freed" in text for text in found), found


@pytest.mark.parametrize("name", RETURNED)
def test_threads_that_end_in_the_kernel_return(tmp_path: Path, name: str) -> None:
    before, statement = RETURNED[name]
    text = ported(tmp_path, _first(before, statement))
    main = re.sub(r"//.*", "", text[text.index("__global__") :])
    assert "exit" not in main
    left = min(main.index(word) for word in ("return", "LEAVE", "GUARD") if word in main)
    assert main.index("tmem(tmem_shared)") < main.index("[&] {") < left


@pytest.mark.parametrize("name", RETURNED)
def test_threads_that_return_late_meet_where_tensor_memory_is_freed(tmp_path: Path, name: str) -> None:
    text = ported(tmp_path, _last(*RETURNED[name]))
    assert "// Lanes that return apart meet" in text[text.index("__global__") :]


@pytest.mark.parametrize(
    ("before", "statement"),
    [
        ("", "if (steps > 1) return;"),
        ("#define GUARD(c) (c)\n", "if (GUARD(steps > 1)) return;"),
        ("", f"auto store = [&] {{ if ({PART}) return; out[0] = 1.f; }}; store();"),
        (QUIT, ""),
        (f"{QUIT}__global__ void other() {{ quit(); }}\n", ""),
        (f"{QUIT}__device__ void leave() {{ quit(); }}\n__global__ void other() {{ leave(); }}\n", ""),
        ('__global__ void other() { [] { asm("exit;"); }(); }\n', ""),
        ("", f"if ({PART}) __trap();"),
        ("", f'if ({PART}) asm volatile("trap;");'),
        ("", 'asm volatile("// exit;");'),
        ("", 'asm volatile("{ .reg .b32 exit; mov.b32 exit, 1; }");'),
    ],
)
def test_kernels_whose_threads_end_together_stay(tmp_path: Path, before: str, statement: str) -> None:
    text = ported(tmp_path, _last(before, statement))
    main = text[text.rindex("__global__") :]
    assert statement in main
    assert "// Lanes that return apart meet" not in main


@pytest.mark.slow
def test_ports_of_kernels_whose_threads_end_compile(tmp_path: Path) -> None:
    for number, (before, statement) in enumerate(RETURNED.values()):
        for place, text in (("first", _first(before, statement)), ("last", _last(before, statement))):
            folder = tmp_path / f"{place}{number}"
            folder.mkdir()
            assert "tcgen05.dealloc" in compiles(port_text(folder, text), folder, folder / "out")
