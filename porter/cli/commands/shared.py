# SPDX-License-Identifier: Apache-2.0
"""How a command is declared, and the options that several have."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from porter.cli.context import DEFAULT, current, fail, install
from porter.cli.everywhere import WHERE, options
from porter.diagnostics import Code, PorterError, unforeseen
from porter.report.formats import KINDS_OF
from porter.tune.styles import KEPT, LAYOUTS, STYLES, TAKEN, TILES


class Command(click.Command):
    """Options and help; the function that is declared is never called. What the command does is the function of the
    same name in the module of the same name in `porter.cli`: loading it takes longer than any `--help` should.
    Commands of a group have that module together, and the function is called GROUP_COMMAND."""

    def __init__(self, *args: Any, group: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group = group
        # where all other options are another program's, only what stands before the command is ours
        if not self.context_settings.get("ignore_unknown_options"):
            self.params += options(hidden=True)
            self.epilog = self.epilog or WHERE

    @property
    def work(self) -> Callable[..., Any]:
        name = f"{self.group}_{self.name}" if self.group else str(self.name)
        found: Callable[..., Any] = getattr(importlib.import_module(f"porter.cli.{self.group or name}"), name)
        return found

    def invoke(self, ctx: click.Context) -> Any:
        self._configure(ctx)
        try:
            work = self.work
        except ModuleNotFoundError as error:
            package = (error.name or "porter").partition(".")[0]
            if package == "porter":
                raise
            fail(current(), PorterError(Code.PACKAGE_MISSING, what=f"porter {self.name}", package=package))
        return ctx.invoke(work, **ctx.params)

    def _configure(self, ctx: click.Context) -> None:
        """What the project's configuration says of the options that are not given."""
        config = importlib.import_module("porter.cli.config")
        session = current()
        try:
            self._require_format(session.format)
            session = config.configure(ctx, session)
        except PorterError as error:
            fail(session, error)
        except OSError as error:
            fail(session, PorterError.of([unforeseen(error)]))
        install(session)
        if session.verbosity > 0 and session.config is not None:
            session.remark(f"configuration: {session.config}")

    def _require_format(self, form: str) -> None:
        """Before there is work that nobody would see the results of. Raises BAD_OPTION."""
        kind = f"{self.group}-{self.name}" if self.group else str(self.name)
        if form == "text" or kind in KINDS_OF[form]:
            return
        command = f"porter {kind.replace('-', ' ')}"
        if kind not in KINDS_OF["json"]:
            raise PorterError(Code.BAD_OPTION, option=f"--format {form}", problem=f"`{command}` has no result")
        others = " and ".join(f"`porter {k}`" for k in sorted(KINDS_OF[form] - {"error"}))
        problem = f"only {others} have it" if len(KINDS_OF[form]) < _FEW else f"`{command}` lists no findings"
        raise PorterError(Code.BAD_OPTION, option=f"--format {form}", problem=problem)


_FEW = 5
"""Commands that are named where there are fewer that have a format."""


@dataclass(frozen=True)
class Place:
    """A place in a file; `column` is 0 for the whole line."""

    path: Path
    line: int
    column: int = 0


class PlaceType(click.ParamType):
    """FILE:LINE, or FILE:LINE:COLUMN."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        path, *numbers = re.split(r":(?=[1-9]\d*(?::|$))", str(value))
        if not path or len(numbers) not in (1, 2):
            self.fail(f"`{value}` is not FILE:LINE or FILE:LINE:COLUMN", param, ctx)
        return Place(Path(path), *map(int, numbers))


def _take_rules(ctx: click.Context, option: click.Parameter, value: tuple[Path, ...]) -> tuple[Path, ...]:
    install(replace(current(), rules=value))
    return value


def rules_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--rules: for every command that reads or ports sources. The session has them."""
    return click.option(
        "--rules", "rule_dirs", multiple=True, type=click.Path(path_type=Path, exists=True), metavar="DIR",
        expose_value=False, callback=_take_rules,
        help="Rules of your own: a directory of YAML files, or one file (repeatable).",
    )(function)  # fmt: skip


