# SPDX-License-Identifier: Apache-2.0
"""Turns captured launches into recorded cases: one folder each, with `case.yaml`, the module, and the tensors; where
the kernel is known as PTX, also `launch.yaml`."""

from __future__ import annotations

import os
import re
import shutil
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from porter.build.entry import function_name
from porter.diagnostics import Code, PorterError
from porter.ptx.parser import PtxSyntaxError, parse_module
from porter.ptx.tensormap import TensorMap, TensorMapInterleave, TensorMapL2Promotion, TensorMapSwizzle
from porter.verify.arguments import MapValue, Pointer
from porter.verify.arithmetic import APPROXIMATE
from porter.verify.bound_maps import MAP_TYPES
from porter.verify.capture.events import COOPERATIVE, Block, Captured, CapturedLaunch, Refusal
from porter.verify.capture.modules import KernelCode, Modules
from porter.verify.capture.simulated import TABLE_BYTES
from porter.verify.capture.types import parameter_types, pointee
from porter.verify.case import CASE_FILE, LAUNCH_FILE, load_case
from porter.verify.dtypes import DTYPES
from porter.verify.layout import Area, Layout
from porter.verify.problem import bind
from porter.verify.program.kernel_facts import kernel_facts

_NAME_LENGTH = 40
_HEADER = "# SPDX-License-Identifier: Apache-2.0\n"


@dataclass(frozen=True)
class Source:
    """The CUDA C++ that kernels were compiled from, as the user names it."""

    path: Path | None = None
    include_dirs: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Written:
    """The case files written, and what was left out."""

    cases: tuple[Path, ...]
    refusals: tuple[Refusal, ...]


