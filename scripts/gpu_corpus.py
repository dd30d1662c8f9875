# SPDX-License-Identifier: Apache-2.0
"""The whole corpus on a Hopper GPU: originals natively, ports emulated, in both modes; and the simulator's exact
arithmetic against the GPU's bits. Writes one JSON document.

    python scripts/gpu_corpus.py --output docs/results/h200.json

The simulator may have run before, on a machine without a GPU, so that the visit to the GPU is short:

    porter selfcheck corpus --simulate simulated.json
    python scripts/gpu_corpus.py --simulated simulated.json --output docs/results/h200.json

So may the compiler of CuTe DSL, for a machine that has none:

    python scripts/gpu_corpus.py --compile dsl.pickle
    python scripts/gpu_corpus.py --compiled dsl.pickle --output docs/results/h200.json
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pickle
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import porter.verify.builder
from porter.build.port_plan import PortPlan, materialize
from porter.cli.context import current
from porter.cli.making import Ports
from porter.diagnostics import PorterError
from porter.verify.backends import SimBackend
from porter.verify.builder import ORIGINAL_ARCH, PORT_ARCH, ToolkitBuilder
from porter.verify.case import Case, cases_of, load_case
from porter.verify.gpu.backend import GpuBackend, make_gpu_backend
from porter.verify.gpu.emulation import Lowerer
from porter.verify.gpu.selfcheck import compare_bits, read_simulated
from porter.verify.inputs import choose
from porter.verify.problem import Problem, bind
from porter.verify.rows import as_rows
from porter.verify.runner import VerifyOptions, verify
from porter.verify.settings import GpuOptions, SimOptions

LARGE = 2048


def large_sizes(case: Case) -> dict[str, Any]:
    """The case with every one of its dimensions at least 2048, as far up as its tiles need."""
    # A persistent kernel with a few CTAs would leave most of the GPU idle.
    sizes: dict[str, Any] = {"CTAS": 128} if "CTAS" in case.sizes else {}
    for name in [n for n in ("M", "N", "K") if n in case.sizes]:
        for value in (LARGE, 2112, 2304, 2560, 3072):
            try:
                bind(case, {**sizes, name: max(value, int(case.sizes[name]))})
            except PorterError:
                continue
            sizes[name] = max(value, int(case.sizes[name]))
            break
    return sizes


def prebuild(cases: list[tuple[Case, PortPlan | None]], builder: ToolkitBuilder, sizes: list[Any]) -> None:
    """Fill the cache with many compilers at once."""
    lowerer = Lowerer(builder.toolkit)

    def one(job: tuple[Case, PortPlan | None, Any]) -> None:
        case, plan, chosen = job
        try:
            problem = bind(case, chosen(case))
            builder.build(problem, case.kernel, ORIGINAL_ARCH)
            if plan is not None:
                port = builder.build(problem, materialize(plan, case.kernel), PORT_ARCH)
                lowerer.emulated(port.module, port.entry[:80])
        except PorterError as error:
            print(f"{case.name}: {error}", file=sys.stderr)

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(one, [(c, p, s) for c, p in cases for s in sizes]))


Key = tuple[str, str, str]


def key_of(problem: Problem, arch: str) -> Key:
    """What a compilation of a kernel in CuTe DSL depends on, in one state of the repository."""
    return problem.case.name, json.dumps(dict(problem.sizes), sort_keys=True, default=str), arch


def compiled_elsewhere(path: Path) -> Callable[[Problem, Path, str], Any]:
    """What `porter.verify.dsl.compile_case` returned on the machine that wrote `path`."""
    table: dict[Key, Any] = pickle.loads(path.read_bytes())

    def found(problem: Problem, source: Path, arch: str) -> Any:
        return table[key_of(problem, arch)]

    return found


def compile_all(cases: list[tuple[Case, PortPlan | None]], sizes: list[Any], path: Path) -> None:
    """Write what the compiler of CuTe DSL makes of all cases and their ports."""
    table: dict[Key, Any] = {}
    for case, plan in cases:
        for chosen in sizes if case.dsl is not None and plan is not None else ():
            problem = bind(case, chosen(case))
            for source, arch in ((case.kernel, ORIGINAL_ARCH), (materialize(plan, case.kernel), PORT_ARCH)):
                table[key_of(problem, arch)] = porter.verify.builder.compile_case(problem, source, arch)
    path.write_bytes(pickle.dumps(table))
    print(f"{len(table)} compiled")


Job = tuple[str, Case, PortPlan | None, bool, float]


def one_job(job: Job) -> tuple[list[dict[str, Any]], dict[str, Any] | None, float]:
    """One case at one size in one mode: (rows, the device, seconds)."""
    mode, case, plan, large, limit = job
    began = time.perf_counter()
    backend = make_gpu_backend("hopper", SimOptions(gpu=GpuOptions(seconds=limit, mode=mode)))  # type: ignore[arg-type]
    assert isinstance(backend, GpuBackend)
    info = backend.gpu.info()
    device = {"name": info.name, "capability": info.capability, "driver": info.driver}
    entries: list[dict[str, Any]] = []
    try:
        sizes = large_sizes(case) if large else {}
        # Hopper keeps so few bits of 8-bit floats that no bound tells a wrong tile at this size.
        normal = not bind(case, sizes).operand.name.startswith("f8")
        families: tuple[str, ...] | None = None
        if large:
            families = ("integers", "normal") if normal else ("integers",)
            if not choose(["integers"], bind(case, sizes)):
                families = ("normal",)
        result = verify(case, plan, ToolkitBuilder(), backend, VerifyOptions(families, (sizes,)))
        for row in result.rows:
            why = [str(d) + (f"\n{d.detail}" if d.detail else "") for d in row.diagnostics]
            entries.append({
                "case": row.case, "sizes": dict(row.sizes), "family": row.family, "mode": mode,
                "verdict": row.verdict.value, "ran": {r.program: r.backend for r in row.runs},
                "same_bits": all(c.ok for c in row.between) if row.between else None,
                "seconds": {r.program: round(r.seconds, 3) for r in row.runs}, "why": why,
            })  # fmt: skip
    except PorterError as error:
        entries.append({"case": case.name, "mode": mode, "verdict": "error", "why": [str(error)]})
    finally:
        backend.gpu.close()
    return entries, device, time.perf_counter() - began


def bits_job(job: tuple[Case, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The original of one case on the GPU and in the simulator: all families at the case's size."""
    case, known = job
    backend = make_gpu_backend("gpu", SimOptions(gpu=GpuOptions(seconds=60)))
    assert isinstance(backend, GpuBackend)
    simulator = SimBackend(SimOptions(arithmetic="exact"))
    try:
        rows = compare_bits(case, {}, None, ToolkitBuilder(), simulator, backend, known=read_simulated(known))
        return [
            {**vars(r), "sizes": dict(r.sizes), "outputs": dict(r.outputs), "verdict": r.verdict.value} for r in rows
        ]
    except PorterError as error:
        why = {"different": 0, "elements": 0, "verdict": "error", "problem": str(error)}
        return [{"case": case.name, "family": "", **why}]
    finally:
        backend.gpu.close()