def _take_keep(ctx: click.Context, option: click.Parameter, value: bool | None) -> bool | None:
    install(replace(current(), keep_hopper=value))
    return value


def keep_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--keep-hopper: for commands that make a port. The session has it."""
    return click.option(
        "--keep-hopper/--no-keep-hopper", default=None, expose_value=False, callback=_take_keep,
        help="One source for both chips: the port stands beside the original, and the compiler's target chooses  "
             "[default: where the project's build lists Hopper and other chips].",
    )(function)  # fmt: skip


def _take_mend(ctx: click.Context, option: click.Parameter, value: bool | None) -> bool | None:
    install(replace(current(), mend=value))
    return value


def mend_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--mend: for the command that ports. The session has it."""
    return click.option(
        "--mend/--no-mend", default=None, expose_value=False, callback=_take_mend,
        help="Ports have what the original itself lacks, as groups of safety review: by default the cluster barrier "
             "behind which no block ends that others still need; with --mend also fences and barriers that a run of "
             "its case in the checking simulator asks for; with --no-mend nothing.",
    )(function)  # fmt: skip


def no_mend_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--no-mend: for commands that say what a port has. The session has it."""
    return click.option(
        "--no-mend", "mend", is_flag=True, flag_value=False, default=None, expose_value=False, callback=_take_mend,
        help="The port without what `porter port` adds because the original itself lacks it.",
    )(function)  # fmt: skip


def _take_target(ctx: click.Context, option: click.Parameter, value: str) -> None:
    try:
        target = importlib.import_module("porter.passes.targets").port_target(value).name
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    install(replace(current(), target=target))


def target_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--to: for commands that make a port, or compile one. The session has it."""
    return click.option(
        "--to", default="sm_100a", show_default=True, expose_value=False, callback=_take_target, metavar="TARGET",
        help="The chip that the port is for: sm_100a (B200), sm_103a (B300) or sm_110a (Thor).",
    )(function)  # fmt: skip


def _take_style(ctx: click.Context, option: click.Parameter, value: str | None) -> str | None:
    install(replace(current(), style=value))
    return value


def _take_promotion(ctx: click.Context, option: click.Parameter, value: bool | None) -> bool | None:
    install(replace(current(), drop_promotion=value))
    return value


def _promotion_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--drop-promotion: a step of the native style that is taken on request. The session has it."""
    return click.option(
        "--drop-promotion/--no-drop-promotion", default=None, expose_value=False, callback=_take_promotion,
        help="With --style native: sums of FP8 stay in the accumulator, which adds them in full, where the original "
             "adds partial sums without scales. Results are not the original's bits.",
    )(function)  # fmt: skip


def _take_scale(ctx: click.Context, option: click.Parameter, value: bool | None) -> bool | None:
    install(replace(current(), block_scale=value))
    return value


def _scale_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--block-scale: a step of the native style that is taken on request. The session has it."""
    return click.option(
        "--block-scale/--no-block-scale", default=None, expose_value=False, callback=_take_scale,
        help="With --style native: scales of FP8 sums that are powers of two by the text are those of the tensor core, "
             "and sums stay in the accumulator. Results are not the original's bits.",
    )(function)  # fmt: skip


def _take_layouts(ctx: click.Context, option: click.Parameter, value: str) -> str:
    install(replace(current(), layouts=value))
    return value


