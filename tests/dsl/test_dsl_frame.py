# SPDX-License-Identifier: Apache-2.0
"""Which kernels get a frame, and where its two calls stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from porter.passes.dsl.port import port_python

HEAD = "import cutlass\nimport cutlass.cute as cute\nfrom cutlass.cute.nvgpu.warpgroup import fence\n"
PORTED = "import cutlass\nimport porter_dsl\nimport cutlass.cute as cute\nfrom porter_dsl import fence\n"

# The kernel, and the kernel in the port; B and E stand for the two calls.
KERNELS = {
    "plain": ("def k():\n    fence()\n", "def k():\n    B\n    fence()\n    E\n"),
    "documented": (
        'def k():\n    """What."""\n\n    fence()\n', 'def k():\n    """What."""\n    B\n\n    fence()\n    E\n'
    ),
    "documented over lines": (
        'def k():\n    """What\n    # and how.\n    """\n    # First\n    fence()\n',
        'def k():\n    """What\n    # and how.\n    """\n    B\n    # First\n    fence()\n    E\n',
    ),
    "parameters over lines": (
        "def k(\n    a,  # one\n    # two\n    b,\n):\n    # First\n\n    # Second\n    fence()\n",
        "def k(\n    a,  # one\n    # two\n    b,\n):\n    B\n    # First\n\n    # Second\n    fence()\n    E\n",
    ),
    "one line": ("def k(): fence()\n", "def k(): B; fence(); E\n"),
    "one line of three": ("def k(): fence(); fence(); pass\n", "def k(): B; fence(); fence(); pass; E\n"),
    "documentation alone": ('def k():\n    "What."  # so\n', 'def k():\n    "What."  # so\n    B\n    E\n'),
    "documentation and more on a line": (
        'def k():\n    "What."; fence()\n', 'def k():\n    "What."; B; fence()\n    E\n'
    ),
    "ends with return": ("def k():\n    fence()\n    return\n", "def k():\n    B\n    fence()\n    E\n    return\n"),
    "returns early": (
        "def k(a):\n    if a:\n        return\n    fence()\n",
        "def k(a):\n    B\n    if a:\n        E\n        return\n    fence()\n    E\n",
    ),
    "returns on a line": (
        "def k(a):\n    if a: return\n    fence()\n", "def k(a):\n    B\n    if a: E; return\n    fence()\n    E\n"
    ),
    "returns what multiplies": (
        "def k(a):\n    return g(fence(),\n             a)  # so\n",
        "def k(a):\n    B\n    kernel_result = g(fence(),\n             a)\n    E\n    return kernel_result  # so\n",
    ),
    "returns nothing": ("def k():\n    return None\n", "def k():\n    B\n    E\n    return None\n"),
    "functions and classes inside": (
        "def k():\n    def g():\n        return 1\n    class C:\n        def h(self): return 2\n    x = lambda: 3\n",
        "def k():\n    B\n    def g():\n        return 1\n    class C:\n        def h(self): return 2\n"
        "    x = lambda: 3\n    E\n",
    ),
    "begins with a decorated function": (
        "def k():\n    # helper\n    @cute.jit\n    def g(): pass\n    g()\n",
        "def k():\n    B\n    # helper\n    @cute.jit\n    def g(): pass\n    g()\n    E\n",
    ),
    "begins with a decorator alone": (
        "def k():\n    @cute.struct\n    class S: pass\n",
        "def k():\n    B\n    @cute.struct\n    class S: pass\n    E\n",
    ),
    "blocks that return": (
        "def k(a):\n    for i in a:\n        with i:\n            return\n    else:\n        fence()\n",
        "def k(a):\n    B\n    for i in a:\n        with i:\n            E\n            return\n    else:\n"
        "        fence()\n    E\n",
    ),
    "tries": (
        "def k():\n    try:\n        return\n    except E1:\n        return\n    finally:\n        fence()\n",
        "def k():\n    B\n    try:\n        E\n        return\n    except E1:\n        E\n        return\n"
        "    finally:\n        fence()\n    E\n",
    ),
    "matches": (
        "def k(a):\n    match a:\n        case 1:\n            return\n",
        "def k(a):\n    B\n    match a:\n        case 1:\n            E\n            return\n    E\n",
    ),
    "comment behind the last statement": (
        "def k():\n    fence()  # last\n    # the end\n\n\nx = 1\n",
        "def k():\n    B\n    fence()  # last\n    E\n    # the end\n\n\nx = 1\n",
    ),
    "no line break at the end": ("def k():\n    fence()", "def k():\n    B\n    fence()\n    E"),
    "tabs": (
        "def k(a):\n\tif a:\n\t\treturn\n\tfence()\n",
        "def k(a):\n\tB\n\tif a:\n\t\tE\n\t\treturn\n\tfence()\n\tE\n",
    ),
    "ends with raise": ("def k():\n    fence()\n    raise E1\n", "def k():\n    B\n    fence()\n    raise E1\n"),
    "a wrapper": (
        "def k(a):\n    g(a)\ndef g(a):\n    fence()\n", "def k(a):\n    B\n    g(a)\n    E\ndef g(a):\n    fence()\n"
    ),
    "asynchronous": ("async def k():\n    fence()\n", None),
    "a long last statement": (
        "def k():\n    g(\n        1,\n    )\n", "def k():\n    B\n    g(\n        1,\n    )\n    E\n"
    ),
    "a block of one line at the end": (
        "def k(a):\n    if a: fence()\n", "def k(a):\n    B\n    if a: fence()\n    E\n"
    ),
}  # fmt: skip


