# SPDX-License-Identifier: Apache-2.0
"""The page of `porter grade`: what it says, how it comes to it, and how far it agrees with what others measured."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grade.published import attention_points, ladder_points, ladders, pairs, recorded_mainloop

from porter.grade.calibration import mean_error
from porter.grade.chips import chips, constants, read

_INTRO = """# How fast a port will be

Made by `make docs` from `porter/grade`, its model, and the measurements in `porter/grade/data`.

`porter grade FILE` predicts, without the chip, how near to its nominal rate a kernel comes, and which part of it holds
it there. With a case the original on an H100 stands beside its port on a B200. PTX, files with PTX in them, launch
files (`--ptx`, `--launch`) and programs with their own `main()` are read as well; a program is run on the simulator for
what it launches.

**How far to trust it.** Trust the order of kernels for the same problem, and the limiting part. Do not trust rates:
published ones differ by up to two for the same kernel, and the model knows power only as a cap. What the text of a
kernel does not say is named (PT5066) and not guessed; what is concluded stands as *assumed*.

## What it says

| figure | meaning |
|---|---|
| % of nominal | operations per second of the chip's dense rate for that type, before power |
| capped | what is left of it where power is known to cap it |
| clocks a tile, a stage | of one SM, per output tile of a block and per stage of the loop over K |
| waves | output tiles by the blocks that run at a time; the last wave is as long as a full one |
| limited by | the part of the kernel without which it would gain most |
| costs | that gain, for each part |
| issues | instructions of all warps in a stage, where threads compute between MMAs, and what they are |
| would lift | gains of changes that the chip has room for |

| limited by | what it is |
|---|---|
| tensor core | MMAs take longer than the nominal rate: M = 64, or operands that shared memory delivers too slowly |
| TMA fill | bytes of a stage by the share of L2 that one SM gets; rows of boxes below 128 bytes are slower |
| barrier latency | load, wait, issue and commit, with too few stages to hide it |
| epilogue | results are stored while the tensor core waits |
| uncoalesced access | most of an epilogue: each thread stores a row of its own, half of each sector |
| bank conflicts | most of an epilogue: lanes' addresses in shared memory fall into the same banks |
| launch | barriers, Tensor Memory and the first load of a block |
| waves | tiles do not fill the last wave |
| MUFU, instruction issue | what threads compute in each stage: `ex2` and the like, and all their instructions |
| HBM | operands and results by the memory's rate |
| occupancy | another block on the SM would hide what this one waits for |
| power | the kernel asks for more than the chip's power allows |

## What if