def _layouts_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--layouts: a step of CuTe DSL that is taken on request. The session has it."""
    return click.option(
        "--layouts", type=click.Choice(LAYOUTS), default=KEPT, show_default=True, expose_value=False,
        callback=_take_layouts,
        help="CuTe DSL in Blackwell's own words: operands stay in shared memory as the original lays them out, or lie "
             "there as SM100's helpers lay them out, with the modes of its MMA.",
    )(function)  # fmt: skip


def _take_tiles(ctx: click.Context, option: click.Parameter, value: str) -> str:
    install(replace(current(), tiles=value))
    return value


def _tiles_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--tiles: a step of CuTe DSL that is taken on request. The session has it."""
    return click.option(
        "--tiles", type=click.Choice(TILES), default=TAKEN, show_default=True, expose_value=False,
        callback=_take_tiles,
        help="Persistent kernels of CuTe DSL in Blackwell's own words: a block takes every so-many-th tile, as in the "
             "original, or is handed the next one that nobody has (cluster launch control).",
    )(function)  # fmt: skip


def style_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--style: for commands that make a port. The session has it."""
    function = _tiles_option(_layouts_option(_scale_option(_promotion_option(function))))
    return click.option(
        "--style", type=click.Choice(STYLES), default=None, expose_value=False, callback=_take_style,
        help="compat: M=64 MMAs, one for each of Hopper's. full-rate: one M=128 MMA for two m64 tiles, where the "
             "kernel allows it and its case verifies it. auto: full-rate where the case verifies it in the time that "
             "there is, the grade finds it no slower and no untrusted code has to run; else compat. idiomatic: "
             "kernels with a TiledMMA in SM100's own words of CuTe, without a header beside them, each if its case or "
             "PTX shows it right; of CuTe DSL every style but compat is that. native: steps towards a schedule of "
             "sm_100a on top of full-rate, each if its case verifies it "
             f"[default: {DEFAULT}].",
    )(function)  # fmt: skip


def _take_problem(ctx: click.Context, option: click.Parameter, value: str) -> None:
    try:
        importlib.import_module("porter.grade.whatif").read_problem(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, option) from None
    install(replace(current(), problem=value))


def problem_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--problem: for commands that make ports of the native style. The session has it."""
    return click.option(
        "--problem", default="4096x4096x4096", show_default=True, expose_value=False, callback=_take_problem,
        metavar="MxNxK",
        help="With --style native: the size of the product for which stages and pairs of CTAs are chosen, by the "
             "grade.",
    )(function)  # fmt: skip


def plan_style_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--style of `porter plan`, which knows steps that no port has."""
    function = _tiles_option(_layouts_option(_scale_option(_promotion_option(function))))
    return click.option(
        "--style", type=click.Choice(STYLES), default=None, expose_value=False, callback=_take_style,
        help="auto, full-rate: whether M=128 MMAs are possible, and what a run has to show of them. native: which "
             "steps towards a kernel as it is written for sm_100a the facts of each kernel allow, what each brings by "
             f"the grade, what is missing for the others, and which Porter does not rewrite [default: {DEFAULT}].",
    )(function)  # fmt: skip


def _take_trust(ctx: click.Context, option: click.Parameter, value: bool) -> None:
    importlib.import_module("porter.build.trust").settle(value, lambda question: current().ask(question))


def trust_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--trust: for every command that may import Python of the user's, or compile."""
    return click.option(
        "--trust", is_flag=True, expose_value=False, callback=_take_trust,
        help="Run code that the sources bring along without asking: CuTe DSL files and reference functions are "
             "imported; compiler options of a configuration count too.",
    )(function)  # fmt: skip


def simulator_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--seed, --schedule, --arithmetic, --budget."""
    for option in reversed(
        [
            click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
                         help="Seed of inputs and of what a schedule draws."),
            click.option("--schedule", type=click.Choice(["eager", "late", "random", "lagging"]), default="late",
                         show_default=True,
                         help="When asynchronous operations land. Lagging: as random, and warps are held back."),
            click.option("--arithmetic", type=click.Choice(["float64", "exact"]), default="float64",
                         show_default=True, help="How tensor cores add: fast, or as the hardware does."),
            click.option("--budget", type=click.IntRange(min=1), default=None, metavar="N",
                         help="Most warp instructions that one run may execute."),
        ]
    ):  # fmt: skip
        function = option(function)
    return function


def tmem_check_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--tmem-check: for commands that assemble ports for Blackwell."""
    return click.option(
        "--tmem-check", is_flag=True,
        help="Have ptxas add checks of accesses to Tensor Memory (CUDA 13, --g-tensor-memory-access-check).",
    )(function)  # fmt: skip


