# SPDX-License-Identifier: Apache-2.0
"""Expressions of case files that try to leave the allow-list: none may run, open or import anything."""

import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from fakes_verify import CASE, write_case

from porter.build.nvcc import CompileRequest, compile_ptx
from porter.build.toolchain import find_toolkit
from porter.cli.main import main
from porter.diagnostics import Code, ExitCode, PorterError
from porter.verify.case import load_case
from porter.verify.expr import ExpressionError, evaluate
from porter.verify.oracle import reference
from porter.verify.problem import Problem, bind

MODULES = [
    "np.polynomial.polyutils.operator.attrgetter('__class__')(A)",
    "np.polynomial.polyutils.functools.reduce(A, B)",
    "np.polynomial.polynomial.os.system('touch escaped')",
    "np.ctypeslib.load_library('c', '.')",
    "np.lib.format.open_memmap('escaped', 'w+')",
    "np.lib.npyio.DataSource().open('/etc/passwd')",
    "np.testing.measure('open(1)')",
    "np.testing.rundocs('/etc/passwd')",
    "np.f2py.compile('end')",
    "np.f2py.subprocess.run('touch escaped')",
    "np.random.default_rng(0).normal(size=3)",
    "np.core.multiarray.fromfile('/etc/passwd')",
    "np.linalg.linalg.functools.partial(A)",
    "np.ma.core.inspect.os",
    "np.sys.modules",
    "np.os.environ",
    "np.add.reduce.__self__",
    "np.add.at(A, 0, 1)",
    "np.rec.format_parser('f8', 'x', 'y')",
    "np.char.add('a', 'b')",
    "np.emath.sqrt(-1)",
    "np.exceptions",
]
DUNDERS = [
    "A.__class__",
    "A.__class__.__base__.__subclasses__()",
    "A.__array_interface__",
    "A.__reduce__()",
    "np.__builtins__",
    "np.__loader__.load_module('os')",
    "np.sum.__globals__['__builtins__']",
    "np.float64.__mro__",
    "(1).__class__",
    "M.__class__.__bases__[0]",
    "A.T.__getattribute__('tofile')",
    "__import__('os').system('touch escaped')",
    "__builtins__",
    "__name__",
]
FILES = [
    "np.load('/etc/passwd')",
    "np.save('escaped', A)",
    "np.savez('escaped', A)",
    "np.savetxt('escaped', A)",
    "np.loadtxt('/etc/passwd')",
    "np.genfromtxt('/etc/passwd')",
    "np.fromfile('/etc/passwd')",
    "np.fromregex('/etc/passwd', 'x', 'f8')",
    "np.memmap('escaped', 'f8', 'w+', shape=(4,))",
    "np.DataSource().open('/etc/passwd')",
    "A.tofile('escaped')",
    "A.dump('escaped')",
    "A.dumps()",
    "A.tobytes()",
    "open('/etc/passwd')",
    "np.frombuffer(A)",
    "np.fromstring('1 2', sep=' ')",
    "np.fromiter(A, 'f8')",
]
CODE = [
    "eval('1')",
    "exec('1')",
    "compile('1', '', 'eval')",
    "getattr(A, 'tofile')('escaped')",
    "setattr(A, 'shape', 1)",
    "globals()",
    "vars(A)",
    "type(A)",
    "input()",
    "breakpoint()",
    "np.vectorize(np.load)(A)",
    "np.frompyfunc(open, 1, 1)('/etc/passwd')",
    "np.apply_along_axis(open, 0, A)",
    "np.fromfunction(open, (1,))",
    "np.piecewise(A, [A > 0], [open])",
    "np.get_include()",
    "np.show_config()",
    "np.set_printoptions(formatter={'all': open})",
    "np.einsum('ij,jk', A, B.T, optimize=open)",
    "(lambda: open('/etc/passwd'))()",
    "[x for x in A]",
    "{x for x in A}",
    "{k: v for k, v in A}",
    "sum(x for x in A)",
    "(y := A)",
    "f'{A.__class__}'",
    "'{0.__class__}'.format(A)",
    "'%s' % A",
    "b'x'",
    "A @ B.T if 'x' else 0",
    "min(A, key=open)",
    "np.sum(*[A])",
    "np.sum(**{'a': A})",
    "np.array(A, dtype='O')",
    "np.array([np.sum, np.load])",
    "A.astype(object)",
    "A.view('O')",
    "A.setflags(write=True)",
    "A.sort()",
    "A.fill(0)",
    "np.copyto(A, 0)",
    "np.add(A, 1, A)",
    "np.add(A, 1, out=A)",
    "np.einsum(np.load, A)",
    "np",
    "np.float64",
    "...",
    "await A",
    "yield",
    "import os",
    "A; B",
]
BOMBS = [
    "9 ** 9 ** 9",
    "((2 ** 100) ** 100) ** 100 * A",
    "1 << 10 ** 9",
    "(1 << 100) * (1 << 100) * (1 << 100)",
    "[0] * 10 ** 9",
    "'a' * 10 ** 9",
    "'%999999999d' % 1",
    "range(10 ** 12)",
    "sum(range(10 ** 12))",
    "np.ones(10 ** 12)",
    "np.zeros((10 ** 6, 10 ** 6))",
    "np.full((10 ** 6, 10 ** 6), 1)",
    "np.arange(10 ** 12)",
    "np.arange(0, 1, 1e-12)",
    "np.linspace(0, 1, 10 ** 12)",
    "np.eye(10 ** 6)",
    "np.diag(np.ones(10 ** 5))",
    "np.repeat(A, 10 ** 9)",
    "A.repeat(10 ** 9, 0)",
    "np.tile(A, (10 ** 6, 10 ** 6))",
    "np.pad(A, 10 ** 6)",
    "np.outer(np.ones(10 ** 6), np.ones(10 ** 6))",
    "np.add.outer(np.ones(10 ** 6), np.ones(10 ** 6))",
    "np.kron(np.ones((10 ** 4, 10)), np.ones((10 ** 4, 10)))",
    "np.ones((10 ** 6, 1)) * np.ones(10 ** 6)",
    "np.broadcast_to(1, (10 ** 9, 10 ** 9))",
    "np.einsum('ab,cd,ef->', A @ B.T, A @ B.T, A @ B.T)",
    "np.einsum('ab,cd,ef->abcdef', A, A, A)",
    "np.tensordot(A @ B.T, A @ B.T, 0)",
    "np.meshgrid(np.ones(10 ** 5), np.ones(10 ** 5))",
    "np.arange(10 ** 6)[np.zeros((10 ** 5, 10 ** 4), np.int64)]",
    "np.ones((10 ** 4, 10 ** 4))[:, np.zeros((10 ** 5,), np.int64)]",
    "np.concatenate([" + "np.ones(2 ** 26), " * 8 + "])",
    "np.exp(" * 90 + "np.ones(2 ** 24)" + ")" * 90,
    "+".join(["A"] * 4000),
    "-" * 5000 + "1",
    "(" * 4000 + "1" + ")" * 4000,
    "A" + "[0]" * 3000,
    "1" * 5000,
    "A" * 20000,
]