def lines(text: str) -> str:
    text = re.sub(r"(?<![\w.\"])B(?![\w.(])", "porter_dsl.begin()", text)
    return re.sub(r"(?<![\w.\"])E(?![\w.(])", "porter_dsl.end()", text)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("name", KERNELS)
def test_frame(tmp_path: Path, name: str, newline: str) -> None:
    before, after = KERNELS[name]
    if after is None:
        after = before.replace("    fence()\n", "    B\n    fence()\n    E\n")
    path = tmp_path / "kernel.py"
    path.write_bytes((HEAD + "@cute.kernel\n" + before).replace("\n", newline).encode())
    result = port_python(path)
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    assert result.kernels == ["k"]
    text = result.files[str(path)].decode()
    assert text == (PORTED + "@cute.kernel\n" + lines(after)).replace("\n", newline)
    compile(text, "kernel.py", "exec")


DECORATORS = {
    "plain": "@cute.kernel\n",
    "with arguments": "@cute.kernel(preprocess=True)\n",
    "in full": "@cutlass.cute.kernel\n",
    "imported": "from cutlass.cute import kernel as kern\n@kern\n",
    "among others": "@other\n@cute.kernel\n@more(1)\n",
}


@pytest.mark.parametrize("name", DECORATORS)
def test_kernels_are_known_by_their_decorator(tmp_path: Path, name: str) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(HEAD + DECORATORS[name] + "def k():\n    fence()\n")
    assert b"    porter_dsl.begin()\n    fence()\n    porter_dsl.end()\n" in port_python(path).files[str(path)]


def test_kernels_of_classes_and_of_modules_and_several_of_them(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(
        HEAD + "class A:\n    @cute.kernel\n    def a(self):\n        fence()\n    @cute.jit\n    def j(self):\n"
        "        return\n@cute.kernel\ndef b():\n    fence()\ndef plain():\n    return\n"
    )
    result = port_python(path)
    assert sorted(result.kernels) == ["a", "b"]
    text = result.files[str(path)]
    assert text.count(b"porter_dsl.begin()") == text.count(b"porter_dsl.end()") == 2


REACHED = {
    "a function": ("from helper import multiply\n", "multiply()", True),
    "a module": ("import helper\n", "helper.multiply()", True),
    "through another function": ("import helper\ndef g():\n    helper.multiply()\n", "g()", True),
    "a base class's method": ("from helper import Base\nclass C(Base): pass\n", "C().run()", True),
    "as a value": ("import helper\nfrom functools import partial\nf = 1\n", "partial(helper.multiply)()", True),
    "nothing of it": ("import helper\n", "other()", False),
}
HELPER = HEAD + "def multiply():\n    fence()\nclass Base:\n    def run(self):\n        fence()\n"


@pytest.mark.parametrize("name", REACHED)
def test_a_kernel_whose_mmas_are_in_another_module(tmp_path: Path, name: str) -> None:
    head, body, framed = REACHED[name]
    (tmp_path / "helper.py").write_text(HELPER)
    path = tmp_path / "kernel.py"
    path.write_text(f"import cutlass.cute as cute\n{head}@cute.kernel\ndef k():\n    {body}\n")
    result = port_python(path)
    assert (b"porter_dsl.begin()" in result.files[str(path)]) is framed
    assert b"from porter_dsl import fence" in result.files[str(tmp_path / "helper.py")]


def test_a_kernel_of_a_base_class_whose_subclass_multiplies(tmp_path: Path) -> None:
    (tmp_path / "base.py").write_text(
        "import cutlass.cute as cute\nclass Base:\n    @cute.kernel\n    def kernel(self):\n        self.multiply()\n"
    )
    path = tmp_path / "kernel.py"
    path.write_text(HEAD + "from base import Base\nclass Mine(Base):\n    def multiply(self):\n        fence()\n")
    assert b"        porter_dsl.begin()\n" in port_python(path).files[str(tmp_path / "base.py")]


def test_kernels_of_blackwell_have_no_frame(tmp_path: Path) -> None:
    (tmp_path / "native.py").write_text(
        "import cutlass.cute as cute\nfrom cutlass.cute.nvgpu import tcgen05\n@cute.kernel\ndef n():\n"
        "    cute.gemm(tcgen05.MmaF16BF16Op)\n"
    )
    path = tmp_path / "kernel.py"
    path.write_text(HEAD + "import native\n@cute.kernel\ndef k():\n    fence()\n")
    result = port_python(path)
    native = str(tmp_path / "native.py")
    assert result.kernels == ["k"]
    assert result.files[native] == Path(native).read_bytes()
