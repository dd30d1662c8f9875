# SPDX-License-Identifier: Apache-2.0
"""What lanes hand each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from porter.equal.contents import Contents, Taken
from porter.equal.meaning import Means, Then, meaning, of_numbers, read, refused, require_together, width
from porter.equal.words import constant, joined, mixed, spread, word
from porter.facts.instructions.registry import Step
from porter.facts.instructions.warps import by_mask
from porter.facts.state import Group, Warp
from porter.facts.values import bits, is_known
from porter.ptx.arch import WARP
from porter.ptx.shuffle import source_lane


@meaning("shfl")
def shfl(step: Step) -> Means | None:
    """PTX ISA 9.7.9.6: the lane that is read, and whether it is in the segment."""
    name, valid = step.register("d"), step.register("p")
    data, distance, bound = (read(step, step.ins[operand], 4) for operand in "abc")
    mode, mask = step.ins.modifiers["mode"], step.value("mask")

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        require_together(step, taken)
        given, by, clamp = (r(contents, warp, group) for r in (data, distance, bound))
        sets = by_mask(contents.machine, group, mask(contents.machine, warp, group))

        def then() -> None:
            if all(n is None or is_known(group.registers.get(n), taken.mask) for n in (name, valid)):
                return
            if bool((by >= 256).any()) or bool((clamp >= 256).any()):
                raise step.not_understood("the lane, which is data,")
            lane, bytes_of_c = np.arange(WARP), clamp.astype(int)
            other, inside = source_lane(mode, lane, by[:, 0].astype(int), bytes_of_c[:, 1] << 8 | bytes_of_c[:, 0])
            other = np.where(inside, other, lane)
            went = _gone_on(taken, group)
            for named, lanes in sets.items():
                here = lanes & went.mask
                if not all(here & named & 1 << int(s) for s in other[list(bits(here))]):
                    raise step.not_understood("a lane that is not there")
            if name is not None:
                contents.put(warp, name, went, given[other])
            if valid is not None:
                contents.put(warp, valid, went, inside.astype(np.uint64)[:, None])

        return then

    return means


@meaning("vote", "redux", "match")
def together(step: Step) -> Means | None:
    """One word for what all lanes of a mask give, and for what a lane finds of its own among these (`match.any`)."""
    data = read(step, step.ins["a"], width(step.ins.type("a")))
    written = sorted(step.flow.writes[step.at])
    key, mask = word(".".join(step.ins.parts)), step.value("mask")
    is_vote = step.ins.parts[0] == "vote"

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        require_together(step, taken)
        given = data(contents, warp, group)
        sets = by_mask(contents.machine, group, mask(contents.machine, warp, group))

        def then() -> None:
            if all(is_known(group.registers.get(n), taken.mask) for n in written):
                return
            went, values = _gone_on(taken, group), joined(given)
            words = np.zeros(WARP, np.uint64)
            for lanes in (some & went.mask for some in sets.values()):
                words[list(bits(lanes))] = mixed(key, joined(values[None, list(bits(lanes))]), np.uint64(lanes))
            found = spread(mixed(words, values) if step.has("any") and not is_vote else words, 4)
            for name in written:
                is_predicate = is_vote and "ballot" not in step.ins.parts
                contents.put(warp, name, went, found[:, :1] if is_predicate else found)

        return then

    return means


def _gone_on(taken: Taken, group: Group) -> Taken:
    """Without the lanes that wait for others of their mask."""
    return replace(taken, mask=taken.mask & group.lanes)


@meaning("elect", "activemask", "bra")
def numbers(step: Step) -> Means | None:
    """Numbers, and branches, whose both ways are followed by themselves where data decide."""

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then | None:
        return None

    return means


@meaning("createpolicy", "nanosleep", "prefetch", "prefetchu", "applypriority", "pmevent", "fence", "membar",
         "setmaxnreg", "exit", "ret")  # fmt: skip
def nothing(step: Step) -> Means | None:
    """What has to do with no data. A cache policy changes none."""
    written = sorted(step.flow.writes[step.at])

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        def then() -> None:
            for name in written:
                contents.put(warp, name, taken, constant(0, 8))

        return then

    return means if written else None


@meaning("bar", "barrier")
def barrier(step: Step) -> Means | None:
    """What a barrier makes of predicates of all threads is not followed."""
    return of_numbers(step, "the result")


@meaning("discard")
def discard(step: Step) -> Means:
    return refused(step, "what is left there")


@meaning("trap", "brkpt")
def trap(step: Step) -> Means:
    """One that data decide: what is left is left where it is not come to."""

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then | None:
        if taken.where is not None:
            contents.trap(taken.where, taken.index(), step.at)
        return None

    return means


@meaning("griddepcontrol")
def griddepcontrol(step: Step) -> Means | None:
    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then | None:
        contents.waited.add(warp)
        return None

    return means if step.has("wait") else None


@meaning("mbarrier", "clusterlaunchcontrol")
def of_barriers(step: Step) -> Means | None:
    """Tokens and answers are numbers."""
    return of_numbers(step, "the answer")