`--what-if stages=6`, `--what-if tile=128x256x64,stages=4`, `--what-if pair`, `m128`, `specialize`, `persistent`,
`overlap`, `wide` (twice the columns), `bulk-store`, `ahead`, `blocks=2` (on an SM, with the registers that each has
then) and `problem=8192x8192x1024` grade another kernel beside this one; repeat the option for more. Changes of one
option may stand in any order: what has to fit is the result, and with `pair` the tile is that of both blocks. An
original and its port are both asked; which of them does not allow a change is said (PT5072), and none that does is an
error. What nobody knows can be stated: `--what-if stages=4`. `--problem MxNxK` grades all at another size, `--sizes
D=128` what the case compiles for another of its sizes. The order of tiles is no part of the model: whether tiles that
run at a time load less in another one, `porter port --style native` says alone (`raster` in
[full_rate.md](full_rate.md#native-steps)).
`--timeline FILE` writes what one SM does when, in clocks, for ui.perfetto.dev.

```
porter grade gemm.cu --what-if tile=128x256 --what-if pair,tile=256x256 --timeline gemm.json
```

## In other results

`porter port --grade` and `porter verify --grade` end with one line: the original on an H100 beside its port on a B200.
It needs a case, which says the launch, and compiles both; nothing is run for it. `porter grade` grades the port of its
`--style` as it is made, that of `auto` with M=128 MMAs where these are no slower, and says that no run proved it; only
`porter port` and `porter verify` do.
`porter report` has it on the page and in Markdown and JSON. `porter plan` says without a compiler what the MMAs of a
port allow.

## For one GPU

`porter grade --calibrate record.txt -o FILE` fits the constants of launches, loads, fills and stores to the record of a
kit from a Blackwell GPU (docs/kits.md), and says how well kernels that were not fitted are met; `--calibration FILE`,
or `calibration` in `porter.toml`, grades with them. Nobody has sent such a record yet: the constants below are those of
published measurements.

## How it comes to it

From the PTX: the loop over K, the MMAs in it with their M, N and the home of A, the bytes that an mbarrier expects, the
index that wraps around the ring, which loop loads, whether MMAs are waited for one batch at a time, columns of Tensor
Memory, how results leave. From the launch: shared memory, threads, the rows of tensor maps, parameters such as
instruction descriptors. From ptxas: registers. A schedule puts loads, MMAs, work of threads and epilogues of the blocks
on one SM as early as what they wait for allows; each part is then left out in turn.

MMAs of several warps run in the order of their issue: two warpgroups that wait for the same stage both wait for the
last of both, unless named barriers make them take turns. Where a stage is no plain product, each batch of MMAs that is
waited for has its latency.

Which warps issue MMAs, and which compute, branches on the index of the thread say: each warp is followed by itself. It
issues the instructions of PTX on the longest way through a pass of the loop, from the second pass on, so that of two
branches the longer one counts, and what one warp issues for two warpgroups counts once. `%tid` by axis needs the
launch.

`mov.b64 d, {a, b}` and its reverse count for nothing: they say that two registers are a pair, and SASS has no such
instruction. Of sm_100a, whose floats may come in pairs, there are many (`dsl_attention` has 141 in a pass of its loop,
and 4 moves in SASS).

Not modelled: bank conflicts of loads, and of stores whose addresses are no multiple of the lane; the rasters of tiles
and L2 between them; clock and power over time; what ptxas makes of an instruction of PTX, and what waits for the one
before it (see *What holds attention*)."""


def grade_page() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _INTRO
    yield ""
    yield "## Chips"
    yield ""
    yield "| chip | SMs | GHz | operations a clock and SM | HBM TB/s | sources |"
    yield "|---|---|---|---|---|---|"
    for chip in chips().values():
        yield (
            f"| {chip.name} ({chip.arch}) | {chip.sms} | {chip.clock_ghz} | {chip.mma_clocks} | {chip.hbm_tb_per_s} "
            f"| {'; '.join(chip.sources)} |"
        )
    yield ""
    yield "## Constants"
    yield ""
    yield "| constant | value | from | fitted to |"
    yield "|---|---|---|---|"
    for one in constants().values():
        yield f"| `{one.name}` | {one.value:g} | {one.source} | {one.fitted or '–'} |"
    yield ""
    yield from _sweeps()
    yield from _ladders()
    yield from _attention()
    yield from _corpus()
    yield from _nvidia()
    yield from _held()


def _attention() -> Iterator[str]:
    yield ""
    yield "## Calibration: attention"
    yield ""
    yield "% of nominal, before the cap of power; all held out. The model puts them all too high, and does not tell"
    yield "apart kernels that differ in how they overlap MMAs with a softmax that would fit beside them anyway. It does"
    yield "tell a kernel that its softmax holds back, as in the table of the corpus below."
    yield ""
    yield "| kernel | source | measured | predicted | assumed |"
    yield "|---|---|---|---|---|"
    for name, repository, points, assumed in attention_points():
        for p, unknown in zip(points, assumed, strict=True):
            text = p.name.removeprefix(f"{name} ")
            yield f"| {text} | {repository} | {p.measured:g} | {p.predicted:.1f} | {', '.join(unknown)} |"


_CORPUS = Path(__file__).parent / "results" / "grade-corpus.json"


def _corpus() -> Iterator[str]:
    """The record of scripts/grade_corpus.py."""
    rows = json.loads(_CORPUS.read_text("utf-8"))["rows"]
    styles = list(dict.fromkeys(style for row in rows for style in row["ports"]))
    yield ""
    yield "## The corpus' kinds of kernels"
    yield ""
    yield "`docs/results/grade-corpus.json`, which `scripts/grade_corpus.py` writes: % of nominal before the cap of"
    yield "power, of each original on an H100 and of its ports on a B200, at 4096 x 4096 x 4096; loops that are no"
    yield "plain product, such as those of attention, without a problem. In brackets what limits. The native port of"
    yield "`gemm_fp8_ue8m0` is that of `--block-scale`."
    yield ""
    heads = " | ".join(f"{style}, B200" for style in styles)
    yield f"| kind | kernel | original, H100 | {heads} | would lift the last most |"
    yield f"|---|---|---|{'---|' * len(styles)}---|"
    notes: dict[str, int] = {}
    for row in rows:
        cells = [_cell(row["original"], notes), *(_cell(row["ports"].get(style, {}), notes) for style in styles)]
        lifts = next((port.get("lifts", ()) for port in reversed(row["ports"].values())), ())
        lifted = "; ".join(f"{one['change']} {one['gain_percent']:+.0f} %" for one in lifts) or "–"
        yield f"| {row['kind']} | `{row['kernel']}` | {' | '.join(cells)} | {lifted} |"
    for text, number in notes.items():
        yield ""
        yield f"({number}) {text}"


_NVIDIA = Path(__file__).parent / "results" / "nvidia-kernels.json"


def _nvidia() -> Iterator[str]:
    """The record of scripts/nvidia_kernels.py."""
    rows = json.loads(_NVIDIA.read_text("utf-8"))["rows"]
    yield ""
    yield "## Beside NVIDIA's kernels"
    yield ""
    yield "`docs/results/nvidia-kernels.json`, which `scripts/nvidia_kernels.py` writes: % of a B200's nominal rate by"
    yield "the same model, before the cap of power, at 4096 x 4096 x 4096. CuTe's tutorials 01 to 05 are each a step"
    yield "ahead of the one before. Example 70 of CUTLASS is compiled with several tiles of its MMAs; it is persistent,"
    yield "and its epilogue runs beside the next tile. Native ports are beside the best of NVIDIA's GEMMs with the same"
    yield "tile."
    yield ""
    yield "| kernel | tile | pair | stages | % of nominal | limited by | of NVIDIA's |"
    yield "|---|---|---|--:|--:|---|--:|"
    for row in rows:
        if "unknown" in row:
            yield f"| {_named(row)} | – | – | – | not graded: {row['unknown']} | – | – |"
            continue
        tile = " x ".join(map(str, row["tile"]))
        share = beside(row, rows)
        yield (
            f"| {_named(row)} | {tile} | {'yes' if row['pair'] else 'no'} | {row['stages']} "
            f"| {row['percent_of_nominal']:.1f} | {row['limit']} | {'–' if share is None else f'{100 * share:.0f} %'} |"
        )


def _named(row: dict[str, Any]) -> str:
    return row["kernel"] if row["of"] == "NVIDIA" else f"`{row['kernel']}`, native port"


def beside(row: dict[str, Any], rows: list[dict[str, Any]]) -> float | None:
    """What a port has of the best rate of NVIDIA's kernels with its tile; None where there is none."""
    rates = [r["percent_of_nominal"] for r in rows if r["of"] == "NVIDIA" and r.get("tile") == row["tile"]]
    return row["percent_of_nominal"] / max(rates) if rates and row["of"] != "NVIDIA" else None


_SASS = Path(__file__).parent / "results" / "sass-attention.json"
_HELD = """## What holds attention

Threads of attention compute between two products, and what they compute is the same on both chips, while the MMAs of a
B200 take half the clocks. So threads hold it. One M=128 MMA for both warpgroups alone makes it slower by the grade:
both wait for the same products, and nothing runs meanwhile, where warpgroups that take turns with MMAs of 64 rows
compute beside each other's products. A second block on the SM (`blocks` in
[full_rate.md](full_rate.md#native-steps)) is what the tensor core has to do meanwhile. Where none fits, products of one
block can run beside what its threads compute (`ahead`).

`dsl_attention` and `dsl_attention_wide:two` (two consumers, heads of 128 columns, causal) have MMAs of 64 rows in every
style, whose warpgroups take turns.

Instructions of all warps of a block for 64 keys, from the same record as the table above:
"""


_PTXAS = """What ptxas makes of them is more: an `ex2` whose results may be denormal takes four instructions, a branch
around an MMA that another warp issues up to five. `docs/results/sass-attention.json`, which
`scripts/sass_attention.py` writes, has both counts, of one warp that issues no MMA for others. The grade counts PTX,
for originals and ports alike: what it says of kernels that *instruction issue* limits is too much by this share.
Both counts have masks in them, for which 50 to 100 instructions stand in a branch that only the last blocks of keys
take.

The last column is what a B200 could reach with so many instructions, were they all that takes time. The line of the
original is that of its own softmax, which a port takes as it is: a count of SASS leaves attention with a head dimension
of 128 at little more than 40 %, however its MMAs are issued. Beyond that the source has to change, and bits with it:
more keys a block, so that sums are scaled less often; `ex2` that flushes denormal results; masks in a loop of their
own."""


def _held() -> Iterator[str]:
    """What threads of attention issue, from two records."""
    rows = [r for r in json.loads(_CORPUS.read_text("utf-8"))["rows"] if r["kind"] == "attention"]
    ports = [
        (row["kernel"], style, port) for row in rows
        for style, port in (("original", row["original"]), *row["ports"].items()) if "instructions" in port
    ]  # fmt: skip
    totals: dict[str, int] = {}
    for _, _, port in ports:
        for kind, count in port["instructions"].items():
            totals[kind] = totals.get(kind, 0) + count
    kinds = sorted(totals, key=lambda kind: -totals[kind])
    yield ""
    yield from _HELD.splitlines()
    yield ""
    yield f"| kernel | port | % | blocks an SM | clocks a stage | all | {' | '.join(kinds)} |"
    yield f"|---|---|---|---|---|---|{'---|' * len(kinds)}"
    for kernel, style, port in ports:
        counts = port["instructions"]
        cells = " | ".join(str(counts.get(kind, 0)) for kind in kinds)
        yield (
            f"| `{kernel}` | {style} | {port['percent_of_nominal']:.1f} | {port['blocks_per_sm']} "
            f"| {port['clocks_per_stage']:.0f} | {sum(counts.values())} | {cells} |"
        )
    yield ""
    yield from _PTXAS.splitlines()
    yield ""
    yield "| `attention_fwd` | port | PTX | SASS | more | at most, by SASS |"
    yield "|---|---|---|---|---|---|"
    for row in json.loads(_SASS.read_text("utf-8"))["rows"]:
        name = row["kernel"].partition("<")[2].rstrip(">")
        # two products of 128 queries, 64 keys and so many columns; eight warps
        operations = 2 * 2 * 128 * 64 * int(name.partition(",")[0])
        chip = chips()["B200"]
        most = operations / chip.mma_clocks / (8 * row["sass"] / chip.issue_per_clock)
        more = row["sass"] / row["ptx"] - 1
        yield f"| {name} | {row['style']} | {row['ptx']} | {row['sass']} | {100 * more:+.0f} % | {100 * most:.0f} % |"


def _cell(port: dict[str, Any], notes: dict[str, int]) -> str:
    if "percent_of_nominal" in port:
        return f"{port['percent_of_nominal']:.1f} ({port['limit']})"
    why = port.get("unknown", "there is no such port")
    return f"not graded ({notes.setdefault(why, len(notes) + 1)})"


def _sweeps() -> Iterator[str]:
    yield "## Calibration: single MMAs and main loops"
    yield ""
    yield "Errors are means of |ln(predicted / measured)|. Constants were fitted to the BF16 rows alone; all other"
    yield "types are held out. `tests/grade/test_calibration.py` repeats this where the files are."
    yield ""
    yield "| repository and file | points | fitted | error, fitted | held out | error, held out |"
    yield "|---|---|---|---|---|---|"
    for row in read("measured")["whole"]:
        held = row["points"] - row["fitted"]
        yield (
            f"| SemiAnalysisAI/microbench-blackwell {row['file']} | {row['points']} | {row['fitted']} "
            f"| {100 * row['fitted_error']:.1f} % | {held} | {100 * row['held_out_error']:.1f} % |"
        )
    yield ""
    yield "Main loops with stages of 128 bytes of K, % of an SM's peak:"
    yield ""
    points = recorded_mainloop()
    yield f"| loop | measured | predicted | (mean error {100 * mean_error(points):.1f} %) |"
    yield "|---|---|---|---|"
    for p in points:
        yield f"| {p.name} | {p.measured:g} | {p.predicted:.0f} | {100 * p.error:+.0f} % |"
    yield ""


def _ladders() -> Iterator[str]:
    yield "## Calibration: published series of kernels"
    yield ""
    yield "% of a B200's nominal rate, before the cap of power. No constant was fitted to these but the fill rate, to"
    yield "one rung. *assumed*: fields of a rung that its source does not state."
    for which in ("ladders", "further"):
        for ladder in ladders(which):
            points = ladder_points(ladder)
            found = pairs(ladder, points)
            right = sum(p.right for p in found)
            yield ""
            yield f"### {ladder.name}"
            yield ""
            yield f"{ladder.repository}, {ladder.problem}: {right} of {len(found)} pairs in their order."
            yield ""
            yield "| kernel | measured | predicted | assumed |"
            yield "|---|---|---|---|"
            for rung, p in zip(ladder.rungs, points, strict=True):
                yield f"| {rung.name} | {p.measured:g} | {p.predicted:.1f} | {', '.join(rung.assumed) or '–'} |"
            for wrong in (p for p in found if not p.right):
                yield ""
                yield f"Not in order: *{wrong.slower}* and *{wrong.faster}*, measured {wrong.factor:.2f} apart."
