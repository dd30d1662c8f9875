# SPDX-License-Identifier: Apache-2.0
"""Names of warpgroup MMAs in every spelling: what a port makes of them, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.passes.dsl.port import DslPortResult, port_python

HEAD = "import cutlass\nimport cutlass.cute as cute\n"


def port_text(tmp_path: Path, text: str, name: str = "kernel.py", newline: str = "\n") -> DslPortResult:
    path = tmp_path / name
    path.write_bytes(text.replace("\n", newline).encode())
    return port_python(path)


def ported(tmp_path: Path, text: str) -> str:
    result = port_text(tmp_path, text)
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    return result.files[str(tmp_path / "kernel.py")].decode()


# before -> after; `import cutlass…` stands above both
IMPORTS = {
    "beside another": (
        "from cutlass.cute.nvgpu import cpasync, warpgroup\nwarpgroup.fence()\n",
        "from cutlass.cute.nvgpu import cpasync\nimport porter_dsl as warpgroup\nwarpgroup.fence()\n",
    ),
    "alone": (
        "from cutlass.cute.nvgpu import warpgroup\nwarpgroup.fence()\n",
        "import porter_dsl as warpgroup\nwarpgroup.fence()\n",
    ),
    "first of three, renamed": (
        "from cutlass.cute.nvgpu import warpgroup as wg, cpasync as c, tcgen05  # both\nwg.fence()\n",
        "from cutlass.cute.nvgpu import cpasync as c, tcgen05  # both\nimport porter_dsl as wg\nwg.fence()\n",
    ),
    "in parentheses": (
        "from cutlass.cute.nvgpu import (\n    cpasync,\n    warpgroup,  # MMAs\n    warp,\n)\nwarpgroup.fence()\n",
        "from cutlass.cute.nvgpu import (\n    cpasync,\n    warp,\n)\nimport porter_dsl as warpgroup\n"
        "warpgroup.fence()\n",
    ),
    "last in parentheses": (
        "from cutlass.cute.nvgpu import (cpasync,\n                                warpgroup,)\nwarpgroup.fence()\n",
        "from cutlass.cute.nvgpu import (cpasync,)\nimport porter_dsl as warpgroup\nwarpgroup.fence()\n",
    ),
    "behind a semicolon": (
        "import os; from cutlass.cute.nvgpu import warp, warpgroup; x = 1\nwarpgroup.fence()\n",
        "import os; from cutlass.cute.nvgpu import warp; import porter_dsl as warpgroup; x = 1\nwarpgroup.fence()\n",
    ),
    "the module with a name": (
        "import cutlass.cute.nvgpu.warpgroup as wg\nwg.fence()\n",
        "import porter_dsl as wg\nwg.fence()\n",
    ),
    "among modules": (
        "import os, cutlass.cute.nvgpu.warpgroup as wg, sys\nwg.fence()\n",
        "import os, porter_dsl as wg, sys\nwg.fence()\n",
    ),
    "names of the module": (
        "from cutlass.cute.nvgpu.warpgroup import fence, OperandMajorMode as M\nfence(M)\n",
        "from porter_dsl import fence, OperandMajorMode as M\nfence(M)\n",
    ),
    "names of its parts": (
        "from cutlass.cute.nvgpu.warpgroup.mma import MmaF16BF16Op as Op\nOp()\n",
        "from porter_dsl import MmaF16BF16Op as Op\nOp()\n",
    ),
    "in a function": (
        "def f():\n    from cutlass.cute.nvgpu import warp, warpgroup\n    warpgroup.fence()\n",
        "def f():\n    from cutlass.cute.nvgpu import warp\n    import porter_dsl as warpgroup\n"
        "    warpgroup.fence()\n",
    ),
    "under a condition": (
        "if True: from cutlass.cute.nvgpu import warp, warpgroup\nwarpgroup.fence()\n",
        "if True: from cutlass.cute.nvgpu import warp; import porter_dsl as warpgroup\nwarpgroup.fence()\n",
    ),
    "tried": (
        "try:\n    from cutlass.cute.nvgpu import warpgroup\nexcept ImportError:\n    warpgroup = None\n"
        "warpgroup.fence()\n",
        "try:\n    import porter_dsl as warpgroup\nexcept ImportError:\n    warpgroup = None\nwarpgroup.fence()\n",
    ),
    "the helper": (
        "from cutlass.utils.hopper_helpers import make_smem_layout_a, make_trivial_tiled_mma as mk\nmk(1)\n",
        "from cutlass.utils.hopper_helpers import make_smem_layout_a\n"
        "from porter_dsl import make_trivial_tiled_mma as mk\nmk(1)\n",
    ),
    "the helper's other name": (
        "from cutlass.utils import sm90_make_trivial_tiled_mma\nsm90_make_trivial_tiled_mma(1)\n",
        "from porter_dsl import make_trivial_tiled_mma as sm90_make_trivial_tiled_mma\n"
        "sm90_make_trivial_tiled_mma(1)\n",
    ),
    "gemm itself": (
        "from cutlass.cute import gemm, size\nfrom cutlass.cute.nvgpu.warpgroup import fence\ngemm(fence)\n",
        "from cutlass.cute import size\nfrom porter_dsl import gemm\nfrom porter_dsl import fence\ngemm(fence)\n",
    ),
}


@pytest.mark.parametrize("name", IMPORTS)
def test_import(tmp_path: Path, name: str) -> None:
    before, after = IMPORTS[name]
    assert ported(tmp_path, HEAD + before) == HEAD + after


# Uses: the port has `import porter_dsl` behind `import cutlass`.
USES = {
    "in full": ("cute.nvgpu.warpgroup.fence()", "porter_dsl.fence()"),
    "from the package": ("cutlass.cute.nvgpu.warpgroup.wait_group(0)", "porter_dsl.wait_group(0)"),
    "with a name below": ("x = cute.nvgpu.warpgroup.Field.ACCUMULATE.value", "x = porter_dsl.Field.ACCUMULATE.value"),
    "over lines": ("x = (cute.nvgpu\n     .warpgroup\n     .fence)", "x = (porter_dsl.fence)"),
    "the module as a value": ("f(cute.nvgpu.warpgroup)", "f(porter_dsl)"),
    "as a value": ("g = partial(cute.nvgpu.warpgroup.wait_group, 0)", "g = partial(porter_dsl.wait_group, 0)"),
    "of a parent module": (
        "from cutlass.cute import nvgpu\nnvgpu.warpgroup.fence()",
        "from cutlass.cute import nvgpu\nporter_dsl.fence()",
    ),
    "of an alias": ("nv = cute.nvgpu\nnv.warpgroup.fence()", "nv = cute.nvgpu\nporter_dsl.fence()"),
    "an alias of itself": ("wg = cute.nvgpu.warpgroup\nwg.fence()", "wg = porter_dsl\nwg.fence()"),
    "of a star import": (
        "from cutlass.cute.nvgpu import *\nwarpgroup.fence()",
        "from cutlass.cute.nvgpu import *\nporter_dsl.fence()",
    ),
    "in a decorator": ("@cute.nvgpu.warpgroup.fence\ndef f(): pass", "@porter_dsl.fence\ndef f(): pass"),
    "as a default": ("def f(x=cute.nvgpu.warpgroup.Field): pass", "def f(x=porter_dsl.Field): pass"),
    "in a comprehension": ("[cute.nvgpu.warpgroup.fence() for i in x]", "[porter_dsl.fence() for i in x]"),
    "behind text that is not ASCII": ("x = 'äöü€'; cute.nvgpu.warpgroup.fence()", "x = 'äöü€'; porter_dsl.fence()"),
    "in an f-string": ("x = f'{cute.nvgpu.warpgroup.Field}'", "x = f'{porter_dsl.Field}'"),
    "imported in full": (
        "import cutlass.cute.nvgpu.warpgroup\ncutlass.cute.nvgpu.warpgroup.fence()",
        "import cutlass.cute.nvgpu\nporter_dsl.fence()",
    ),
    "the helper": (
        "import cutlass.utils.hopper_helpers as h\nh.make_trivial_tiled_mma(h.make_smem_layout_a)",
        "import cutlass.utils.hopper_helpers as h\nporter_dsl.make_trivial_tiled_mma(h.make_smem_layout_a)",
    ),
    "the helper as sm90": (
        "import cutlass.utils as utils\nutils.sm90.make_trivial_tiled_mma(1)",
        "import cutlass.utils as utils\nporter_dsl.make_trivial_tiled_mma(1)",
    ),
    "the helper by its other name": (
        "import cutlass.utils as utils\nutils.sm90_make_trivial_tiled_mma(1)",
        "import cutlass.utils as utils\nporter_dsl.make_trivial_tiled_mma(1)",
    ),
}


@pytest.mark.parametrize("name", USES)
def test_use(tmp_path: Path, name: str) -> None:
    before, after = USES[name]
    head = HEAD.replace("import cutlass\n", "import cutlass\nimport porter_dsl\n")
    assert ported(tmp_path, HEAD + before + "\n") == head + after + "\n"


# Beside a warpgroup MMA.
FENCE = "from cutlass.cute.nvgpu.warpgroup import fence\nfence()\n"
BESIDE = {
    "gemm": ("cute.gemm(m, d, a, b, c)", "porter_dsl.gemm(m, d, a, b, c)"),
    "gemm as a value": ("f = partial(cute.gemm, m)", "f = partial(porter_dsl.gemm, m)"),
    "gemm with a name of its own": ("g = cute.gemm\ng(m)", "g = porter_dsl.gemm\ng(m)"),
    "gemm of the package": ("cutlass.cute.gemm(m)", "porter_dsl.gemm(m)"),
    "gemm of its module": (
        "from cutlass.cute import algorithm\nalgorithm.gemm(m)",
        "from cutlass.cute import algorithm\nporter_dsl.gemm(m)",
    ),
    "one atom": ("cute.mma_atom_call(m, d, a, b, c)", "porter_dsl.mma_atom_call(m, d, a, b, c)"),
    "a lambda": ("f = lambda m: cute.gemm(m)", "f = lambda m: porter_dsl.gemm(m)"),
    "the architecture": (
        "from cutlass.base_dsl import BaseDSL\narch = BaseDSL._get_dsl().get_arch_enum()",
        "from cutlass.base_dsl import BaseDSL\narch = porter_dsl.get_arch_enum()",
    ),
    "the architecture in full": (
        "arch = cutlass.base_dsl.BaseDSL._get_dsl().get_arch_enum()",
        "arch = porter_dsl.get_arch_enum()",
    ),
    "the architecture of a subclass": (
        "from cutlass.cutlass_dsl import CuTeDSL as D\nif D._get_dsl().get_arch_enum() >= x: pass",
        "from cutlass.cutlass_dsl import CuTeDSL as D\nif porter_dsl.get_arch_enum() >= x: pass",
    ),
    "the architecture through a variable": (
        "from cutlass.base_dsl import BaseDSL\ndsl = BaseDSL._get_dsl()\narch = dsl.get_arch_enum()",
        "from cutlass.base_dsl import BaseDSL\ndsl = BaseDSL._get_dsl()\narch = porter_dsl.get_arch_enum()",
    ),
    "an assertion": (
        "from cutlass.base_dsl.dsl import BaseDSL\nassert BaseDSL._get_dsl().get_arch_enum() == 1",
        "from cutlass.base_dsl.dsl import BaseDSL\nassert porter_dsl.get_arch_enum() == 1",
    ),
}


@pytest.mark.parametrize("name", BESIDE)
def test_beside_a_warpgroup_mma(tmp_path: Path, name: str) -> None:
    before, after = BESIDE[name]
    head = HEAD.replace("import cutlass\n", "import cutlass\nimport porter_dsl\n")
    fence = FENCE.replace("cutlass.cute.nvgpu.warpgroup", "porter_dsl")
    assert ported(tmp_path, HEAD + FENCE + before + "\n") == head + fence + after + "\n"


STAY = {
    "a parameter": "def f(cute): cute.gemm(1)",
    "a local": "def f():\n    cute = g()\n    cute.gemm(1)",
    "a loop's variable": "def f():\n    for cute in x: cute.gemm(1)",
    "a variable of with": "def f():\n    with x as cute: cute.gemm(1)",
    "a lambda's parameter": "f = lambda cute: cute.gemm(1)",
    "a comprehension's variable": "[cute.gemm(1) for cute in x]",
    "a local import": "def f():\n    import other as cute\n    cute.gemm(1)",
    "a caught exception": "def f():\n    try: pass\n    except E as cute: cute.gemm(1)",
    "a pattern": "def f(x):\n    match x:\n        case [cute]: cute.gemm(1)",
    "the own attribute": "class A:\n    def f(self):\n        if self.arch == 90: self.warpgroup.fence()",
    "a keyword": "f(gemm=1, warpgroup=2)",
    "an attribute of something else": "x.cute.gemm(1)",
    "a string": "'cute.gemm(1) warpgroup.fence()'",
    "a comment": "pass  # cute.gemm(1), wgmma, Hopper",
    "other names of cute": "cute.size(1); cute.gemm_like(1); cute.nvgpu.cpasync.x()",
    "another question": "from cutlass.base_dsl import BaseDSL\nBaseDSL._get_dsl().envar.arch",
}


@pytest.mark.parametrize("name", STAY)
def test_what_is_not_the_name_stays(tmp_path: Path, name: str) -> None:
    text = HEAD + FENCE + STAY[name] + "\n"
    assert ported(tmp_path, text) == text.replace("cutlass.cute.nvgpu.warpgroup", "porter_dsl")


ALONE = {
    "layouts of shared memory": (
        "from cutlass.cute.nvgpu import warpgroup\n"
        "x = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128)"
    ),
    "majors": "from cutlass.cute.nvgpu.warpgroup import OperandMajorMode\nx = OperandMajorMode.K",
    "an import that nothing uses": "from cutlass.cute.nvgpu import warpgroup",
    "MMAs of a warp": "from cutlass.cute.nvgpu import warp\ncute.gemm(warp.MmaF16BF16Op())",
    "MMAs of Blackwell": "from cutlass.cute.nvgpu import tcgen05\ncute.gemm(tcgen05.MmaF16BF16Op())",
    "layouts of the helpers": "import cutlass.utils.hopper_helpers as h\nh.make_smem_layout_a(1)",
}


@pytest.mark.parametrize("name", ALONE)
def test_a_file_without_warpgroup_mmas_stays(tmp_path: Path, name: str) -> None:
    result = port_text(tmp_path, HEAD + ALONE[name] + "\n")
    assert int(result.exit_code) == 0
    assert not result.groups
    assert set(result.files) == {str(tmp_path / "kernel.py")}


TEXTS = {
    "the target": ('x = "sm_90a"', 'x = "sm_100a"'),
    "an option": ('x = "--opt 2 --gpu-arch=sm_90a"', 'x = "--opt 2 --gpu-arch=sm_100a"'),
    "part of a text": ('x = "needs sm_90a or later"', 'x = "needs sm_90a or later"'),
    "a file that knows both": ('x = {"sm_90a": 1, "sm_100a": 2}', 'x = {"sm_90a": 1, "sm_100a": 2}'),
    "the capability": ("assert major == 9", "assert major == 10"),
    "the pair": ("f.get_device_capability() >= (9, 0)", "f.get_device_capability() >= (10, 0)"),
    "in one quotation mark": ("x = 'sm_90'", "x = 'sm_100'"),
    "in three": ('x = """sm_90a"""', 'x = """sm_100a"""'),
    "with a prefix": ("x = rf'sm_90'", "x = rf'sm_100'"),
    "behind quotation marks in a comment": ("# it's\nx = 'sm_90'", "# it's\nx = 'sm_100'"),
    "behind an escaped quotation mark": ("x = '\\'', 'sm_90'", "x = '\\'', 'sm_100'"),
    "in a comment": ("# 'sm_90' major == 9", "# 'sm_90' major == 9"),
    "a capability in a string": ("x = 'major == 9'", "x = 'major == 9'"),
    "a hash in a string": ("x = '#'; assert major == 9", "x = '#'; assert major == 10"),
    "an own attribute": ("self.arch == 90", "self.arch == 90"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_that_names_the_target(tmp_path: Path, name: str) -> None:
    before, after = TEXTS[name]
    text = ported(tmp_path, HEAD + FENCE + before + "\n")
    assert text == HEAD + FENCE.replace("cutlass.cute.nvgpu.warpgroup", "porter_dsl") + after + "\n"


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_every_other_byte_is_kept(tmp_path: Path, newline: str, mark: str) -> None:
    text = mark + HEAD + "x = '''a\n\tb'''\nif x:\n\x0c\tcute.nvgpu.warpgroup.fence()  \n\tcute.size( 1,\n2 )  # ä\n"
    result = port_text(tmp_path, text, newline=newline)
    new = text.replace("cute.nvgpu.warpgroup", "porter_dsl")
    new = new.replace("import cutlass\n", "import cutlass\nimport porter_dsl\n", 1)
    assert result.files[str(tmp_path / "kernel.py")] == new.replace("\n", newline).encode()


def test_a_name_that_the_file_has_is_not_taken(tmp_path: Path) -> None:
    text = ported(tmp_path, HEAD + "porter_dsl = 1\ncute.nvgpu.warpgroup.fence()\n")
    assert "import porter_dsl as porter_dsl2\n" in text
    assert "porter_dsl2.fence()\n" in text


def test_a_name_in_an_f_string_is_edited_where_it_stands_or_refused(tmp_path: Path) -> None:
    text = HEAD + "x = f'''{1}\n {cute.nvgpu.warpgroup.Field!r:>{cute.nvgpu.warpgroup.Field}} {'ä'}'''\n"
    result = port_text(tmp_path, text)
    new = result.files[str(tmp_path / "kernel.py")].decode()
    if int(result.exit_code) == 0:
        assert new.endswith(text[len(HEAD) :].replace("cute.nvgpu.warpgroup", "porter_dsl"))
    else:
        assert new == text
        assert {d.code.id for d in result.diagnostics} == {"PT2050"}


REFUSED = {
    "inline PTX": ("llvm.inline_asm(t, [], 'wgmma.fence.sync.aligned;', '')", 1),
    "in an f-string": ("asm(f'{{ wgmma.mma_async.sync.aligned.m64n{n}k16.f32.f16.f16 }}')", 1),
    "every place": ("asm('wgmma.fence.sync.aligned;')\nasm('wgmma.commit_group.sync.aligned;')", 2),
    "an operation of MLIR": ("from cutlass._mlir.dialects import nvvm\nnvvm.wgmma_mma_async(1)", 1),
    "of another dialect": ("from cutlass._mlir.dialects import cute_nvgpu as n\nn.MmaAtomSM90Type.get()", 1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_mmas_that_names_cannot_port_are_named(tmp_path: Path, name: str) -> None:
    text, count = REFUSED[name]
    result = port_text(tmp_path, HEAD + FENCE + text + "\n")
    assert int(result.exit_code) == 3
    assert [d.code.id for d in result.diagnostics] == ["PT2050"] * count
    assert all(d.where is not None and d.where.line > 4 for d in result.diagnostics)
    assert not result.groups


def test_documentation_of_ptx_is_no_ptx(tmp_path: Path) -> None:
    assert int(port_text(tmp_path, '"""wgmma.fence.sync.aligned"""\n' + HEAD + FENCE).exit_code) == 0