def write_cases(
    captured: Captured,
    output: Path,
    facts: Mapping[str, Any],
    source: Source | None = None,
    chip: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Written:
    """One case for each launch that changed memory. `facts` say where they come from; `chip` is 90 for Hopper, by
    default that of the device.

    Raises:
        PorterError: WRITE_FAILED; WOULD_OVERWRITE if the folder of a case is there already.
    """
    capability = captured.device.get("capability")
    chip = chip or (capability[0] * 10 + capability[1] if capability else 90)
    modules = Modules(captured.images)
    cases: list[Path] = []
    refusals = list(captured.refusals)
    for launch in captured.launches:
        if progress is not None:
            progress(function_name(launch.kernel))
        if not any(b.after for b in launch.blocks):
            refusals.append(Refusal("nothing", launch.kernel))
            continue
        code = (Modules([launch.image]) if launch.image else modules).find(launch.kernel, chip)
        if code is None:
            refusals.append(Refusal("module", launch.kernel))
            continue
        folder = output / f"{len(cases) + 1:03}_{function_name(launch.kernel)[:_NAME_LENGTH]}"
        if folder.exists():
            reason = "an earlier capture lies there"
            raise PorterError(Code.WOULD_OVERWRITE, path=folder, reason=reason)
        try:
            cases.append(_Case(launch, code, folder, source or Source()).write(facts, captured.device))
            bind(load_case(cases[-1]))
        except PorterError as error:
            if error.diagnostic.code is Code.WRITE_FAILED:
                raise
            refusals.append(Refusal("layout", launch.kernel, error.diagnostic.message))
            shutil.rmtree(folder, ignore_errors=True)
            cases = [c for c in cases if c.parent != folder]
        except _NotACase as problem:
            refusals.append(Refusal("layout", launch.kernel, str(problem)))
            shutil.rmtree(folder, ignore_errors=True)
    return Written(tuple(cases), tuple(dict.fromkeys(refusals)))


def _dump(path: Path, fields: Mapping[str, Any]) -> None:
    text = yaml.safe_dump(fields, sort_keys=False, default_flow_style=None, width=110, allow_unicode=True)
    path.write_text(_HEADER + text, "utf-8")


def _as_launch(case: Mapping[str, Any]) -> dict[str, Any]:
    """A recorded case as a launch file."""
    tensors = {}
    for name, fields in case["tensors"].items():
        tensors[name] = {k: fields[k] for k in ("dtype", "shape")} | {"init": {"file": fields["before"]}}
        tensors[name] |= {"expected": fields["after"]} if "after" in fields else {}
        tensors[name] |= {"contains": fields["contains"]} if "contains" in fields else {}
    kept = {k: case[k] for k in ("tensor_maps", "params") if k in case}
    head = {"version": 1, "ptx": case["kernel"], "entry": case["entry"], "launch": case["launch"]}
    return {**head, "tensors": tensors, **kept, "recorded": case["reference"]["recorded"]}


class _NotACase(Exception):
    """Why a launch cannot be said as a case."""


class _Case:
    """One launch on its way to a case."""

    def __init__(self, launch: CapturedLaunch, code: KernelCode, folder: Path, source: Source) -> None:
        self.launch, self.code, self.folder, self.source = launch, code, folder, source
        self.names = _names(launch)
        self.layout = Layout([Area(n, b.address, b.size) for n, b in self.names.items()], lambda number: f"map{number}")
        self.types = parameter_types(launch.kernel)
        self.params = [self.layout.contents(p) for p in launch.params]
        self.inside = {
            name: self.layout.contents(block.before.read_bytes())
            for name, block in self.names.items()
            if block.size <= TABLE_BYTES and block.after is None
        }

    def write(self, facts: Mapping[str, Any], device: Mapping[str, Any]) -> Path:
        try:
            self.folder.mkdir(parents=True)
            case: dict[str, Any] = {"version": 1, **self._kernel()}
            case["sizes"] = {}
            case["tensors"] = {name: self._tensor(name, block) for name, block in self.names.items()}
            case |= self._maps()
            case["launch"] = self._launch()
            case["params"] = [self._param(i) for i in range(len(self.params))]
            case["reference"] = {"recorded": {"arch": self.code.arch, **facts, **self._attributes()}}
            if tolerance := self._tolerance(device):
                case["tolerance"] = tolerance
            path = self.folder / CASE_FILE
            _dump(path, case)
            if self.code.ptx is not None:
                _dump(self.folder / LAUNCH_FILE, _as_launch(case))
        except OSError as error:
            raise PorterError(Code.WRITE_FAILED, path=self.folder, reason=error.strerror) from None
        return path

    def _kernel(self) -> dict[str, Any]:
        name = "kernel.ptx" if self.code.ptx is not None else "kernel.cubin"
        data = self.code.cubin if self.code.ptx is None else self.code.ptx.encode("utf-8", "surrogateescape")
        (self.folder / name).write_bytes(data or b"")
        found: dict[str, Any] = {"kernel": name, "entry": self.launch.kernel}
        if self.source.path is not None:
            found["source"] = os.path.relpath(self.source.path.resolve(), self.folder.resolve())
        if self.source.include_dirs:
            found["include_dirs"] = [
                os.path.relpath(d.resolve(), self.folder.resolve()) for d in self.source.include_dirs
            ]
        return found

    def _tensor(self, name: str, block: Block) -> dict[str, Any]:
        dtype = self._dtype(name)
        before = self.folder / f"{name}.before.bin"
        shutil.copyfile(block.before, before)
        found: dict[str, Any] = {
            "dtype": dtype,
            "shape": self._shape(name, block.size, dtype),
            "role": "inout" if block.after else "input",
            "before": before.name,
        }
        if block.after:
            after = self.folder / f"{name}.after.bin"
            shutil.copyfile(block.after, after)
            found["after"] = after.name
        if self.inside.get(name):
            found["contains"] = [_contained(at, what) for at, what in self.inside[name]]
        return found

    def _maps_of(self, tensor: str) -> list[TensorMap]:
        return [map_ for owner, map_ in self.layout.maps.values() if owner == tensor]

    def _dtype(self, name: str) -> str:
        """Of the tensor maps, if they agree; else what the kernel's parameter points to; else bytes."""
        found = {_map_dtype(m) for m in self._maps_of(name)}
        if not found:
            for i, contents in enumerate(self.params):
                if i < len(self.types) and any(at == 0 and what == Pointer(name) for at, what in contents):
                    found.add(pointee(self.types[i]) or "u8")
        dtype = found.pop() if len(found) == 1 else "u8"
        dtype = {"tf32": "f32", "f32_ftz": "f32", "tf32_ftz": "f32"}.get(dtype, dtype)
        if dtype not in DTYPES:
            return "u8"
        return "u8" if self.names[name].size % DTYPES[dtype].itemsize else dtype

    def _shape(self, name: str, size: int, dtype: str) -> list[int]:
        """Of the tensor map, if there is one that holds everything in order; else one long row."""
        item = DTYPES[dtype].itemsize
        for map_ in self._maps_of(name):
            dense, strides = item, []
            for extent in map_.sizes:
                strides.append(dense)
                dense *= extent
            if map_.address == 0 and dense == size and tuple(strides[1:]) == map_.strides:
                return list(map_.sizes[::-1])
        return [size // item]

    def _maps(self) -> dict[str, Any]:
        maps = {name: self._map(owner, map_) for name, (owner, map_) in self.layout.maps.items()}
        return {"tensor_maps": maps} if maps else {}

    def _map(self, tensor: str, map_: TensorMap) -> dict[str, Any]:
        bits = map_.dtype.element_bits
        if any(n * 8 % bits for n in (map_.address, *map_.strides)):
            raise _NotACase("a tensor map's address or strides are no multiple of its elements")
        found: dict[str, Any] = {
            "tensor": tensor,
            "dtype": _map_dtype(map_),
            "dims": list(map_.sizes[::-1]),
            "strides": [n * 8 // bits for n in map_.strides[::-1]] + [1],
            "box": list(map_.box[::-1]),
        }
        if map_.address:
            found["offset"] = map_.address * 8 // bits
        if map_.im2col:
            found["im2col"] = {"lower": list(map_.lower[::-1]), "upper": list(map_.upper[::-1])}
        if set(map_.element_strides) != {1}:
            found["element_strides"] = list(map_.element_strides[::-1])
        if map_.swizzle is not TensorMapSwizzle.NONE:
            found["swizzle"] = map_.swizzle.name[1:].replace("128", "128B", 1) if "_" in map_.swizzle.name else (
                f"{map_.swizzle.name[1:]}B"
            )  # fmt: skip
        if map_.interleave is not TensorMapInterleave.NONE:
            found["interleave"] = f"{map_.interleave.name[1:]}B"
        if map_.l2_promotion is not TensorMapL2Promotion.NONE:
            found["l2_promotion"] = f"{map_.l2_promotion.name[1:]}B"
        if map_.oob_nan:
            found["oob"] = "nan"
        return found

    def _launch(self) -> dict[str, Any]:
        cluster = self.launch.cluster
        if self.code.ptx is not None:
            try:
                module = parse_module(self.code.ptx)
                cluster = kernel_facts(module, module.function(self.launch.kernel)).cluster or cluster
            except (PtxSyntaxError, KeyError):
                pass  # The PTX is reported on when the case is run.
        found: dict[str, Any] = {"grid": list(self.launch.grid), "block": list(self.launch.block)}
        if cluster != (1, 1, 1):
            found["cluster"] = list(cluster)
        if self.launch.dynamic_smem:
            found["dynamic_smem"] = self.launch.dynamic_smem
        if COOPERATIVE in self.launch.attributes:
            found["cooperative"] = True
        return found

    def _param(self, i: int) -> Any:
        data, contents = self.launch.params[i], self.params[i]
        if len(data) == 8 and contents and isinstance(contents[0][1], Pointer) and not contents[0][1].offset:
            return contents[0][1].tensor
        if len(data) == 128 and contents and contents[0] == (0, MapValue(_map_name(contents[0][1]))):
            return _map_name(contents[0][1])
        kind = self.types[i] if i < len(self.types) else ""
        if self.code.ptx is not None and not contents and re.fullmatch(r"(unsigned )?(int|long|long long)", kind):
            return int.from_bytes(data, "little", signed=not kind.startswith("unsigned"))
        found: dict[str, Any] = {"bytes": data.hex()}
        if contents:
            found["contains"] = [_contained(at, what) for at, what in contents]
        return found

    def _attributes(self) -> dict[str, Any]:
        return {"launch_attributes": list(self.launch.attributes)} if self.launch.attributes else {}

    def _tolerance(self, device: Mapping[str, Any]) -> float:
        """Approximate instructions give other last bits on a GPU than in the simulator: a few units in the last
        place of the outputs."""
        if self.code.ptx is None or "capability" not in device or not APPROXIMATE.search(self.code.ptx):
            return 0.0
        formats = [DTYPES[self._dtype(n)] for n, b in self.names.items() if b.after]
        return float(max((2.0 ** (3 - d.significand) for d in formats if d.is_float), default=0.0))


def _names(launch: CapturedLaunch) -> dict[str, Block]:
    """A name for each allocation, after the first parameter that leads to it."""
    found: dict[str, Block] = {}
    left = list(launch.blocks)
    for i, data in enumerate(launch.params):
        words = [w for (w,) in struct.iter_unpack("<Q", data[: len(data) // 8 * 8])]
        for word in words:
            block = next((b for b in left if b.address <= word < b.address + b.size), None)
            if block is not None:
                left.remove(block)
                name = f"arg{i}"
                found[name if name not in found else f"{name}_{len(found)}"] = block
    return found | {f"memory{i}": block for i, block in enumerate(left)}


def _map_dtype(map_: TensorMap) -> str:
    return next(name for name, dtype in MAP_TYPES.items() if dtype is map_.dtype)


def _map_name(what: Pointer | MapValue) -> str:
    return what.tensor_map if isinstance(what, MapValue) else ""


def _contained(at: int, what: Pointer | MapValue) -> dict[str, Any]:
    if isinstance(what, MapValue):
        return {"at": at, "tensor_map": what.tensor_map}
    assert isinstance(what, Pointer)
    return {"at": at, "address_of": what.tensor, **({"byte_offset": what.offset} if what.offset else {})}


def cases_summary(written: Sequence[Path]) -> list[dict[str, Any]]:
    """For reports: each case with its kernel, launch, and bytes."""
    rows = []
    for path in written:
        case = load_case(path)
        problem = bind(case)
        rows.append(
            {
                "path": str(path),
                "kernel": case.entry,
                "module": case.kernel.name,
                "grid": list(problem.launch.grid),
                "block": list(problem.launch.block),
                "cluster": list(problem.launch.cluster),
                "dynamic_smem": problem.launch.dynamic_smem,
                "tensors": len(problem.tensors),
                "tensor_maps": len(problem.tensor_maps),
                "bytes": sum(t.nbytes for t in problem.tensors.values()),
            }
        )
    return rows
