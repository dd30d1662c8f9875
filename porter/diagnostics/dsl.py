# SPDX-License-Identifier: Apache-2.0
"""CuTe DSL: PT105x reading, PT205x porting, PT255x downgrades, PT305x compiling."""

from __future__ import annotations

from porter.diagnostics.types import ExitCode, error, note

DSL_UNREADABLE = error(
    "PT1050",
    ExitCode.USAGE,
    "{path} is not Python that could be read: {problem}",
    "Porter reads CuTe DSL sources with a parser that keeps every byte; this file does not parse.",
    "Correct the syntax error.",
)
DSL_CONSTRUCT = error(
    "PT2050",
    ExitCode.UNPORTED,
    "`{name}` is not ported: {what}",
    "The name exists for Hopper only, or is used in a way whose Blackwell form Porter does not know. "
    "Nothing was written.",
    "Port this construct by hand, or bring it into the form of NVIDIA's dense GEMM examples.",
)
DSL_STRUCTURE = error(
    "PT2051",
    ExitCode.UNPORTED,
    "kernel `{kernel}` is not ported: {what}",
    "The port moves the MMA into one warp, the accumulators to Tensor Memory and the release of buffers to "
    "commits. It has to recognize every statement that takes part; here it could not.",
    "Port this kernel by hand, or bring it into the form of NVIDIA's dense GEMM examples.",
)
DSL_MMA_WARPS = note(
    "PT2550",
    "{kernel}: one warp issues the MMAs, and {threads}",
    "One thread issues the MMAs of a block. The warps that held accumulators only read them back at the end.",
    "Correct as it is; a separate MMA warp and a second accumulator stage would overlap tiles.",
)
NO_DSL = error(
    "PT3050",
    ExitCode.USAGE,
    "CuTe DSL is not installed: {problem}",
    "Compiling a .py kernel needs NVIDIA's package nvidia-cutlass-dsl in the Python that runs Porter.",
    "Run pip install 'porter[dsl]'.",
)
DSL_ERROR = error(
    "PT3051",
    ExitCode.BUILD_FAILED,
    "CuTe DSL refused {path} for {arch}: {problem}",
    "The package raised an error while it built the kernel with the arguments of the case.",
    "Read the message; the case's `dsl` section says how the kernel is constructed and called.",
)
