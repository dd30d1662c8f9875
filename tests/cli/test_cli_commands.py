# SPDX-License-Identifier: Apache-2.0
"""Every command and its exit codes, with stand-ins for compiler, simulator and port engine."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from fakes_cli import (
    CASE,
    FakeBackend,
    FakeBuilder,
    fake_compiled,
    fake_port_sources,
    porter,
    porter_json,
    project,
    zero,
)  # fmt: skip

from porter.build.toolchain import Toolkit
from porter.diagnostics import EXIT_CODE_TEXT, Code, ExitCode, PorterError
from porter.sim.check.catalog import KINDS


@pytest.fixture
def engine(monkeypatch):
    """The port engine, compiler and simulator as stand-ins; returns the backend in use."""
    backend = FakeBackend()
    monkeypatch.setattr("porter.passes.embedded.port_sources", fake_port_sources)
    monkeypatch.setattr("porter.verify.sweep.make_backend", lambda name, options: backend)
    monkeypatch.setattr("porter.cli.verify.make_builder", FakeBuilder)
    monkeypatch.setattr("porter.cli.port.compile_ports", lambda *args: [])
    monkeypatch.setenv("PORTER_CACHE", "/nonexistent")
    return backend


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("PORTER_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def kernel(tmp_path):
    return project(tmp_path / "kernel")


# --- usage


def test_help_names_every_command():
    output = porter("--help").output
    for name in ("scan", "port", "build", "sim", "verify", "explain", "doctor"):
        assert f"  {name} " in output
        assert porter(name, "--help").output


@pytest.mark.parametrize("args", [["scan"], ["scan", "--nonsense", "x"], ["frobnicate"], ["--format", "xml", "scan"]])
def test_wrong_usage_is_exit_code_2(args):
    assert "Usage" in porter(*args, code=2).output


# --- explain


def test_explain_a_diagnostic():
    output = porter("explain", "pt0001").output
    assert "no such file or directory: <path>" in output
    assert Code.FILE_NOT_FOUND.value.next_step in output


def test_explain_exit_codes():
    output = porter("explain", "exit-codes").output
    for code, text in EXIT_CODE_TEXT.items():
        assert f"{int(code)}  {text}" in output


def test_explain_lists_every_diagnostic_and_hazard():
    entries = porter_json("explain", "--list")["entries"]
    assert {e["name"] for e in entries} == {c.id for c in Code} | KINDS.keys()


@pytest.mark.parametrize("name", ["H17", "h26", "G1", "X1", "R1"])
def test_explain_a_hazard_as_reports_name_it(name: str):
    kind = KINDS[name.upper()]
    output = porter("explain", name).output
    assert all(told in output for told in (kind.title, kind.rule, kind.source, kind.code.id))


def test_an_unknown_hazard_names_those_that_are_close():
    assert "H9" in porter("explain", "H99", code=2).stderr


def test_explain_a_rule():
    from porter.rules.load import load_rules

    for rule in load_rules()[:3]:
        output = porter("explain", rule.id.lower()).output
        assert rule.title in output
        assert rule.safety.value in output


def test_explain_an_unknown_id():
    assert "PT0006" in porter("explain", "PT9999", code=2).stderr
    porter("explain", code=2)


# --- doctor


def test_doctor_says_what_is_here():
    document = porter_json("doctor")
    assert {"porter", "CUDA compiler", "GPU", "host compiler"} <= {p["name"] for p in document["probes"]}


def test_doctor_without_a_compiler_is_exit_code_1(monkeypatch):
    monkeypatch.setattr("porter.report.environment.search_toolkits", lambda explicit: iter(()))
    document = porter_json("doctor", code=1)
    assert document["usable"] is False


# --- scan


ASM = 'asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));'


def test_scan_counts_what_is_hopper_only(tmp_path):
    (tmp_path / "k.cu").write_text(f"__global__ void k() {{ int x; {ASM} }}\n")
    document = porter_json("scan", tmp_path)
    (file,) = document["files"]
    assert file["kernels"] == ["k"]
    assert {c["name"]: c["status"] for c in file["constructs"]} == {"wgmma.fence": "hopper", "mov": "both"}
    assert document["hopper_only"] == 1
    assert "wgmma.fence" in porter("scan", tmp_path).stdout


def test_scan_of_a_directory_goes_on_past_a_bad_file(tmp_path):
    (tmp_path / "bad.cu").write_bytes(b"\0\1\2")
    (tmp_path / "good.cu").write_text("__global__ void k() {}\n")
    document = porter_json("scan", tmp_path)
    assert [d["id"] for d in document["diagnostics"]] == ["PT0002"]
    assert len(document["files"]) == 1


# --- port


def test_port_prints_a_diff_that_git_applies(engine, kernel):
    diff = porter("port", kernel, code=0).stdout_bytes
    assert b"-#define HOPPER_MMA" in diff
    assert b"+#define BLACKWELL_MMA" in diff
    assert b"# rule PTR900 safe: rename" in diff
    top = kernel.resolve().parents[len(kernel.resolve().parents) - 1]
    subprocess.run(["git", "apply", "--check", "-p1", "--unsafe-paths", f"--directory={top}"], input=diff,
                   cwd="/", check=True)  # fmt: skip


def test_port_into_a_directory_keeps_the_layout(engine, kernel, tmp_path):
    before = kernel.read_bytes()
    porter("port", kernel, "-o", tmp_path / "out")
    assert (tmp_path / "out" / "gemm.cu").read_text() == before.decode().replace("HOPPER", "BLACKWELL")
    assert "BLACKWELL" in (tmp_path / "out" / "mma.cuh").read_text()
    assert kernel.read_bytes() == before
    assert porter("port", tmp_path / "out" / "gemm.cu").stdout_bytes == b""


def test_port_never_writes_over_the_original_with_o(engine, kernel):
    result = porter("port", kernel, "-o", kernel.parent, code=2)
    assert "PT0004" in result.stderr
    assert "HOPPER" in kernel.read_text()


def test_port_check(engine, kernel):
    assert "gemm.cu" in porter("port", "--check", kernel, code=1).stdout
    assert "HOPPER" in kernel.read_text()
    kernel.write_text(kernel.read_text().replace("HOPPER", "B"))
    (kernel.parent / "mma.cuh").write_text("")
    assert "nothing to port" in porter("port", "--check", kernel).stderr


def test_port_apply_guards_work_that_is_not_committed(engine, kernel):
    folder = kernel.parent
    assert "no git repository" in porter("port", "--apply", kernel, code=2).stderr

    def git(*args):
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(["git", "-C", str(folder), *identity, *args], check=True, capture_output=True)

    git("init", "-q")
    assert "does not track" in porter("port", "--apply", kernel, code=2).stderr
    git("add", ".")
    git("commit", "-q", "-m", "x")
    kernel.write_text(kernel.read_text() + "// more\n")
    assert "not committed" in porter("port", "--apply", kernel, code=2).stderr
    assert "HOPPER" in (folder / "mma.cuh").read_text(), "all or nothing"
    git("commit", "-q", "-a", "-m", "y")
    porter("port", "--apply", kernel)
    assert "HOPPER" not in kernel.read_text() + (folder / "mma.cuh").read_text()
    assert not list(folder.glob(".*.??????*")), "no temporary file is left"


def test_port_apply_allow_dirty(engine, kernel):
    porter("port", "--apply", "--allow-dirty", kernel)
    assert "BLACKWELL" in kernel.read_text()


def test_port_options_that_exclude_each_other(engine, kernel, tmp_path):
    porter("port", kernel, "--apply", "-o", tmp_path / "o", code=2)
    porter("port", kernel, "--allow-dirty", code=2)


def test_port_with_constructs_left_is_exit_code_3_and_writes_nothing(engine, kernel, tmp_path):
    kernel.write_text(kernel.read_text() + "// UNPORTABLE\n")
    porter("port", kernel, "--apply", "--allow-dirty", code=3)
    assert "HOPPER" in kernel.read_text()
    assert porter("port", kernel, code=3).stdout_bytes == b""


def test_port_json(engine, kernel):
    document = porter_json("port", kernel)
    assert [g["rule"] for g in document["groups"]] == ["PTR900"]
    assert all(f["diff"].startswith("# rule PTR900") for f in document["files"] if f["changed"])


def test_port_rule_selection_reaches_the_engine(engine, kernel):
    assert porter("port", kernel, "--ignore", "PTR900").stdout_bytes == b""


def test_write_failure_takes_everything_back(engine, kernel, tmp_path, monkeypatch):
    real = Path.replace
    moved = []

    def failing(self, target):
        if moved:
            raise OSError(28, "No space left on device")
        moved.append(target)
        return real(self, target)

    monkeypatch.setattr(Path, "replace", failing)
    assert "PT0008" in porter("port", kernel, "-o", tmp_path / "out", code=2).stderr
    assert [p for p in (tmp_path / "out").rglob("*") if p.is_file()] == []


# --- verify


def test_verify_ports_builds_runs_and_compares(engine, cache, kernel):
    result = porter("verify", kernel)
    assert "clean" in result.stdout
    assert "integers" in result.stdout
    assert any("BLACKWELL" in s for s in engine.sources), "the port is what was built for sm_100a"
    assert any("HOPPER" in s for s in engine.sources)


def test_verify_a_wrong_port_is_exit_code_5(engine, cache, kernel):
    engine.kernels["sm_100a"] = zero
    result = porter("verify", kernel, code=5)
    assert "PT5021" in result.stderr
    assert "first at C[0, 0]" in result.stderr
    assert "verdict: error" in result.stdout


def test_verify_an_unfinished_run_is_exit_code_6(engine, cache, kernel):
    engine.kernels["sm_100a"] = "incomplete"
    assert "verdict: incomplete" in porter("verify", kernel, code=6).stdout


def test_verify_a_port_that_does_not_compile_is_exit_code_4(engine, kernel, tmp_path):
    broken = tmp_path / "broken.cu"
    broken.write_text("BROKEN\n")
    result = porter("verify", kernel, "--port", broken, code=4)
    assert result.stderr.count("expected a `;`") == 1, "said once, not for every input family"


def test_verify_what_cannot_be_ported_is_exit_code_3(engine, cache, kernel):
    kernel.write_text(kernel.read_text() + "// UNPORTABLE\n")
    result = porter("verify", kernel, code=3)
    assert "PT5028" in result.stderr
    assert engine.sources == []


def test_verify_a_given_port(engine, kernel, tmp_path):
    given = tmp_path / "given.cu"
    given.write_text("by hand")
    porter("verify", kernel, "--port", given, "--families", "integers")
    assert "by hand" in engine.sources


def test_verify_says_that_a_port_ran_under_one_schedule_only(engine, cache, kernel):
    assert "other schedules" not in porter("verify", kernel).stdout
    engine.name = "gpu"
    assert "other schedules (--backend sim)" in porter("verify", kernel, "--backend", "gpu").stdout
    assert "other schedules" not in porter("verify", kernel, "--backend", "gpu", "--original-only").stdout
    document = porter_json("verify", kernel, "--backend", "gpu")
    assert document["not_run"][0]["schedules"]


def test_verify_original_only(engine, kernel):
    document = porter_json("verify", kernel, "--original-only", "--families", "integers,normal")
    assert [r["family"] for r in document["rows"] if r["schedule"] is None] == ["integers", "normal"]
    assert document["rows"][0]["port"] == []


def test_verify_sizes(engine, cache, kernel):
    for option, expected in [("all", [64, 128]), ("M=192", [192]), ("default", [64])]:
        rows = porter_json("verify", kernel, "--families", "integers", "--sizes", option)["rows"]
        assert [r["sizes"]["M"] for r in rows if r["schedule"] is None] == expected
    rows = porter_json("verify", kernel, "--families", "integers")["rows"]
    added = [(r["sizes"]["K"], r["added"]) for r in rows if r["schedule"] is None]
    assert added == [(64, None), (4288, "long K"), (640, "three blocks a dimension")]
    porter("verify", kernel, "--sizes", "M:192", code=2)
    porter("verify", kernel, "--sizes", "M=100", code=2)


def test_verify_a_directory_goes_on_past_a_bad_case(engine, cache, tmp_path):
    project(tmp_path / "a")
    project(tmp_path / "b", CASE.replace("reduction: K", "reduction: Q"))
    project(tmp_path / "c")
    document = porter_json("verify", tmp_path, "--families", "integers", "--sizes", "default", code=2)
    assert len([r for r in document["rows"] if r["schedule"] is None]) == 2
    assert [d["id"] for d in document["diagnostics"]] == ["PT5004"]
    assert document["verdict"] == "incomplete"


def test_verify_with_a_case_elsewhere(engine, cache, kernel, tmp_path):
    case = tmp_path / "elsewhere" / "case.yaml"
    case.parent.mkdir()
    case.write_text(CASE.replace("kernel: gemm.cu", "kernel: ../kernel/gemm.cu"))
    (kernel.parent / "case.yaml").unlink()
    porter("verify", kernel, code=2)
    porter("verify", kernel, "--case", case, "--families", "integers")


def test_verify_json_holds_what_a_reader_needs_to_repeat_the_run(engine, cache, kernel):
    engine.kernels["sm_100a"] = zero
    document = porter_json("verify", kernel, "--families", "normal", "--seed", "7", "--sizes", "default", code=5)
    assert document["seed"] == 7
    (row,) = document["rows"]
    assert row["verdict"] == "error"
    assert row["port"][0]["first"]["index"] == [0, 0]
    assert sum(row["port"][0]["ulp_histogram"]["counts"]) == 64 * 128


def test_verify_quiet_is_one_line_and_quieter_none(engine, cache, kernel):
    (line,) = porter("-q", "verify", kernel, "--families", "integers").output.splitlines()
    assert line.startswith("verdict: clean (4 clean)")
    assert porter("-qq", "verify", kernel, "--families", "integers").output == ""


# --- build

NOWHERE = Path("nowhere")
TOOLKIT = Toolkit(NOWHERE, NOWHERE, NOWHERE, NOWHERE, NOWHERE, (13, 0), "fake", "PATH")


def test_build_shows_both_sides(engine, cache, kernel, monkeypatch):
    def compiled(request, toolkit=None, cache=None):
        assert request.entry == "gemm"
        assert ("BLACKWELL" in request.source.read_text()) == (request.arch == "sm_100a")
        return fake_compiled(request.arch, 90 if request.arch == "sm_90a" else 100)

    monkeypatch.setattr("porter.build.table.compile_ptx", compiled)
    monkeypatch.setattr("porter.cli.build.find_toolkit", lambda explicit: TOOLKIT)
    output = porter("build", kernel).stdout
    assert "registers" in output
    assert "+10" in output
    metrics = porter_json("build", kernel)["kernels"][0]["metrics"]
    assert metrics["registers"] == {"before": 90, "after": 100, "delta": 10}


def test_build_errors(engine, kernel, monkeypatch):
    def refuses(request, toolkit=None, cache=None):
        raise PorterError(Code.NVCC_ERROR, path="x", arch="sm_90a", text="no")

    monkeypatch.setattr("porter.build.table.compile_ptx", refuses)
    monkeypatch.setenv("PORTER_CACHE", str(kernel.parent / "cache"))
    monkeypatch.setattr("porter.cli.build.find_toolkit", lambda explicit: TOOLKIT)
    porter("build", kernel, code=4)
    kernel.write_text(kernel.read_text() + "// UNPORTABLE\n")
    porter("build", kernel, code=3)


# --- sim

PTX = """\
.version 9.0
.target sm_90a
.address_size 64
.visible .entry scale(.param .u64 a, .param .f32 s, .param .u32 n)
{
  .reg .pred %p<2>; .reg .f32 %f<4>; .reg .b32 %r<6>; .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [a];
  ld.param.f32 %f1, [s];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mad.lo.s32 %r5, %r3, %r4, %r2;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra DONE;
  mul.wide.u32 %rd3, %r5, 4;
  add.s64 %rd4, %rd1, %rd3;
  ld.global.f32 %f2, [%rd4];
  mul.f32 %f3, %f2, %f1;
  st.global.f32 [%rd4], %f3;
DONE:
  ret;
}
"""


@pytest.fixture
def ptx(tmp_path):
    path = tmp_path / "scale.ptx"
    path.write_text(PTX)
    return path


def test_sim_runs_bare_ptx(ptx):
    document = porter_json("sim", ptx, "--grid", 2, "--arg", "f32[64]=iota", "--arg", "2.5", "--arg", 64)
    (output,) = document["outputs"]
    assert output["first"] == [2.5 * i for i in range(8)]
    assert document["status"] == "ok"
    assert document["opcodes"]["mul.f32"] == 2
    assert "2.5 5 7.5" in porter("sim", ptx, "--arg", "f32[32]=iota", "--arg", "2.5", "--arg", 32).stdout


def test_sim_findings_are_exit_code_5(ptx):
    result = porter("sim", ptx, "--grid", 2, "--arg", "f32[40]", "--arg", 1, "--arg", 64, code=5)
    assert "past the end of allocation" in result.stderr
    assert f"{ptx}:18" in result.stderr


def test_sim_budget_is_exit_code_6(ptx):
    args = ["--grid", 2, "--arg", "f32[64]", "--arg", 1, "--arg", 64]
    assert "PT5027" in porter("sim", ptx, "--budget", 3, *args, code=6).stderr


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--arg", "f31[4]"], "no number format f31"),
        (["--arg", "f32[4]=twos"], "no fill twos"),
        (["--arg", "some"], "is no number and no buffer"),
        (["--arg", 1], "1 given, but scale takes 3"),
        (["--grid", "0"], "is not X, X,Y or X,Y,Z"),
        (["--arg", "f32[4]", "--arg", 1, "--arg", "0.5"], "0.5 is no integer"),
        (["--kernel", "other"], "PT3006"),
    ],
)
def test_sim_options_that_are_wrong(ptx, args, text):
    assert text in porter("sim", ptx, *args, code=2).stderr


def test_sim_of_text_that_is_no_ptx(tmp_path):
    path = tmp_path / "x.ptx"
    path.write_text(PTX.replace("mul.f32 %f3, %f2", "mul.f32 %f3 %f2"))
    result = porter("sim", path, code=2)
    assert "PT5010" in result.stderr
    assert f"{path}:19" in result.stderr


# --- what can go wrong anywhere


@pytest.mark.parametrize("command", ["scan", "port", "build", "sim", "verify"])
@pytest.mark.parametrize("form", ["text", "json"])
def test_missing_file(command, form, tmp_path):
    result = porter("--format", form, command, tmp_path / "nowhere.cu", code=2)
    assert "PT0001" in result.output
    if form == "json":
        assert porter_json(command, tmp_path / "nowhere.cu", code=2)["kind"] == "error"


@pytest.mark.parametrize("command", ["scan", "port"])
def test_binary_file(command, tmp_path):
    path = tmp_path / "binary.cu"
    path.write_bytes(b"\x7fELF\0\0\0")
    assert "PT0002" in porter(command, path, code=2).stderr


@pytest.mark.parametrize("command", ["scan", "port"])
def test_other_kinds_of_file(command, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("text")
    assert "PT0003" in porter(command, path, code=2).stderr


@pytest.mark.parametrize("command", ["scan", "port"])
def test_python_files(command, tmp_path):
    path = tmp_path / "plain.py"
    path.write_text("def f():\n    return 1\n")
    assert "PT0010" in porter(command, path, code=2).stderr
    path.write_text("import cutlass.cute as cute\n@cute.kernel\ndef gemm(): pass\n")
    porter(command, path, code=0)
    path.write_text("def kernel(:\n")
    assert "PT1050" in porter(command, path, code=2).stderr


def test_empty_directory(tmp_path):
    assert "PT0009" in porter("scan", tmp_path, code=2).stderr
    assert "PT5001" in porter("verify", tmp_path, code=2).stderr


def test_missing_compiler(kernel, monkeypatch):
    result = porter("--toolkit", kernel.parent / "no-toolkit", "verify", kernel, "--original-only", code=2)
    assert "PT3002" in result.stderr


def test_an_unforeseen_exception_is_pt0099(engine, kernel, monkeypatch):
    def explodes(*args):
        raise RuntimeError("boom")

    monkeypatch.setattr("porter.passes.embedded.port_sources", explodes)
    result = porter("port", kernel, code=2)
    assert "PT0099" in result.stderr
    assert "RuntimeError: boom" in result.stderr
    from click.testing import CliRunner

    from porter.cli.main import main

    verbose = CliRunner().invoke(main, ["-v", "port", str(kernel)])
    assert "Traceback" in verbose.stderr


def test_colour_only_where_asked_for(tmp_path):
    assert "\x1b[" not in porter("explain", "PT0001").output
    assert "\x1b[" in porter("--color", "always", "explain", "PT0001").output
    assert "\x1b[" not in porter("--color", "never", "explain", "PT0001").output
    assert "\x1b[" not in porter("explain", "PT0001", env={"NO_COLOR": "1"}).output


def test_exit_codes_are_those_of_the_table():
    assert [int(c) for c in ExitCode] == list(range(7))
