# SPDX-License-Identifier: Apache-2.0
"""The whole corpus on a Hopper GPU: originals natively, ports emulated, in both modes; and the simulator's exact
arithmetic against the GPU's bits. Writes one JSON document.

    python scripts/gpu_corpus.py --output docs/results/h200.json
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from porter.cli.porting import plan_of
from porter.diagnostics import PorterError
from porter.verify.backends import SimBackend
from porter.verify.builder import ORIGINAL_ARCH, PORT_ARCH, PortPlan, ToolkitBuilder, materialize
from porter.verify.case import Case, cases_of, load_case
from porter.verify.gpu.backend import GpuBackend, make_gpu_backend
from porter.verify.gpu.emulation import Lowerer
from porter.verify.gpu.selfcheck import compare_bits
from porter.verify.problem import bind
from porter.verify.runner import VerifyOptions, verify
from porter.verify.settings import GpuOptions, SimOptions

LARGE = 2048


def large_sizes(case: Case) -> dict[str, Any]:
    """The case with every one of its dimensions at least 2048."""
    return {name: max(LARGE, int(value)) for name, value in case.sizes.items() if name in ("M", "N", "K")}


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, default=Path("corpus"))
    parser.add_argument("--output", type=Path)
    parser.add_argument("--modes", default="deferred,eager")
    parser.add_argument("--no-large", action="store_true")
    parser.add_argument("--no-simulator", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--limit", type=float, default=60, help="seconds for one launch")
    options = parser.parse_args()
    began = time.perf_counter()
    builder = ToolkitBuilder()
    cases: list[tuple[Case, PortPlan | None]] = []
    for path in cases_of(options.corpus):
        case = load_case(path)
        if options.only and case.name not in options.only.split(","):
            continue
        plan, notes = plan_of(case.kernel, None)
        if plan is None:
            print(f"{case.name}: no port: {'; '.join(map(str, notes))}")
        cases.append((case, plan))
    sizes = [lambda case: {}, *([] if options.no_large else [large_sizes])]
    prebuild(cases, builder, sizes)
    print(f"built in {time.perf_counter() - began:.0f} s", flush=True)
    document: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": " ".join(["python", *sys.argv]),
        "rows": [],
        "bits": [],
    }
    for mode in options.modes.split(","):
        settings = SimOptions(gpu=GpuOptions(seconds=options.limit, mode=mode))
        backend = make_gpu_backend("hopper", settings)
        assert isinstance(backend, GpuBackend)
        info = backend.gpu.info()
        document["device"] = {"name": info.name, "capability": info.capability, "driver": info.driver}
        document["toolkit"] = builder.toolkit.build
        for case, plan in cases:
            for choose_sizes in sizes:
                families = ("integers", "normal") if choose_sizes is large_sizes else None
                run_options = VerifyOptions(families, (choose_sizes(case),))
                try:
                    result = verify(case, plan, builder, backend, run_options)
                except PorterError as error:
                    print(f"{mode:9}{case.name:18} {error}", flush=True)
                    document["rows"].append({"case": case.name, "mode": mode, "verdict": "error", "why": str(error)})
                    continue
                for row in result.rows:
                    entry = {
                        "case": row.case, "sizes": dict(row.sizes), "family": row.family, "mode": mode,
                        "verdict": row.verdict.value,
                        "ran": {r.program: r.backend for r in row.runs},
                        "same_bits": all(c.ok for c in row.between) if row.between else None,
                        "seconds": {r.program: round(r.seconds, 3) for r in row.runs},
                        "why": [str(d) + (f"\n{d.detail}" if d.detail else "") for d in row.diagnostics],
                    }  # fmt: skip
                    document["rows"].append(entry)
                    if row.verdict.value != "clean":
                        print(f"{mode:9}{row.case:18}{row.family:10}{row.verdict.value} {entry['why']}", flush=True)
                done = [r for r in document["rows"] if r["case"] == case.name and r["mode"] == mode]
                clean = sum(r["verdict"] == "clean" for r in done)
                print(f"{mode:9}{case.name:18}{clean}/{len(done)} clean, {result.seconds:.1f} s", flush=True)
        backend.gpu.close()
    if not options.no_simulator:
        backend = make_gpu_backend("gpu", SimOptions(gpu=GpuOptions(seconds=60)))
        simulator = SimBackend(SimOptions(arithmetic="exact"))
        for case, _ in cases:
            try:
                rows = compare_bits(case, {}, None, builder, simulator, backend)
            except PorterError as error:
                print(f"bits     {case.name:18} {error}", flush=True)
                continue
            for bits in rows:
                document["bits"].append({**vars(bits), "sizes": dict(bits.sizes), "verdict": bits.verdict.value})
            print(f"bits     {case.name:18}" + ", ".join(f"{r.family} {r.different}/{r.elements}{r.problem}" for r in rows),
                  flush=True)  # fmt: skip
    document["seconds"] = round(time.perf_counter() - began, 1)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(document, indent=1) + "\n")
    found = [*document["rows"], *document["bits"]]
    bad = [r for r in found if r["verdict"] != "clean"]
    print(f"{len(found) - len(bad)} of {len(found)} clean, {document['seconds']} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
