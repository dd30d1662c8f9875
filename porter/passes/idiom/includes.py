# SPDX-License-Identifier: Apache-2.0
"""The headers that the words of SM100 stand in, in their place among the others."""

from __future__ import annotations

from porter.lang.preprocessor import line_end
from porter.passes.idiom.atoms import owner_of
from porter.passes.idiom.site import Site
from porter.passes.native.sites import Left

RULE = "PTR768"
ALLOCATOR = "cute/arch/tmem_allocator_sm100.hpp"
BARRIERS = "cutlass/arch/barrier.h"
PIPELINES = "cutlass/pipeline/sm100_pipeline.hpp"
_HOPPERS = "cutlass/pipeline/sm90_pipeline.hpp"


def include(site: Site, pipelines: bool) -> None:
    """Raises Left if the kernel's file includes nothing."""
    file = site.kernel.file
    there = [(name, span) for name, _, span in file.lexed.includes()]
    everywhere = {name for f in site.program.sources.files.values() for name, _, _ in f.lexed.includes()}
    wanted = [] if ALLOCATOR in everywhere else [ALLOCATOR]
    if not any(name.startswith("cutlass/pipeline/") for name in everywhere | {BARRIERS} & everywhere) and (
        BARRIERS not in everywhere
    ):
        wanted.append(BARRIERS)
    if pipelines and _HOPPERS in everywhere and not {PIPELINES, "cutlass/pipeline/pipeline.hpp"} & everywhere:
        wanted.append(PIPELINES)
    if not there:
        raise Left(site.kernel, site.kernel.head, "includes of CuTe in the kernel's file")
    for name in wanted:
        own = [(n, s) for n, s in there if n.split("/")[0] == name.split("/")[0]]
        behind = [s for n, s in own if n < name]
        opening = file.text((own or there)[0][1]).lstrip("# \t").removeprefix("include").strip()[:1]
        line = f'#include "{name}"\n' if opening == '"' else f"#include <{name}>\n"
        at = line_end(file.source, behind[-1].end) if behind else (own or there)[0][1].start
        site.draft.insert(RULE, owner_of(site, file), at, line)
