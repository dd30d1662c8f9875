# SPDX-License-Identifier: Apache-2.0
"""Mistakes planted in a port, run on a Hopper GPU in both modes: which mode sees which.

    python scripts/gpu_mutants.py --output docs/results/h200-mutants.json
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from porter.cli.porting import plan_of
from porter.diagnostics import PorterError
from porter.verify.builder import PORT_ARCH, PortPlan, ToolkitBuilder, materialize
from porter.verify.case import cases_of, load_case
from porter.verify.gpu.backend import GpuBackend, make_gpu_backend
from porter.verify.gpu.emulation import Lowerer
from porter.verify.problem import bind
from porter.verify.runner import VerifyOptions, verify
from porter.verify.settings import GpuOptions, SimOptions

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "verify"))
from planted_mistakes import KERNEL, MISTAKES


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, default=Path("corpus"))
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    builder = ToolkitBuilder()
    case = next(load_case(p) for p in cases_of(options.corpus) if p.parent.name == KERNEL)
    plan, _ = plan_of(case.kernel, None)
    assert plan is not None
    text = materialize(plan, case.kernel).read_text()
    directory = Path(tempfile.mkdtemp(prefix="porter-mutants-"))
    plans: list[tuple[str, PortPlan]] = [("none", plan)]
    for name, pattern, replacement in MISTAKES:
        wrong, count = re.subn(pattern, replacement, text)
        if not count:
            print(f"{name}: the port holds nothing like {pattern}")
            continue
        path = directory / name / case.kernel.name
        path.parent.mkdir()
        path.write_text(wrong)
        plans.append((name, PortPlan(source=path)))
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
    document = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": " ".join(["python", *sys.argv]),
        "device": {"name": info.name, "driver": info.driver},
        "kernel": KERNEL,
        "rows": rows,
    }
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(document, indent=1) + "\n")
    missed = [r["mistake"] for r in rows[1:] if "error" not in (r["eager"], r["deferred"])]
    right = rows[0]["eager"] == rows[0]["deferred"] == "clean"
    caught = len(rows) - 1 - len(missed)
    print(f"{caught} of {len(rows) - 1} caught; missed: {missed or 'none'}; unchanged port clean: {right}")
    return 0 if right and not missed else 1


if __name__ == "__main__":
    sys.exit(main())
