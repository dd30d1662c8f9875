# SPDX-License-Identifier: Apache-2.0
"""`porter port --style native`: steps are given where a case verified them in the same run, else left out with the
reason. The quick tests stand in for the runs; the slow ones plant mistakes in the port and run it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from fakes_cli import porter

from porter.build import trust
from porter.cli.building import make_builder
from porter.cli.porting import look
from porter.passes.native.step import STEPS
from porter.passes.port import PortOptions
from porter.passes.ported import Ported, PortedRoot, port_paths
from porter.tune import search, verifying
from porter.tune.choosing import Chosen
from porter.tune.staging import Staged
from porter.verify.builder import PORT_ARCH
from porter.verify.proof import Claim, Judgement, Proof

CORPUS = Path(__file__).parents[2] / "corpus"
RELEASE = "tcgen05::release(&s.empty[stage]);"


def ported(
    folder: Path, monkeypatch: pytest.MonkeyPatch, wrong: Callable[[str], bool]
) -> tuple[str, str, list[str]]:  # fmt: skip
    """The text of a port, what was said, and the texts that were run; those that are `wrong` fail."""
    run: list[str] = []

    def prove(claim: Claim, *how: object) -> Proof:
        text = next(t for p, t in claim.plan.files.items() if str(p).endswith("persistent.cu")).decode()
        run.append(text)
        return Proof(missing="results differ") if wrong(text) else Proof(("case.yaml",), 3)

    monkeypatch.setattr(verifying, "prove", prove)

    monkeypatch.setattr(verifying.Proofs, "on_ptx", lambda *asked: "")
    monkeypatch.setattr(verifying, "slower", lambda *compared: None)
    monkeypatch.setattr(search, "staged", lambda session, ported, make: Staged(ported, frozenset()))
    monkeypatch.setattr(search, "widened", lambda session, ported, make: Chosen(ported))
    monkeypatch.setattr(search, "shared", lambda session, ported, make: Chosen(ported))
    monkeypatch.setattr(search, "tuned", lambda session, ported, make: (ported, frozenset(), []))
    kernel = CORPUS / "gemm_persistent/gemm_persistent.cu"
    result = porter("port", "--style", "native", "--no-compile", kernel, "-o", folder)
    return (folder / kernel.name).read_text(), " ".join(result.output.split()), run


def test_steps_are_given_where_the_case_verified_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, said, run = ported(tmp_path, monkeypatch, lambda _: False)
    assert RELEASE in text
    assert text == run[-1]
    assert "has the step release; case.yaml verified it at 3 sizes" in said
    assert "issues M=128 MMAs; case.yaml verified it at 3 sizes" in said


@pytest.mark.slow
def test_a_step_that_fails_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, said, run = ported(tmp_path, monkeypatch, lambda text: "release(" in text)
    assert "release(" not in text
    assert "thread_index" in text
    assert text in run
    assert "is without the step release: results differ" in said
    assert "has the step " not in said


def test_steps_on_something_unverified_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, said, _ = ported(tmp_path, monkeypatch, lambda text: "thread_index" in text)
    assert "release(" not in text
    assert "thread_index" not in text
    assert "what it builds on is not verified: results differ" in said
    assert "stays at M=64: results differ" in said


@pytest.mark.parametrize(("steps", "status", "lacks"), [
    (("release",), "equal", ""), (("release",), "unknown", "a deadlock"), (("release",), "refused", "a deadlock"),
    ((), "refused", ""), (("scales",), "unknown", ""), (("scales",), "refused", "a deadlock"),
    (("release",), None, verifying.UNASKED), ((), None, ""), (("scales",), None, ""),
])  # fmt: skip
def test_ptx_refuses_steps(
    steps: tuple[str, ...], status: Literal["equal", "refused", "unknown"] | None, lacks: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """They have to be equal, but for those by which results are meant to differ; without steps nothing is asked."""
    monkeypatch.setattr(verifying, "prove", lambda *how: Proof(("case.yaml",), 3))
    root = PortedRoot("kernel.cu", ("kernel.cu",), native=steps)
    judge = None if status is None else lambda *what: Judgement(status, "a deadlock")
    proofs = verifying.Proofs(make_builder(None), judge=judge)
    assert proofs.missing(Ported(new={"kernel.cu": b""}, roots=[root]), root) == lacks


# --- the gate itself, on a simulator


def made(name: str, steps: tuple[str, ...] = STEPS) -> Ported:
    return port_paths([CORPUS / name / f"{name}.cu"], PortOptions(full_rate=True, native=steps), (), look)


def failure(found: Ported) -> str:
    (root,) = found.roots
    return verifying.Proofs(make_builder(None, PORT_ARCH)).of(found, root).missing


def planted(found: Ported, pattern: str, instead: str) -> Ported:
    """With another text in one place of the port."""
    hits = [(p, *re.subn(pattern, instead, t.decode(), flags=re.DOTALL)) for p, t in found.new.items()]
    ((path, text, count),) = [hit for hit in hits if hit[2]]
    assert count == 1
    found.new[path] = text.encode()
    return found


PLANTED = {
    "commit as plain arrive": (
        r'tcgen05.commit[^;]*\[%0\];" ::"r"\(mbarrier\)', 'mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(mbarrier)',
    ),
    "count left as it was": (r"init_barrier\(&s.empty\[i\], 1\)", "init_barrier(&s.empty[i], 256)"),
    "no wait before the sums are read": (r"tc.commit\(\);\s*tc.wait\(0\);\s*// The previous", "// The previous"),
    "no wait for an empty stage": (r"wait\(&s.empty\[stage\], phase \^ 1\);", ""),
    "no fence before the next tile": (
        r'fence_before_sync\(\);\s*asm volatile\("bar.sync 15', 'asm volatile("bar.sync 15',
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_fails_the_gate(name: str) -> None:
    what = failure(planted(made("gemm_persistent", ("release",)), *PLANTED[name]))
    assert what
    assert "nvcc" not in what


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize(("pattern", "instead"), [
    (r"0x3\)", "0x1)"), (r"mbar_init\(sm.empty\[i\], 2\)", "mbar_init(sm.empty[i], 1)"),
    (r"turns >> i & 1\) \^ 1", "turns >> i & 1)"), (r"tc.drain\(\);", ""),
])  # fmt: skip
def test_a_planted_mistake_of_a_cluster_fails_the_gate(pattern: str, instead: str) -> None:
    what = failure(planted(made("gemm_cluster", ("release",)), pattern, instead))
    assert what
    assert "nvcc" not in what


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("name", ["gemm_ws", "gemm_persistent", "gemm_tf32", "gemm_pipelined", "gemm_cluster"])
def test_the_gate_takes_a_corpus_kernel(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # references of some cases are functions
    monkeypatch.setattr(trust, "_said", True)
    found = made(name)
    assert found.roots[0].native
    assert failure(found) == ""
