# SPDX-License-Identifier: Apache-2.0
"""Compiling CuTe DSL: what results are cached by, absent packages, arguments, lines, obstacles, versions."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from porter.build import dsl
from porter.build.cache import Cache
from porter.build.dsl import DslRequest, compile_dsl
from porter.build.port_plan import PortPlan
from porter.build.ptxas import Resources
from porter.build.table import require_shared_memory
from porter.cli.gate import compile_ports
from porter.cli.porting import look
from porter.diagnostics import Code, Diagnostic, ExitCode, Location, PorterError
from porter.passes.ported import Ported, PortedRoot, is_dsl_source
from porter.ptx.arch import SHARED_LIMIT
from porter.report.environment import probe
from porter.report.exits import gate_exit
from porter.verify.backends import SimBackend
from porter.verify.builder import ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.gate import GateOptions
from porter.verify.line_map import placed_in_original
from porter.verify.outcome import Verdict
from porter.verify.runner import VerifyOptions, verify

CORPUS = Path(__file__).parents[2] / "corpus"
COPY = """import cutlass
import cutlass.cute as cute
{head}

@cute.kernel
def kernel(a: cute.Tensor, c: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    {first}
    c[i] = {value}

@cute.jit
def run(a: cute.Tensor, c: cute.Tensor):
    kernel(a, c).launch(grid=[1, 1, 1], block=[32, 1, 1])
"""
TENSOR = {"kind": "tensor", "dtype": "Float32", "shape": [32], "strides": [1], "align": 16}
CALL = [{**TENSOR, "address": 1 << 40}, {**TENSOR, "address": 1 << 41}]
CASE = """
version: 1
kernel: copy.py
entry: run
sizes: {N: 32}
dsl: {call: [A, C]}
tensors:
  A: {dtype: f32, shape: [N], role: input}
  C: {dtype: f32, shape: [N], role: output}
reference: A * 2
families: [integers]
"""

external = pytest.mark.external


def write(folder: Path, head: str = "", first: str = "pass", value: str = "a[i] * 2") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "copy.py"
    path.write_text(COPY.format(head=head, first=first, value=value))
    return path


def request(path: Path, *search: Path) -> DslRequest:
    return DslRequest(path, "run", "sm_90a", CALL, search=search)


@external
def test_blocks_on_a_multiprocessor_need_no_driver(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_text(path.read_text().replace("block=[32, 1, 1])", "block=[32, 1, 1], min_blocks_per_mp=4)"))
    assert ".minnctapersm 4" in dsl.compile_dsl(request(path)).ptx


# --- the cache


@external
def test_a_changed_helper_of_an_imported_package_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "elsewhere" / "helpers" / "inner"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "deep.py").write_text("FACTOR = 2\n")
    path = write(tmp_path / "here", "from helpers.inner import deep", value="a[i] * deep.FACTOR")
    cache, asked = Cache(tmp_path / "cache"), request(path, tmp_path / "elsewhere")
    first = compile_dsl(asked, cache).ptx

    ran: list[bool] = []
    real = dsl._run
    monkeypatch.setattr(dsl, "_run", lambda *a: (ran.append(True), real(*a))[1])
    assert compile_dsl(asked, cache).ptx == first
    assert not ran

    (package / "deep.py").write_text("FACTOR = 3\n")
    assert compile_dsl(asked, cache).ptx != first
    (package / "deep.py").write_text("FACTOR = 2\n")
    assert compile_dsl(asked, cache).ptx == first
    assert len(ran) == 1

    # A package comes before a module of its name.
    (package / "deep").mkdir()
    (package / "deep" / "__init__.py").write_text("FACTOR = 5\n")
    assert compile_dsl(asked, cache).ptx != first


@external
def test_what_is_observed_is_compiled_as_what_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, ran = write(tmp_path), list[Sequence[str]]()
    real = dsl._run
    monkeypatch.setattr(dsl, "_run", lambda asked, body: (ran.append(asked.observe), real(asked, body))[1])
    cache, names = Cache(tmp_path / "cache"), ["cutlass.cute.arch.thread_idx", "cutlass.cute.nothing"]
    seen = compile_dsl(replace(request(path), observe=names), cache)
    bare = compile_dsl(request(path), cache)
    assert ran == [names]
    assert ([call["name"] for call in seen.calls], seen.absent) == (names[:1], tuple(names[1:]))
    assert (bare.calls, bare.absent, bare.launches) == ((), (), seen.launches)
    # lines of what is observed are the user's, too
    assert bare == compile_dsl(request(path), Cache.none())
    assert ".loc" in bare.ptx


@external
def test_a_file_that_gets_in_the_way_of_an_import_is_seen(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "amount.py").write_text("FACTOR = 2\n")
    head = "import amount\ntry:\n    import extra\nexcept ImportError:\n    extra = None"
    path = write(tmp_path / "here", head, value="a[i] * amount.FACTOR if extra is None else a[i]")
    cache, asked = Cache(tmp_path / "cache"), request(path, tmp_path / "here", tmp_path / "far")
    first = compile_dsl(asked, cache).ptx
    (tmp_path / "here" / "amount.py").write_text("FACTOR = 7\n")
    second = compile_dsl(asked, cache).ptx
    assert second != first
    (tmp_path / "far" / "extra.py").write_text("")
    assert compile_dsl(asked, cache).ptx not in (first, second)


@external
def test_a_copy_of_a_tree_is_the_same_request_and_names_its_own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path / "cache")
    one, two = (write(tmp_path / name) for name in ("one", "two"))
    first = compile_dsl(request(one, one.parent), cache).ptx
    monkeypatch.setattr(dsl, "_run", lambda *a: pytest.fail("compiled again"))
    second = compile_dsl(request(two, two.parent), cache).ptx
    assert f'.file\t1 "{one}"' in first
    assert second == first.replace(str(one), str(two))


# --- absent packages

USES = """
import os
from contextlib import nullcontext
from functools import partial
from typing import Callable, NamedTuple, Optional
import torch
import torch._dynamo
import torch.nn.functional as F
import triton
import triton.language as tl
from einops import rearrange
from torch import Tensor

torch._dynamo.config.cache_size_limit = 8
LARGEST = -torch.finfo(torch.float32).max
assert LARGEST < -3e38 and torch.finfo(torch.bfloat16).bits == 16 and torch.iinfo(torch.int32).max == 2**31 - 1
TABLE = torch.tensor([1.0, 2.0], dtype=torch.float32).to("cuda")[0] * 2 + 1
SIZES = {torch.float16: 2, torch.bfloat16: 2, torch.float8_e4m3fn: 1}
assert SIZES[torch.bfloat16] == 2 and len(SIZES) == 3
assert torch.__version__ >= "2.4" and torch.version.cuda >= "12.8"
assert torch.cuda.get_device_capability()[0] == 9 and not torch.cuda.is_available()
assert isinstance(torch.float16, torch.dtype) and not isinstance(torch.Tensor, torch.dtype)
assert not isinstance(1.0, torch.Tensor)

def typed(x: torch.Tensor | None, y: Optional[Tensor], d: "torch.dtype" = torch.float32) -> Callable[[Tensor], Tensor]: ...

class Layer(torch.nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.width = width

assert Layer(3).width == 3

class Apply(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x

class Arguments(NamedTuple):
    scale: torch.Tensor
    kind: torch.dtype = torch.float16

@torch.library.custom_op("porter::twice", mutates_args={"out"})
def twice(x: torch.Tensor, out: torch.Tensor) -> None: ...

@twice.register_fake
def _(x, out): ...

@torch.compile
def compiled(x): return x + 1

@torch.compile(fullgraph=True)
@torch.no_grad()
def again(x): return x + 2

assert compiled(1) == 2 and again(1) == 3

@triton.autotune(configs=[triton.Config({"BLOCK": 64})], key=["n"])
@triton.jit
def other(x, BLOCK: tl.constexpr): ...

with torch.no_grad(), torch.cuda.device(0) if torch.cuda.is_available() else nullcontext():
    pass
wrapped = partial(torch.library.custom_op, mutates_args=())
try:
    import torch as maybe
except ImportError:
    maybe = None
assert maybe is None
"""  # noqa: E501


@external
@pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is installed")
def test_what_files_do_with_an_absent_package_at_import_works(tmp_path: Path) -> None:
    assert "st.global" in compile_dsl(request(write(tmp_path, USES)), Cache.none()).ptx


@external
def test_a_package_that_is_no_host_package_is_still_missed(tmp_path: Path) -> None:
    with pytest.raises(PorterError) as caught:
        compile_dsl(request(write(tmp_path, "import no_such_package")), Cache.none())
    assert "no_such_package" in caught.value.diagnostic.message


@external
@pytest.mark.parametrize("dynamic", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_what_knows_shapes_at_run_time_only_is_compiled_once(
    dynamic: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path)
    path.write_text(path.read_text().replace("grid=[1, 1, 1]", "grid=[cute.size(a), 1, 1]"))
    ran: list[bool] = []
    real = dsl._run
    monkeypatch.setattr(dsl, "_run", lambda asked, body: (ran.append("host" not in body), real(asked, body))[1])

    def compiled(extent: int, cache: Cache) -> dsl.DslCompiled:
        call = [{**item, "shape": [extent], "dynamic": dynamic, "leading": 0} for item in CALL]
        return compile_dsl(DslRequest(path, "run", "sm_90a", call), cache)

    cache = Cache(tmp_path / "cache")
    found = [compiled(extent, cache) for extent in (32, 64, 32, 64)]
    assert ran == ([True, False] if dynamic else [True, True])
    assert [one.launches[0].grid[0] for one in found] == [32, 64, 32, 64]
    assert found[1] == compiled(64, Cache.none())


# --- arguments

ARGUMENTS = """from typing import NamedTuple, Optional
import cutlass
import cutlass.cute as cute

class Scales(NamedTuple):
    scale: cutlass.Float32
    width: cutlass.Int32

@cute.kernel
def kernel(a: cute.Tensor, b: Optional[cute.Tensor], c: cute.Tensor, s: Scales, n: cutlass.Constexpr):
    i, _, _ = cute.arch.thread_idx()
    v = a[i] * s.scale + n
    if cutlass.const_expr(b is not None):
        v = v + b[i]
    c[i] = v + s.width

@cute.jit
def run(a, b: Optional[cute.Tensor], pair, scale, width, n: cutlass.Constexpr, stream=None):
    kernel(a, b, pair[0], Scales(scale, width + pair[1]), n).launch(grid=[1, 1, 1], block=[32, 1, 1], stream=stream)
"""
ARGUMENTS_CASE = """
version: 1
kernel: copy.py
entry: run
sizes: {{N: 32}}
dsl:
  call: [A, {second}, [C, 3], {{runtime: 3.0, type: f32}}]
  keywords: {{stream: stream, n: 5, width: {{runtime: 7}}}}
tensors:
  A: {{dtype: f32, shape: [N], role: input}}
  B: {{dtype: f32, shape: [N], role: input}}
  C: {{dtype: f32, shape: [N], role: output}}
reference: "A * 3 + 15{added} + 0 * B"
exact: false
families: [integers]
"""


@external
@pytest.mark.parametrize(("second", "added"), [("null", ""), ("B", " + B")])
def test_arguments_without_type_tuples_none_and_keywords(second: str, added: str, tmp_path: Path) -> None:
    (tmp_path / "copy.py").write_text(ARGUMENTS)
    (tmp_path / "case.yaml").write_text(ARGUMENTS_CASE.format(second=second, added=added))
    rows = verify(load_case(tmp_path / "case.yaml"), None, ToolkitBuilder(), SimBackend(), VerifyOptions()).rows
    assert [row.verdict for row in rows] == [Verdict.CLEAN], [d.message for row in rows for d in row.diagnostics]


# --- lines


@external
def test_lines_are_the_user_s_also_behind_the_support_module(tmp_path: Path) -> None:
    (tmp_path / "porter_dsl.py").write_text("\n" * 90 + "def twice(value):\n    return value * 2.5\n")
    ptx = compile_dsl(request(write(tmp_path, "import porter_dsl", value="porter_dsl.twice(a[i])")), Cache.none()).ptx
    multiply = ptx[: ptx.index("mul.f32")].rsplit(".loc", 1)[1].split()
    line = next(n for n, t in enumerate((tmp_path / "copy.py").read_text().splitlines(), 1) if "porter_dsl.twice" in t)
    assert multiply[:2] == ["1", str(line)]
    assert "porter_dsl.py" not in ptx


@external
def test_lines_of_inline_assembly_are_not_counted_on() -> None:
    case = load_case(CORPUS / "dsl_gemm" / "case.yaml")
    from porter.verify.problem import bind

    ptx = ToolkitBuilder().build(bind(case), case.kernel, "sm_90a").ptx
    before = ptx[: ptx.index("wgmma.mma_async")].rsplit(".loc", 1)[1].split()
    assert "cute.gemm(" in case.kernel.read_text().splitlines()[int(before[1]) - 1]


# --- obstacles

SUPPORT = """
class Unportable(RuntimeError):
    def __init__(self, obstacles):
        super().__init__(f"{len(obstacles)} obstacles")
        self.obstacles = obstacles

def end(path):
    wide = (path, 11, "600 columns")
    raise Unportable([wide, (path, 9, "an unknown operand"), (path, 10, "no end"), wide])
"""


def refusing(folder: Path) -> tuple[Path, dict[str, bytes], dict[str, bytes]]:
    """An original, and the files before and after a port that its support module refuses."""
    path = write(folder, first="b = a[i]", value="b * 2")
    (folder / "case.yaml").write_text(CASE)
    old = {str(path): path.read_bytes()}
    new = path.read_text().replace("import cutlass\n", "import cutlass\nimport porter_dsl\n")
    new = new.replace("    c[i] = b", "    porter_dsl.end(__file__)\n    c[i] = b")
    return path, old, {str(path): new.encode(), str(folder / "porter_dsl.py"): SUPPORT.encode()}


@external
def test_port_says_every_obstacle_at_its_line_of_the_original(tmp_path: Path) -> None:
    path, old, new = refusing(tmp_path)
    files = dict(new)
    ported = Ported(old={**old, str(tmp_path / "porter_dsl.py"): b""}, new=files)
    ported.roots.append(PortedRoot(str(path), tuple(files), dsl=True))
    (gated,) = compile_ports(ported, GateOptions())
    said = [(d.code, d.where.path, d.where.line, d.values["what"]) for d in gated.diagnostics if d.where is not None]
    assert said == [
        (Code.DSL_OBSTACLE, str(path), 9, "600 columns"),
        (Code.DSL_OBSTACLE, str(path), 8, "an unknown operand"),
        (Code.DSL_OBSTACLE, str(path), 8, "no end"),
    ]
    assert gate_exit([gated]) is ExitCode.UNPORTED


@external
def test_verify_says_every_obstacle(tmp_path: Path) -> None:
    path, _, new = refusing(tmp_path)
    with pytest.raises(PorterError) as caught:
        verify(load_case(tmp_path / "case.yaml"), PortPlan(files=new), ToolkitBuilder(), SimBackend(), VerifyOptions())
    assert caught.value.exit_code is ExitCode.UNPORTED
    assert [str(d.where) for d in caught.value.diagnostics] == [f"{path}:9", f"{path}:8", f"{path}:8"]


def test_an_obstacle_in_a_copied_module_stands_at_the_installed_line(tmp_path: Path) -> None:
    installed, port = tmp_path / "site" / "kernels" / "gemm.py", tmp_path / "port" / "kernels_sm100" / "gemm.py"
    texts = "a = 1\nb = 2\nc = 3\n", "import porter_dsl\na = 1\nb = porter_dsl.x\nc = 3\n"
    for path, text in zip((installed, port), texts, strict=True):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    alone, copy = tmp_path / "site" / "alone.py", tmp_path / "port" / "alone_sm100.py"
    alone.write_text("a = 1\n")
    copy.write_text("import porter_dsl\na = 1\n")
    values = {"kernel": "run", "what": "no end"}
    places = (port, 3), (port, 4), (copy, 2), (tmp_path / "x.py", 2)
    error = PorterError.of([Diagnostic(Code.DSL_OBSTACLE, Location(str(p), n), values) for p, n in places])
    drivers = tmp_path / "driver.py", tmp_path / "port" / "driver.py"
    found = placed_in_original(error, *drivers, [tmp_path / "site"]).diagnostics
    assert [str(d.where) for d in found] == [f"{installed}:2", f"{installed}:3", f"{alone}:1", f"{tmp_path / 'x.py'}:2"]


# --- drivers, versions, shared memory


def test_a_driver_needs_no_kernel_of_its_own(tmp_path: Path) -> None:
    driver = tmp_path / "driver.py"
    driver.write_text("from cutlass.cute import jit\nfrom kernels import Kernel\n\n@jit\ndef run(a): Kernel()(a)\n")
    assert is_dsl_source(driver, look(driver))
    plain = tmp_path / "plain.py"
    plain.write_text("from kernels import Kernel\n\nclass Mine(Kernel):\n    pass\n")
    assert not is_dsl_source(plain, look(plain))
    (tmp_path / "case.yaml").write_text(CASE.replace("copy.py", "plain.py"))
    assert is_dsl_source(plain, look(plain))


@pytest.mark.parametrize(("version", "tested"), [("4.8.1", True), ("4.6.2", True), ("4.5.3", False), ("4.10.0", False)])
def test_versions_that_are_not_tested_are_named(version: str, tested: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dsl, "dsl_version", lambda: version)
    note = dsl.dsl_untested()
    assert (note is None) is tested
    if note is not None:
        assert version in note.message
        assert dsl.NEWEST in note.message


@external
def test_doctor_names_the_tested_versions() -> None:
    found = next(p for p in probe() if p.name == dsl.PACKAGE)
    assert dsl.OLDEST in found.what
    assert dsl.NEWEST in found.what


def test_too_much_shared_memory_is_an_error() -> None:
    resources = {"kernel": Resources(registers=32, static_smem=1024)}
    require_shared_memory(resources, {"kernel": SHARED_LIMIT - 1024}, "sm_100a", Path("a.py"))
    with pytest.raises(PorterError) as caught:
        require_shared_memory(resources, {"kernel": SHARED_LIMIT - 1023}, "sm_100a", Path("a.py"))
    assert caught.value.diagnostic.code is Code.SHARED_MEMORY_EXCEEDED


OLDER = """
from pathlib import Path
from porter.build.dsl import dsl_version
from porter.cli.context import current
from porter.cli.making import Ports
from porter.verify.builder import ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.backends import SimBackend
from porter.verify.runner import VerifyOptions, verify
case = load_case(Path({case!r}))
plan, notes = Ports(current()).of_file(case.kernel)
assert plan is not None, notes
rows = verify(case, plan, ToolkitBuilder(), SimBackend(), VerifyOptions(families=({family!r},))).rows
for row in rows:
    print(dsl_version(), row.verdict.value, *{{c.kind if c.ok else "other" for c in row.between}})
    print(*(d.message for d in row.diagnostics))
"""


@external
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "family"),
    [("dsl_gemm", "integers"), ("dsl_gemm_helpers", "integers"), ("dsl_gemm_bytes", "integers"),
     ("dsl_attention", "normal")],
)  # fmt: skip
def test_a_kernel_and_its_port_run_under_an_older_version(name: str, family: str) -> None:
    """PORTER_OLDER_DSL is where pip installed one: `pip install --no-deps --target DIR nvidia-cutlass-dsl==V` with its
    libs-base, libs-core and libs-cu12, all in one command."""
    place = os.environ.get("PORTER_OLDER_DSL")
    if not place:
        pytest.skip("PORTER_OLDER_DSL names no directory with an older nvidia-cutlass-dsl")
    inside = [Path(place) / "nvidia_cutlass_dsl" / part for part in ("dsl_packages", "python_packages")]
    path = os.pathsep.join(map(str, [place, *(p for p in inside if p.is_dir()), *sys.path]))
    text = OLDER.format(case=str(CORPUS / name / "case.yaml"), family=family)
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    version, *found = done.stdout.split("\n")[0].split() or [""]
    assert found == ["clean", "bits"], done.stdout + done.stderr
    assert version != dsl.dsl_version()
