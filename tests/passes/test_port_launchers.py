# SPDX-License-Identifier: Apache-2.0
"""Host code that launches a kernel: it is no part of what the warpgroup's state is handed through."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels import GEMM, port_text

ARGUMENTS = "<<<1, 128, 0, 0>>>(o, 1, 2, 3)"
LAUNCHERS = [
    f"void launch(float* o) {{ kernel{ARGUMENTS}; }}",
    f"struct Run {{ static void run(float* o) {{ kernel{ARGUMENTS}; }} }};",
    f"struct Run {{ static void run(float* o) {{ ::kernel{ARGUMENTS}; }} }};\nvoid launch(float* o) {{ Run::run(o); }}",
    f"class Run {{ public: void run(float* o) {{ kernel{ARGUMENTS}; }} void all(float* o) {{ run(o); }} }};",
    f"struct Run {{ void run(float* o); }};\nvoid Run::run(float* o) {{ kernel{ARGUMENTS}; }}",
    f"template <int N> struct Run {{ static void run(float* o) {{ kernel{ARGUMENTS}; }} }};\n"
    "void launch(float* o) { Run<3>::run(o); }",
    f"#define KERNEL kernel\nstruct Run {{ static void run(float* o) {{ KERNEL{ARGUMENTS}; }} }};",
    f"struct Run {{ static void run(float* o) {{\n#define KERNEL kernel\n    KERNEL{ARGUMENTS};\n#undef KERNEL\n}} }};",
    "struct Face { virtual void run(float* o) = 0; };\n"
    f"struct Run : Face {{ void run(float* o) override {{ kernel{ARGUMENTS}; }} }};",
    f"struct Run {{ void operator()(float* o) {{ kernel{ARGUMENTS}; }} }};\nvoid launch(float* o) {{ Run{{}}(o); }}",
    f"struct Run {{ Run(float* o) {{ kernel{ARGUMENTS}; }} }};",
    f"struct Run {{ void run(float* o) {{ auto go = [&] {{ kernel{ARGUMENTS}; }}; go(); }} }};",
]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_launcher_stays_as_it_is(launcher: str, tmp_path: Path) -> None:
    result = port_text(tmp_path, GEMM + launcher + "\n")
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    assert result.files[result.sources.root].decode().endswith(launcher + "\n")
