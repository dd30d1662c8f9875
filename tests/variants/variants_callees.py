# SPDX-License-Identifier: Apache-2.0
"""What is called, where that is no plain name: lambdas where they are written, pointers to functions, choices."""

from __future__ import annotations

from variant_template import variant
from variant_types import plus

OTHER = """
__device__ __forceinline__ void other(float (&d)[16], uint64_t a, uint64_t b) { mma(d, a, b); }
template <int N>
__device__ __forceinline__ void sized(float (&d)[N], uint64_t a, uint64_t b) { mma(d, a, b); }
struct Ops {
    __device__ void go(float (&d)[16], uint64_t a, uint64_t b) { mma(d, a, b); }
};
namespace ns {
__device__ __forceinline__ void inner(float (&d)[16], uint64_t a, uint64_t b) { mma(d, a, b); }
}
"""
DONE = """<declare>
    <loop>
    d[0] += 1.f;
    <store>"""
LAMBDA = "(float (&x)[16], uint64_t p, uint64_t q) { mma(x, p, q); }"
POINTER = "void (*f)(float (&)[16], uint64_t, uint64_t)"


def put(name: str, two: str = "$mma", body: str = DONE) -> None:
    """`$f` in the steps of a tile, up to a blank, is called with the operands of both."""
    words = [
        f"for (int s = 0; s < 2; ++s) {w[1:]}(d, a + (2 * t + s) * kA, b + (2 * t + s) * kB);" if w[:1] == "$" else w
        for w in two.split("|")
    ]
    variant(f"callee_{name}", body, axis="callee", types=OTHER, pieces={"two": " ".join(words)}, want=plus({0: 1}))


put("pointer", POINTER + " = mma;|$f")
put("pointer_dereferenced", POINTER + " = &mma;|$(*f)")
put("pointer_assigned", POINTER + "; f = other;|$f")
put("pointer_auto", "auto f = mma;|$f")
put("pointer_to_template", "auto f = &sized<16>;|$f")
put("pointer_in_namespace", "auto f = ns::inner;|$f")
put("pointers_in_table", "void (*f[2])(float (&)[16], uint64_t, uint64_t) = {mma, other};|$f[s]")
put("behind_comma", "$(0, mma)")
put("in_parentheses", "$(mma)")
put("statement_expression", "$({ other; })")
put("method_pointer", "auto f = &Ops::go; Ops o;|$(o.*f)")
put("lambda", f"$[]{LAMBDA}")
put("lambda_in_parentheses", f"$([]{LAMBDA})")
put("lambda_decayed", f"$(+[]{LAMBDA})")
put("lambda_returned", f"$[] {{ return []{LAMBDA}; }}()")
put("lambda_operator", f"$[]{LAMBDA}.operator()")
put("lambda_of_lambda", "[&] { [&] {|$mma|}(); }();")
put("lambda_of_turn", "[&](int t) {|$mma|}(t);")
put("lambda_tells", "if ([&] {|$mma|return false; }()) break;")
put("lambda_gives", "const int z = [&] {|$mma|return 0; }(); if (z) break;")
put("lambda_is_kernel", body=f"[&] {{\n    {DONE}\n    }}();")
put("lambda_changes", body=DONE.replace("d[0] += 1.f;", "[&] { d[0] += 1.f; }();"))
put("lambda_changes_by_pointer", body=DONE.replace("d[0] += 1.f;", "[](float* p) { p[0] += 1.f; }(d);"))
put("lambda_stores", body=DONE.replace("<store>", "[=] { <store> }();"))
put("lambda_zeroes", body=DONE.replace("<declare>", "<T> d[<R>];\n    [&] { <zero> }();"))
put("lambda_waits", body=DONE.replace("<loop>", "for (int t = 0; t < tiles; ++t) { <batch> [] { wait<0>(); }(); }"))
put("lambda_commits", body=DONE.replace(
    "<loop>", "for (int t = 0; t < tiles; ++t) { fence(); <two> [&] { commit(); wait<0>(); }(); }"))  # fmt: skip
put("lambda_of_batch", body=DONE.replace("<loop>", "for (int t = 0; t < tiles; ++t) [&] { <batch> }(); wait<0>();"))
