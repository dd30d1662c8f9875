# SPDX-License-Identifier: Apache-2.0
"""Mutants: every synchronizing instruction once, as PTX that still parses and differs."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest
from check_ptx import BULK, HEADER, TENSOR, WGMMA

from porter.build.toolchain import find_toolkit
from porter.ptx import ast
from porter.ptx.parser import parse_module
from porter.ptx.printer import to_text
from porter.verify.mutants import mutants, mutated


def module_of(body: str, target: str):
    return parse_module(HEADER.format(target=target) + body + "\n}\n")


def test_every_mutant_is_another_program_that_parses() -> None:
    for body, target in ((TENSOR, "sm_100a"), (BULK, "sm_90a"), (WGMMA, "sm_90a")):
        module = module_of(body, target)
        texts = [to_text(mutated(module, [m])) for m in mutants(module, "kernel")]
        assert len(set(texts)) == len(texts) > 3
        assert to_text(module) not in texts
        for text in texts:
            assert to_text(parse_module(text)) == text


def test_each_kind_of_synchronization_is_mutated() -> None:
    names = {m.name for m in mutants(module_of(TENSOR, "sm_100a"), "kernel")}
    for opcode in ("tcgen05.wait::ld.sync.aligned", "tcgen05.wait::st.sync.aligned", "fence.proxy.async.shared::cta",
                   "tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync", "bar.sync",
                   "fence.mbarrier_init.release.cluster"):  # fmt: skip
        assert f"drop {opcode}" in names
    assert {"pass at once mbarrier.try_wait.parity.shared.b64", "flip parity of mbarrier.try_wait.parity.shared.b64",
            "one arrival more for mbarrier.init.shared.b64"} <= names  # fmt: skip
    assert any(n.startswith("drop tcgen05.commit") for n in names)
    bulk = {m.name for m in mutants(module_of(BULK, "sm_90a"), "kernel")}
    assert "no bytes for mbarrier.arrive.expect_tx.shared.b64" in bulk
    assert "drop cp.async.bulk.wait_group.read" in bulk


def test_other_kernels_of_the_module_are_left_alone() -> None:
    module = module_of(TENSOR, "sm_100a")
    other = dataclasses.replace(module.functions[0], name="other")
    both = dataclasses.replace(module, functions=(*module.functions, other))
    assert len(mutants(both, "kernel")) == len(mutants(module, "kernel"))


EXPECTED = [
    ("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r1], %rs1;",
     {"drop", "next barrier for", "own block only for"}),
    ("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 64;", {"drop", "half the columns for"}),
    ("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, %r2;", {"drop", "half the columns for"}),
    ("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;", {"drop"}),
    ("wgmma.fence.sync.aligned;", {"drop"}),
    ("wgmma.wait_group.sync.aligned 1;", {"drop", "one group more pending for"}),
    ("cp.async.wait_group 2;", {"drop", "one group more pending for"}),
    ("cp.async.wait_all;", {"drop"}),
    ("cp.async.mbarrier.arrive.noinc.shared.b64 [%r1];", {"drop"}),
    ("cp.async.bulk.wait_group 0;", {"drop", "one group more pending for", "reading only for"}),
    ("fence.proxy.async;", {"drop", "other memory for"}),
    ("fence.acq_rel.cluster;", {"drop", "block scope for"}),
    ("membar.cta;", {"drop"}),
    ("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1];",
     {"drop", "next barrier for", "relaxed", "block scope for", "twice"}),
    ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], %r2;",
     {"drop", "next barrier for", "relaxed", "no bytes for", "half the bytes for"}),
    ("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 4096;", {"drop", "half the bytes for"}),
    ("mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [%r1], %r2;",
     {"pass at once", "flip parity of", "relaxed", "block scope for"}),
    ("mbarrier.test_wait.shared::cta.b64 %p1, [%r1], %rd1;", {"pass at once", "relaxed"}),
    ("mbarrier.init.shared::cta.b64 [%r1], 4;", {"drop", "one arrival more for", "one arrival less for"}),
    ("barrier.sync 1, 128;", {"drop", "no waiting at", "one warp more for", "one warp less for"}),
    ("bar.arrive 1, 128;", {"drop", "one warp more for", "one warp less for"}),
    ("bar.sync 0;", {"drop"}),
    ("bar.warp.sync -1;", {"drop"}),
    ("bar.red.popc.u32 %r1, 0, %p1;", set()),
    ("barrier.cluster.arrive.release.aligned;", {"drop", "relaxed"}),
    ("barrier.cluster.wait.acquire.aligned;", {"drop"}),
    ("ld.acquire.gpu.global.u32 %r1, [%rd1];", {"relaxed"}),
    ("st.release.cluster.shared::cluster.u32 [%r1], %r2;", {"relaxed", "block scope for"}),
    ("ld.global.u32 %r1, [%rd1];", set()),
    ("griddepcontrol.wait;", {"drop"}),
    ("setmaxnreg.dec.sync.aligned.u32 40;", {"drop"}),
    ("setmaxnreg.inc.sync.aligned.u32 232;", set()),
]  # fmt: skip


def one_instruction(text: str) -> ast.Module:
    target = "sm_90a" if text.startswith("wgmma") else "sm_100a"
    registers = ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .b16 %rs<9>; .reg .pred %p<9>;"
    head = f".version 8.7\n.target {target}\n.address_size 64\n"
    return parse_module(f"{head}.visible .entry kernel()\n{{\n{registers}\n{text}\nret;\n}}")


@pytest.mark.parametrize(("text", "expected"), EXPECTED)
def test_what_is_done_to_an_instruction(text: str, expected: set[str]) -> None:
    module = one_instruction(text)
    found = mutants(module, "kernel")
    assert {m.how for m in found} == expected
    texts = {to_text(mutated(module, [m])) for m in found}
    assert len(texts) == len(found)
    assert to_text(module) not in texts


def test_several_mutants_at_once() -> None:
    module = module_of(TENSOR, "sm_100a")
    fences = [m for m in mutants(module, "kernel") if "thread_sync" in m.name]
    assert len(fences) > 3
    assert "thread_sync" not in to_text(mutated(module, fences))
    wait = next(m for m in mutants(module, "kernel") if m.how == "pass at once")
    with pytest.raises(ValueError, match="two mutants"):
        mutated(module, [wait, wait])


@pytest.mark.external
def test_mutants_are_code_that_ptxas_takes(tmp_path: Path) -> None:
    """A mutant that no compiler could have produced would prove nothing."""
    kernels = [module_of(TENSOR, "sm_100a"), module_of(BULK, "sm_90a"), *(one_instruction(t) for t, _ in EXPECTED)]
    files: dict[str, list[str]] = {}
    for module in kernels:
        for mutant in mutants(module, "kernel"):
            text = to_text(mutated(module, [mutant]))
            at = text.index(".visible .entry")
            lines = files.setdefault(module.target, text[:at].splitlines())
            lines += [line for line in text[:at].splitlines() if line not in lines]
            lines.append(text[at:].replace("entry kernel(", f"entry kernel{len(lines)}(", 1))
    for target, lines in files.items():
        path = tmp_path / f"{target}.ptx"
        path.write_text("\n".join(lines))
        command = [find_toolkit().ptxas, f"-arch={target}", str(path), "-o", str(tmp_path / "out")]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr[:3000]