def main() -> int:
    os.environ["PORTER_TRUST"] = "1"  # the corpus is our own
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, default=Path("corpus"))
    parser.add_argument("--output", type=Path)
    parser.add_argument("--modes", default="deferred,eager")
    parser.add_argument("--no-large", action="store_true")
    parser.add_argument("--no-simulator", action="store_true")
    parser.add_argument("--simulated", type=Path, help="from `porter selfcheck --simulate`")
    parser.add_argument("--compile", type=Path, help="only compile kernels in CuTe DSL, into this file")
    parser.add_argument("--compiled", type=Path, help="kernels in CuTe DSL from such a file")
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--only", default="")
    parser.add_argument("--limit", type=float, default=60, help="seconds for one launch")
    options = parser.parse_args()
    began = time.perf_counter()
    if options.compiled:
        porter.verify.builder.compile_case = compiled_elsewhere(options.compiled)
    builder = ToolkitBuilder()
    cases: list[tuple[Case, PortPlan | None]] = []
    for path in cases_of(options.corpus):
        case = load_case(path)
        if options.only and case.name not in options.only.split(","):
            continue
        plan, notes = Ports(current()).of_file(case.kernel, None)
        if plan is None:
            print(f"{case.name}: no port: {'; '.join(map(str, notes))}")
        cases.append((case, plan))
    sizes = [lambda case: {}, *([] if options.no_large else [large_sizes])]
    if options.compile:
        compile_all(cases, sizes, options.compile)
        return 0
    prebuild(cases, builder, sizes)
    print(f"built in {time.perf_counter() - began:.0f} s", flush=True)
    document: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": " ".join(["python", *sys.argv]),
        "rows": [],
        "bits": [],
    }
    jobs = [
        (mode, case, plan, large, options.limit)
        for large in ([False] if options.no_large else [True, False])
        for mode in options.modes.split(",")
        for case, plan in cases
    ]
    with ProcessPoolExecutor(options.jobs) as pool:
        for (mode, case, _, large, _), (entries, device, seconds) in zip(jobs, pool.map(one_job, jobs), strict=True):
            document["device"] = device or document.get("device")
            document["rows"] += entries
            clean = sum(r["verdict"] == "clean" for r in entries)
            size = "large" if large else "case"
            print(f"{mode:9}{size:6}{case.name:18}{clean}/{len(entries)} clean, {seconds:.1f} s", flush=True)
            for entry in entries:
                if entry["verdict"] != "clean":
                    print(f"    {entry.get('family', '')} {entry['verdict']} {entry['why']}", flush=True)
    document["toolkit"] = builder.toolkit.build
    if not options.no_simulator:
        known = json.loads(options.simulated.read_text())["simulated"] if options.simulated else []
        jobs_of_bits = [(case, known) for case, _ in cases]
        with ProcessPoolExecutor(options.jobs) as pool:
            for (case, _), found in zip(jobs_of_bits, pool.map(bits_job, jobs_of_bits), strict=True):
                document["bits"] += found
                counts = ", ".join(f"{r['family']} {r['different']}/{r['elements']} {r['problem']}" for r in found)
                print(f"bits     {case.name:18}{counts}", flush=True)
    document["seconds"] = round(time.perf_counter() - began, 1)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(as_rows(document))
    found = [*document["rows"], *document["bits"]]
    bad = [r for r in found if r["verdict"] not in ("clean", "review")]
    print(f"{len(found) - len(bad)} of {len(found)} clean or for review, {document['seconds']} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