class _Heard:
    """What the interpreter was asked to do while `on`: an audit hook stays for good."""

    def __init__(self) -> None:
        self.on = False
        self.events: list[str] = []
        sys.addaudithook(self._hook)

    def _hook(self, event: str, _: object) -> None:
        if self.on and event.partition(".")[0] in ("open", "import", "exec", "os", "subprocess", "ctypes", "socket"):
            self.events.append(event)


@pytest.fixture(scope="module")
def heard() -> _Heard:
    return _Heard()


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    return bind(load_case(write_case(tmp_path_factory.mktemp("case"))))


@pytest.mark.parametrize("text", [*MODULES, *DUNDERS, *FILES, *CODE, *BOMBS], ids=lambda text: text[:40])
def test_no_reference_leaves_the_list(
    text: str, problem: Problem, heard: _Heard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    case = replace(problem.case, reference=text)
    inputs = {"A": np.ones((64, 64)), "B": np.ones((128, 64))}
    # the message gives a place in the case file, which is read for it
    monkeypatch.setattr("porter.verify.oracle.place", lambda *_: None)
    # Processor time: what else a machine does is not the expression's doing.
    started = time.process_time()
    heard.events.clear()
    heard.on = True
    try:
        with pytest.raises(PorterError) as caught:
            reference(replace(problem, case=case), inputs)
    finally:
        heard.on = False
    assert caught.value.diagnostic.code is Code.CASE_REFERENCE
    assert caught.value.exit_code is ExitCode.USAGE
    assert "\n" not in str(caught.value)
    assert heard.events == []
    assert list(tmp_path.iterdir()) == []
    assert (inputs["A"] == 1).all()
    assert time.process_time() - started < 10


@pytest.mark.parametrize(
    "text",
    [*DUNDERS, *FILES, "9 ** 9 ** 9", "((2 ** 64) ** 64) ** 64", "1 << 10 ** 9", "'a' * 3", "-" * 5000 + "1",
     "1" * 5000, "(-8) ** 0.5", "1e300 ** 2", "A", "M[0]", "max()", "abs(1, 2)", "int(1e300)", "\ud800", "1\0"],
    ids=lambda text: text[:40].encode("ascii", "replace").decode(),
)  # fmt: skip
def test_no_size_leaves_arithmetic(text: str, heard: _Heard) -> None:
    heard.events.clear()
    heard.on = True
    try:
        with pytest.raises(ExpressionError):
            evaluate(text, {"M": 4})
    finally:
        heard.on = False
    assert heard.events == []


def test_a_lone_case_runs_nothing_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    escape = "np.polynomial.polyutils.operator.attrgetter('os')(np.lib._datasource).system('touch escaped')"
    path = write_case(tmp_path / "case", CASE.replace("A @ B.T", escape))
    result = CliRunner().invoke(main, ["verify", str(path)])
    assert not (tmp_path / "escaped").exists()
    assert result.exit_code in (ExitCode.USAGE, ExitCode.BUILD_FAILED)


@pytest.mark.parametrize("value", ["$(touch escaped)", "`touch escaped`", "${IFS}"])
def test_macros_reach_no_shell(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nvcc starts its tools through a shell, in which macros are quoted with double quotes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.cu").write_text("__global__ void k() {}\n")
    with pytest.raises(PorterError) as caught:
        compile_ptx(CompileRequest(tmp_path / "k.cu", "sm_90a", "k", defines=(f"X={value}",)), find_toolkit())
    assert caught.value.diagnostic.code is Code.BAD_OPTION
    assert not list(tmp_path.rglob("escaped"))
