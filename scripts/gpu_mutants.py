# SPDX-License-Identifier: Apache-2.0
"""Mistakes planted in a port, and in programs for SM100 with their own checks, run on a Hopper GPU in both modes:
which mode sees which.

    python scripts/gpu_mutants.py --output docs/results/h200-mutants.json
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from porter.build.port_plan import PortPlan, materialize
from porter.cli.context import current
from porter.cli.making import Ports
from porter.diagnostics import PorterError
from porter.verify.builder import PORT_ARCH, ToolkitBuilder
from porter.verify.case import cases_of, load_case
from porter.verify.gpu.backend import GpuBackend, make_gpu_backend
from porter.verify.gpu.emulation import Lowerer
from porter.verify.problem import bind
from porter.verify.rows import as_rows
from porter.verify.runner import VerifyOptions, verify
from porter.verify.settings import GpuOptions, SimOptions

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "verify"))
from planted_mistakes import KERNEL, MISTAKES, planted

PROGRAMS = [
    ("gpu_handover", "smem-freed-before-its-products-are-done", r"commit(\(s\.empty\[stage\]\);)", r"arrive\1"),
    ("gpu_handover", "accumulator-handed-over-early", r"commit(\(s\.accumulator_full\[which\]\);)", r"arrive\1"),
    ("gpu_handover", "accumulator-empty-barrier-ignored", r"wait\(s\.accumulator_empty[^;]*;", ""),
    ("gpu_columns", "columns-never-given-back", r'asm volatile\("tcgen05\.dealloc[^;]*;[^;]*;', ""),
]
"""Program beside this script, mistake, and what it replaces."""


def run_program(path: Path, mode: str) -> tuple[str, list[str]]:
    """Verdict of a program's own check, and what it said."""
    try:
        settings = {**os.environ, "PORTER_MODE": mode, "PORTER_COLUMNS": "sm"}
        done = subprocess.run([path], env=settings, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return "error", ["it did not end within 60 s"]
    return "error" if done.returncode else "clean", [*done.stdout.splitlines(), *done.stderr.splitlines()]


def programs(directory: Path) -> list[dict[str, Any]]:
    """Both modes of each program, as it is and with each mistake."""
    wanted = [(name, "none", "", "") for name in dict.fromkeys(p[0] for p in PROGRAMS)] + PROGRAMS

    def build(item: tuple[str, str, str, str]) -> Path:
        name, mistake, pattern, replacement = item
        text = (Path(__file__).parent / f"{name}.cu").read_text()
        if pattern:
            text, count = re.subn(pattern, replacement, text)
            assert count, f"{name} holds nothing like {pattern}"
        source = directory / f"{name}-{mistake}.cu"
        source.write_text(text)
        flags = ["-std=c++17", "-lineinfo", "-arch=sm_100a"]
        command = ["porter", "nvcc", *flags, str(source), "-o", str(source.with_suffix(""))]
        subprocess.run(command, check=True, capture_output=True)
        return source.with_suffix("")

    with ThreadPoolExecutor(8) as pool:
        built = list(pool.map(build, wanted))
    rows: list[dict[str, Any]] = []
    for (name, mistake, _, _), path in zip(wanted, built, strict=True):
        row: dict[str, Any] = {"program": name, "mistake": mistake}
        for mode in ("eager", "deferred"):
            row[mode], row[f"{mode}_why"] = run_program(path, mode)
            print(f"{mistake:30} {mode:9} {row[mode]:8} {'; '.join(row[f'{mode}_why'])[:260]}", flush=True)
        rows.append(row)
    return rows


def main() -> int:
    os.environ["PORTER_TRUST"] = "1"  # the corpus is our own
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, default=Path("corpus"))
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    builder = ToolkitBuilder()
    case = next(load_case(p) for p in cases_of(options.corpus) if p.parent.name == KERNEL)
    plan, _ = Ports(current()).of_file(case.kernel, None)
    assert plan is not None
    directory = Path(tempfile.mkdtemp(prefix="porter-mutants-"))
    plans: list[tuple[str, PortPlan]] = [("none", plan)]
    for name, pattern, replacement in MISTAKES:
        plan = PortPlan(files=planted(plans[0][1].files, pattern, replacement))
        plans.append((name, PortPlan(source=materialize(plan, case.kernel, directory / name))))
    lowerer = Lowerer(builder.toolkit)
    problem = bind(case, {})

    def build(item: tuple[str, PortPlan]) -> None:
        kernel = builder.build(problem, materialize(item[1], case.kernel), PORT_ARCH)
        lowerer.emulated(kernel.module, kernel.entry[:80])

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(build, plans))
    rows: list[dict[str, Any]] = []
    for name, mutant in plans:
        row: dict[str, Any] = {"mistake": name}
        for mode in ("eager", "deferred"):
            backend = make_gpu_backend("hopper", SimOptions(gpu=GpuOptions(seconds=4, mode=mode)))
            assert isinstance(backend, GpuBackend)
            info = backend.gpu.info()
            try:
                found = verify(case, mutant, builder, backend, VerifyOptions(("integers",), ({},))).rows[0]
                row[mode] = found.verdict.value
                why = [f.message.splitlines()[0] + (f" ({f.where})" if f.where else "")
                       for r in found.runs for f in r.findings]  # fmt: skip
                row[f"{mode}_why"] = why or [str(d) for d in found.diagnostics]
            except PorterError as error:
                row[mode], row[f"{mode}_why"] = "error", [str(error)]
            backend.gpu.close()
            print(f"{name:30} {mode:9} {row[mode]:8} {'; '.join(row[f'{mode}_why'])[:260]}", flush=True)
        rows.append(row)
    rows += programs(directory)
    document = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": " ".join(["python", *sys.argv]),
        "device": {"name": info.name, "driver": info.driver},
        "kernel": KERNEL,
        "rows": rows,
    }
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(as_rows(document))
    mistaken = [r for r in rows if r["mistake"] != "none"]
    missed = [r["mistake"] for r in mistaken if "error" not in (r["eager"], r["deferred"])]
    right = all(r["eager"] == r["deferred"] == "clean" for r in rows if r["mistake"] == "none")
    caught = len(mistaken) - len(missed)
    print(f"{caught} of {len(mistaken)} caught; missed: {missed or 'none'}; unchanged ones clean: {right}")
    return 0 if right and not missed else 1


if __name__ == "__main__":
    sys.exit(main())
