# SPDX-License-Identifier: Apache-2.0
"""The headers that the words of SM100 stand in, in their place among the others."""

from __future__ import annotations

from porter.lang.preprocessor import line_end
from porter.passes.idiom.atoms import owner_of
from porter.passes.idiom.site import Site
from porter.passes.idiom.text import cpp
from porter.passes.native.sites import Left

RULE = "PTR768"


def include(site: Site, pipelines: bool) -> None:
    """Raises Left if the kernel's file includes nothing."""
    file = site.kernel.file
    there = [(name, span) for name, _, span in file.lexed.includes()]
    everywhere = {name for f in site.program.sources.files.values() for name, _, _ in f.lexed.includes()}
    allocator, barriers, pipelined = (cpp(f"header_of_{what}") for what in ("allocator", "barriers", "pipelines"))
    hoppers, both = cpp("header_of_hoppers_pipelines"), cpp("header_of_all_pipelines")
    wanted = [] if allocator in everywhere else [allocator]
    loads = cpp("header_of_loads_of_pairs")
    if site.asked.pair and loads not in everywhere:
        wanted.append(loads)
    folder = pipelined.rpartition("/")[0]
    if barriers not in everywhere and not any(name.startswith(f"{folder}/") for name in everywhere):
        wanted.append(barriers)
    if pipelines and hoppers in everywhere and not {pipelined, both} & everywhere:
        wanted.append(pipelined)
    if not there:
        raise Left(site.kernel, site.kernel.head, "includes of CuTe in the kernel's file")
    for name in wanted:
        own = [(n, s) for n, s in there if n.split("/")[0] == name.split("/")[0]]
        behind = [s for n, s in own if n < name]
        opening = file.text((own or there)[0][1]).lstrip("# \t").removeprefix("include").strip()[:1]
        line = f'#include "{name}"\n' if opening == '"' else f"#include <{name}>\n"
        at = line_end(file.source, behind[-1].end) if behind else (own or there)[0][1].start
        site.draft.insert(RULE, owner_of(site, file), at, line)
