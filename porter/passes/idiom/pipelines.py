# SPDX-License-Identifier: Apache-2.0
"""Stages go back by commits: the pipeline is the library's class for that, and own mbarriers expect one arrival."""

from __future__ import annotations

import re

from tree_sitter import Node

from porter.lang.cuda import find
from porter.lang.text import Span
from porter.model.facts import Mbarrier
from porter.model.functions import Style
from porter.passes.idiom.atoms import owner_of
from porter.passes.idiom.mainloop import Mainloop
from porter.passes.idiom.site import Site

RULE = "PTR763"
_CLASS = re.compile(r"\b(?P<name>PipelineTmaAsync)\s*<\s*(?P<stages>[^<>,]+?)\s*>")
_SHAPE = re.compile(r"(?P<shape>(?:\w+::)*Shape\s*<.*>|(?:\w+::)*\w+)\s*\{\s*\}\Z", re.DOTALL)
_WORDS = re.compile(r"[A-Za-z_]\w*")
_OF_CUTE = re.compile(r"(?:cute|Shape|Int|C|_\d+)\Z")


def rewrite_pipelines(site: Site, loop: Mainloop) -> None:
    """Raises Left."""
    releases = loop.releases()
    if any(by_pipeline for _, _, by_pipeline in releases):
        _change_class(site)
    for name in loop.empty_barriers():
        _count_one(site, name)


def _change_class(site: Site) -> None:
    shape = _cluster(site)
    if site.asked.pair:
        shape = _paired(site)
    count = 0
    for function in site.program.functions:
        if function.style is not Style.HOST and site.is_shared(function) and "ipeline" in function.text(function.body):
            raise site.left(function.body, "a pipeline that no other kernel has", function)
    for file in site.program.sources.files.values():
        text = file.lexed.plain_text
        for match in _CLASS.finditer(text):
            if text[match.end() :].lstrip().startswith("::SharedStorage"):
                continue
            for word in set(_WORDS.findall(shape)) - {w for w in _WORDS.findall(shape) if _OF_CUTE.match(w)}:
                if not re.search(rf"\b{word}\b", text[: match.start()]) or word in _locals(site):
                    raise site.left(site.kernel.body, f"the shape of the cluster where the pipeline is named: `{word}`")
            span = Span(match.start(), match.end())
            site.draft.replace(RULE, owner_of(site, file), span, f"PipelineTmaUmmaAsync<{match['stages']}, {shape}>")
            count += 1
    if not count:
        raise site.left(site.kernel.body, "the type of the pipeline, `PipelineTmaAsync` with its stages")


def _paired(site: Site) -> str:
    """The cluster of a pair, and how many CTAs an MMA has, for a pipeline of one CTA."""
    if not re.fullmatch(r"(?:\w+::)*Shape\s*<\s*(?:(?:\w+::)*_1\s*,?\s*){3}>", _cluster(site)):
        raise site.left(site.kernel.body, "a pipeline of one CTA")
    for node in _constructors(site):
        arguments = [n for n in node.named_children if n.type != "comment"]
        if len(arguments) >= 3 and _SHAPE.match(site.kernel.text(arguments[2])):
            site.draft.replace(RULE, site.kernel, site.kernel.span(arguments[2]), f"{site.cluster}{{}}")
    return f"{site.cluster}, {site.cluster}"


def _locals(site: Site) -> set[str]:
    kernel = site.kernel
    declared = {
        kernel.text(n) for d in find(kernel.body, "init_declarator") for n in d.children_by_field_name("declarator")
    }
    return declared | {p.name for p in kernel.params}


def _cluster(site: Site) -> str:
    """The shape of the cluster, as the constructor of the pipeline is handed it."""
    for node in _constructors(site):
        arguments = [n for n in node.named_children if n.type != "comment"]
        if len(arguments) >= 3:
            match = _SHAPE.match(site.kernel.text(arguments[2]))
            if match is not None:
                return " ".join(match["shape"].split())
    raise site.left(site.kernel.body, "the shape of the cluster, as the pipeline is handed it")


def _constructors(site: Site) -> list[Node]:
    """What variables whose type is a pipeline begin with."""
    kernel, found = site.kernel, []
    for declaration in find(kernel.body, "declaration"):
        kind = declaration.child_by_field_name("type")
        for declarator in declaration.children_by_field_name("declarator"):
            value = declarator.child_by_field_name("value")
            if value is None or kind is None or "ipeline" not in kernel.text(kind):
                continue
            found += [value] if value.type in ("argument_list", "initializer_list") else []
    return found


def _count_one(site: Site, name: str) -> None:
    """The mbarriers of a name expect one arrival in each phase, that of the commit."""
    last, counted = re.split(r"\.|->", name)[-1], 0
    names = {last, *_sources_of(site, last)}
    for function in site.program.functions:
        for call in function.calls:
            fact = site.program.facts.of_call(call)
            if not isinstance(fact, Mbarrier) or fact.op != "init" or len(call.args) != 2:
                continue
            of = re.split(r"\.|->", re.split(r"\[", fact.bar.strip("& "))[0].strip())[-1]
            if of in names and not site.comes_to(function):
                continue
            if of in names and site.is_shared(function):
                raise site.left(call.node, "mbarriers that no other kernel has", function)
            if of in names:
                site.draft.replace(RULE, function, function.span(call.args[1]), "1")
                counted += 1
    if not counted:
        raise site.left(site.kernel.body, f"where the mbarriers `{name}` begin, with their count")


def _sources_of(site: Site, name: str) -> set[str]:
    value = site.value_of(name)
    return {re.split(r"\.|->", site.kernel.text(value).strip("& "))[-1]} if value is not None else set()
