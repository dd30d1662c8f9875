# SPDX-License-Identifier: Apache-2.0
"""Sample instructions on a Hopper GPU: a digest of what each wrote, for the simulator to be compared with.

    python scripts/gpu_instructions.py --output docs/results/h200-instructions.json

Needs ptxas on the path, numpy and cuda-bindings. `tests/sim/test_instruction_words.py` makes the comparison.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import hashlib
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from porter.ptx.inline import parse_template
from porter.ptx.table import FORMS, check

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from instructions.samples import REGISTERS, instructions, opcodes
from instructions.trial_inputs import VALUES, input_bytes
from instructions.trials import ROW, Trial, comparable, trial

TARGET = "sm_90a"
_ENTRY = ".visible .entry k("
_CHUNK = 100


def texts() -> list[str]:
    """Samples that Hopper has and whose results do not depend on the machine."""
    found: dict[str, None] = {}
    for form in FORMS:
        for opcode in opcodes(form):
            for text in instructions(form, opcode):
                if comparable(text):
                    ins = parse_template((REGISTERS + text).replace("%", "%%")).instructions()[-1]
                    if check(ins, TARGET) is None:
                        found[text] = None
    return list(found)


def assemble(trials: list[Trial], folder: Path, number: int) -> list[tuple[Path, list[int]]]:
    """Cubins with kernels k0, k1, ...; what ptxas refuses together is assembled one by one."""

    def one(indices: list[int], name: str) -> Path | None:
        head = trials[indices[0]].ptx.split(_ENTRY)[0]
        bodies = [f".visible .entry k{i}(" + trials[i].ptx.split(_ENTRY)[1] for i in indices]
        source, cubin = folder / f"{name}.ptx", folder / f"{name}.cubin"
        source.write_text(head + "\n".join(bodies))
        run = subprocess.run(["ptxas", f"-arch={TARGET}", source, "-o", cubin], capture_output=True)
        return cubin if run.returncode == 0 else None

    every = list(range(len(trials)))
    whole = one(every, f"{number}")
    if whole is not None:
        return [(whole, every)]
    single = [(one([i], f"{number}_{i}"), [i]) for i in every]
    return [(cubin, indices) for cubin, indices in single if cubin is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    from cuda.bindings import driver  # type: ignore[import-untyped,unused-ignore]

    def call(result: tuple[Any, ...]) -> Any:
        if int(result[0]):
            raise SystemExit(f"the driver says {result[0].name}")
        return result[1] if len(result) == 2 else None

    call(driver.cuInit(0))
    device = call(driver.cuDeviceGet(0))
    call(driver.cuCtxSetCurrent(call(driver.cuDevicePrimaryCtxRetain(device))))
    data = input_bytes()
    source, size = call(driver.cuMemAlloc(len(data) + (1 << 20))), VALUES * ROW
    out = call(driver.cuMemAlloc(size + 4096))
    call(driver.cuMemcpyHtoD(source, data, len(data)))
    samples = texts()
    chunks = [samples[i : i + _CHUNK] for i in range(0, len(samples), _CHUNK)]
    words: dict[str, str] = {}
    addresses = (ctypes.c_uint64 * 2)(int(source), int(out))
    block = (ctypes.c_uint8 * 64)()
    pointers = (ctypes.c_void_p * 3)(
        ctypes.addressof(addresses), ctypes.addressof(addresses) + 8, ctypes.addressof(block)
    )
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor() as pool:
        trials = [[trial(text, TARGET) for text in chunk] for chunk in chunks]
        built = pool.map(assemble, trials, [Path(name)] * len(chunks), range(len(chunks)))
        for chunk, made, cubins in zip(chunks, trials, built, strict=True):
            for cubin, indices in cubins:
                module = call(driver.cuModuleLoadData(cubin.read_bytes()))
                for i in indices:
                    kernel = call(driver.cuModuleGetFunction(module, f"k{i}".encode()))
                    call(driver.cuMemsetD8(out, 0, size))
                    shape = (made[i].blocks, 1, 1, made[i].threads, 1, 1)
                    call(driver.cuLaunchKernel(kernel, *shape, 0, 0, ctypes.addressof(pointers), 0))
                    call(driver.cuCtxSynchronize())
                    result = ctypes.create_string_buffer(size)
                    call(driver.cuMemcpyDtoH(ctypes.addressof(result), out, size))
                    words[chunk[i]] = hashlib.sha256(result.raw).hexdigest()[:16]
    gpu = call(driver.cuDeviceGetName(128, device)).split(b"\0")[0].decode()
    document = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "device": gpu,
        "driver": call(driver.cuDriverGetVersion()),
        "command": "python scripts/gpu_instructions.py --output docs/results/h200-instructions.json",
        "inputs": hashlib.sha256(data).hexdigest(),
        "words": words,
    }
    arguments.output.write_text(json.dumps(document, indent=0) + "\n", "utf-8")
    print(f"{gpu}: {len(words)} of {len(samples)} instructions")


if __name__ == "__main__":
    main()