def seconds_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--seconds, for commands that go over cases."""
    return click.option(
        "--seconds", type=click.FloatRange(min=0), default=None, metavar="N",
        help="Begin no new case after N seconds; what is left has no verdict (exit code 6).",
    )(function)  # fmt: skip


def prove_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--prove-seconds, for commands that make or check ports of kernels with a case."""
    return click.option(
        "--prove-seconds", type=click.FloatRange(min=0), default=10.0, show_default=True, metavar="N",
        envvar="PORTER_PROVE_SECONDS",
        help="Also prove the synchronization of original and port on their PTX, for every schedule and as many turns "
             "of their loops as N seconds for each allow, and compare what both leave, for as long; 0: not at all "
             "(docs/proving.md, docs/equality.md).",
    )(function)  # fmt: skip


def resume_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--resume, for commands that a time budget ends."""
    return click.option(
        "--resume", "resume_path", type=click.Path(path_type=Path), metavar="FILE",
        help="Do not run again what the JSON document of an earlier run has, of the same programs.",
    )(function)  # fmt: skip


def gpu_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--mode, --gpu-timeout."""
    for option in reversed(
        [
            click.option("--mode", type=click.Choice(["eager", "deferred"]), default="deferred", show_default=True,
                         help="When emulated tensor-core operations take effect (backend hopper)."),
            click.option("--gpu-timeout", type=click.FloatRange(min=0.1), default=60.0, show_default=True,
                         metavar="SECONDS", help="Longest time for one launch on a GPU."),
        ]
    ):  # fmt: skip
        function = option(function)
    return function


def launch_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--ptx and --launch, for PTX from anywhere."""
    for option in reversed(
        [
            click.option("--ptx", "ptx_path", type=click.Path(path_type=Path), metavar="FILE",
                         help="PTX, or a fat binary, object, library or executable with PTX in it; with --launch."),
            click.option("--launch", "launch_path", type=click.Path(path_type=Path), metavar="FILE",
                         help="How to run the kernel: grid, block, memory, arguments (docs/launches.md)."),
        ]
    ):  # fmt: skip
        function = option(function)
    return function


def trace_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--trace, --timeline, --trace-blocks, --trace-kernel, --trace-limit."""
    for option in reversed(
        [
            click.option("--trace", "trace_path", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
                         help="Write what happened in which order, for ui.perfetto.dev or chrome://tracing."),
            click.option("--timeline", is_flag=True, help="Print it as a picture."),
            click.option("--trace-blocks", default=None, metavar="LIST",
                         help="Thread blocks to record: `all`, or numbers in launch order such as 0-3,8 "
                              "[default: the first 4, in whole clusters]."),
            click.option("--trace-kernel", default=None, metavar="NAME",
                         help="Record only kernels whose name has NAME in it."),
            click.option("--trace-limit", type=click.IntRange(min=1), default=None, metavar="N",
                         help="Most events to record  [default: 200000]"),
        ]
    ):  # fmt: skip
        function = option(function)
    return function


def compile_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """-I, -D, -l and --nvcc-flag, for programs given as source."""
    for option in reversed(
        [
            click.option("-I", "include_dirs", multiple=True, type=click.Path(path_type=Path), metavar="DIR",
                         help="Program source: include directory."),
            click.option("-D", "defines", multiple=True, metavar="NAME[=VALUE]", help="Program source: macro."),
            click.option("-l", "libraries", multiple=True, metavar="NAME",
                         help="Program source: library to link with, such as cuda."),
            click.option("--nvcc-flag", "flags", multiple=True, metavar="FLAG",
                         help="Program source: passed to nvcc as it is."),
        ]
    ):  # fmt: skip
        function = option(function)
    return function
