# SPDX-License-Identifier: Apache-2.0
"""Kernels as the main() of their file launches them, and that of its port: which arguments are tried, and what is said
of kernels whose types, and so whose names and parameters, a port changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from porter.build.port_plan import PortPlan
from porter.cli.comparing import Told
from porter.cli.context import Session
from porter.cli.judging import judgement_of
from porter.cli.mains import compared_by_main, programs_of
from porter.verify.gate import GateOptions
from porter.verify.program import LaunchRecord
from porter.verify.program.compare import FirstLaunches
from porter.verify.proved import CaseProofs
from porter.verify.settings import SimOptions

SMALL, SHORT = ("512", "256", "448"), ("256", "512", "64")
NAMED = [("--m=512", "--n=256", "--k=448"), ("--m=256", "--n=512", "--k=64")]


@dataclass
class Fake:
    """Stands for a program: what it launches with arguments, as a size and the name of a kernel; None for an error. A
    large one takes too long."""

    original: Any
    launches: Any
    options: SimOptions = field(default_factory=SimOptions)
    compares: list[Sequence[str]] = field(default_factory=list)

    def of_original(self, arguments: Sequence[str]) -> Any:
        found = self.launches(arguments)
        status = "error" if found is None else "incomplete" if found[0] > 1000 else "ok"
        made = [(found[0], found[1])] if found else []
        records = [LaunchRecord(name, (size, 1, 1), (32, 1, 1), (1, 1, 1), 0, (), ()) for size, name in made]
        return SimpleNamespace(outcome=SimpleNamespace(status=status, launches=records))

    def compared(self, arguments: Sequence[str], ours: Any) -> list[CaseProofs]:
        self.compares.append(arguments)
        original = SimpleNamespace(entry=ours.outcome.launches[0].kernel)
        return [cast(CaseProofs, SimpleNamespace(original=original))]


def by_position(a: Sequence[str]) -> tuple[int, str]:
    return int(a[0]) if a else 5120, "tn" if a[3:] == ("T", "N") else "nt"


TAKES, NONE = "int main(int argc, char** argv) { read(argv[1]); }", "int main() {}"


@pytest.mark.parametrize(
    ("text", "launches", "left", "compares"),
    [
        (TAKES, by_position, ["nt"], [SMALL, SHORT]),
        (TAKES, by_position, ["nt", "tn"], [SMALL, SHORT, (*SMALL, "T", "N"), (*SHORT, "T", "N")][:3]),
        (TAKES, lambda a: (int(a[0][4:]) if a and "=" in a[0] else 5120, "nt"), ["nt"], NAMED),
        (TAKES, lambda a: (7, "nt"), ["nt"], [SMALL]),
        (TAKES, lambda a: None if a else (7, "nt"), ["nt"], [()]),
        (TAKES, lambda a: None if a == SMALL else by_position(a), ["nt"], [SHORT]),
        (TAKES, lambda a: (7, "other"), ["nt"], []),
        (NONE, lambda a: (7, "nt"), ["nt"], [()]),
        (NONE, lambda a: (5120, "nt"), ["nt"], [()]),
        (TAKES, lambda a: (5120, "nt"), ["nt"], [()]),
    ],
)
def test_arguments_that_are_tried(text: str, launches: Any, left: list[str], compares: Any, tmp_path: Path) -> None:
    """Small sizes by position, else by name; majors for kernels that these do not launch; the program's own sizes where
    it takes none."""
    source = tmp_path / "k.cu"
    source.write_text(text)
    programs = Fake(SimpleNamespace(path=source), launches)
    list(compared_by_main(cast(FirstLaunches, programs), left))
    assert programs.compares == compares


PROGRAM = """
#include <cstdlib>
struct Mma { %s };
template <class M, bool T>
__global__ void tile(float* out, const float* in, M mma, int k) {
    float sum = %s;
    for (int i = 0; i < k; i += 64) sum += in[(blockIdx.x * 32 + threadIdx.x + i) %% 1024];
    out[blockIdx.x * 32 + threadIdx.x] = sum * mma.scale;
}
int main(int argc, char** argv) {
    int m = 1 << 24, k = 1024;
    if (argc > 1) m = std::atoi(argv[1]);
    if (argc > 3) k = std::atoi(argv[3]);
    float *out, *in;
    cudaMalloc(&out, m * sizeof(float));
    cudaMalloc(&in, 4096);
    cudaMemset(in, 0, 4096);
    Mma mma{};
    mma.scale = 2;
    for (int i = 0; i < 100; ++i) {
        if (argc > 4 && *argv[4] == 'T') tile<Mma, true><<<m / 128, 32>>>(out, in, mma, k);
        else tile<Mma, false><<<m / 128, 32>>>(out, in, mma, k);
    }
    return cudaDeviceSynchronize();
}
"""
NT, TN = "_Z4tileI3MmaLb0EEvPfPKfT_i", "_Z4tileI3MmaLb1EEvPfPKfT_i"


@pytest.mark.slow
def test_parameters_of_a_port_are_its_own(tmp_path: Path) -> None:
    """The port's MMA is larger, and one of its two kernels adds one; the loop that takes the time is cut."""
    source = tmp_path / "tile.cu"
    source.write_text(PROGRAM % ("float scale;", "0"))
    port = (PROGRAM % ("double more; float scale;", "T ? 1 : 0")).encode()
    plan = PortPlan(files={str(source): port})
    programs = programs_of(Session(), source, plan, GateOptions(), 10)
    assert programs is not None
    found = [f.equality for f in compared_by_main(programs, [NT, TN])]
    assert [(e.status, len(e.looked_at)) if e else e for e in found] == [("equal", 1), ("equal", 1), ("differs", 0)]


RACY = "equal for the schedule that was executed; the original's own hazards: H17; the port has none"


@pytest.mark.parametrize(
    ("as_original", "asked", "status"), [(RACY, True, "equal"), (RACY, False, "unknown"), ("", True, "unknown")]
)
def test_originals_with_hazards_of_their_own(as_original: str, asked: bool, status: str) -> None:
    """What keeps a port from being known to be equal may be the original's alone."""
    told = Told("k.cu", {}, ("not known",), (), (NT,), "unknown", "at a grid", "", as_original)
    found = judgement_of([told], each_size=True, as_original=asked)
    assert (found.status, RACY in found.what) == (status, status == "equal")
