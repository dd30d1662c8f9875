# SPDX-License-Identifier: Apache-2.0
"""Whether what holds for 1 to N turns of a loop holds for any number: each thread's trace is a prefix, a block that
repeats, and a suffix, and nothing that decides what comes next can end that.

Five conditions, for a period of P turns. Traces: that of n + P turns is that of n with one block put in, which equals
the block before it, in every warp. Registers: at each loop whose turns grow, each that decides something is periodic
or moves evenly. Comparisons: the difference of the two sides is periodic, or moves evenly and crosses zero near the
first turn or near the last. Operands: what synchronizes follows a counter through its low bits or comparisons alone.
Sizes: outside of loops, and of what a launch gives, the same (porter.sync.sizes).

Runs up to prefix + 3P turns are needed: two of a pair's events in different parts are ordered by a chain that crosses
the middle, which must hold a period besides the reach of one edge. Where mbarriers alone take longer to come round,
`porter.sync.renaming`, P is that of all of them, and prefix + P + 2R are needed, with R turns from one use of such an
mbarrier to the next that looks alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, takewhile
from typing import TypeVar

from porter.facts.code import Loop
from porter.facts.deciding import deciding
from porter.facts.events import WarpName
from porter.facts.machine import Machine
from porter.facts.state import Group, Warp
from porter.facts.values import Value, of_lane
from porter.ptx.arch import WARP
from porter.ptx.bits import signed, unsigned
from porter.sync.following import Followed, Following, Shape, reached, that_must_repeat
from porter.sync.renaming import Renaming
from porter.sync.repeating import Repeating
from porter.sync.sequences import LARGEST_SIZE, Counted, Key, evenly
from porter.sync.sizes import End, Followers, Sizes, given_by
from porter.sync.ways import seen_in, steady_in

Trace = list[tuple[object, ...]]


class Recorder:
    """What one run shows of its loops: at each turn the registers that decide something, and the sides of each
    comparison of numbers."""

    def __init__(self, machine: Machine) -> None:
        self.flow = machine.flow
        self._deciding = deciding(machine.flow)
        self.symbols = machine.launched.shared_offsets
        self.given = given_by(machine)
        self.traces: Mapping[WarpName, Trace] = machine.history.trace
        self.states: dict[tuple[WarpName, int], list[tuple[int, dict[str, Value]]]] = defaultdict(list)
        """By warp and head of a loop, for each turn: turns so far of the loops around it, and registers."""
        self.comparisons: dict[tuple[WarpName, int], list[tuple[int, tuple[int, int]]]] = defaultdict(list)
        self._around: dict[tuple[WarpName, int], int] = defaultdict(int)
        self.entries: dict[int, list[dict[str, Value]]] = defaultdict(list)
        """By head of a loop the registers of who comes to it from outside."""
        self.branched = machine.branched
        self.events = 0
        """In all, once it has run."""
        machine.on_head = self.head
        machine.on_comparison = self.comparison

    def head(self, warp: Warp, group: Group, place: int) -> None:
        known, target = group.registers, group.pc
        state = {name: known[name] for name in self._deciding[target] if name in known}
        if place not in self.flow.heads[target].members:
            self.entries[target].append(state)
            return
        self.states[warp.name, target].append((self._around[warp.name, target], state))
        for inner in self.flow.inside[target]:
            self._around[warp.name, inner] += 1

    def forget(self) -> None:
        """Keep what the launch gives alone."""
        self.traces = {}
        for shown in (self.states, self.comparisons, self.entries):
            shown.clear()

    def comparison(self, warp: Warp, at: int, sides: tuple[tuple[int, int], ...]) -> None:
        head = self.flow.innermost.get(at)
        around = 0 if head is None else self._around[warp.name, head]
        self.comparisons[warp.name, at] += [(around, pair) for pair in sides]


@dataclass(frozen=True)
class Lasso:
    """Turns repeat with this period from `start` on. `why_not`: what keeps that from holding for all numbers of turns,
    with the instruction. `reach`: turns that hold a period of all but mbarriers, and whatever one edge crosses; as many
    as the period, if not fewer."""

    period: int
    start: int
    why_not: str = ""
    at: int | None = None
    reach: int = 0

    @property
    def needed(self) -> int:
        """Turns up to which runs must have been looked at."""
        return self.start + self.period + 2 * (self.reach or self.period)


def find_lasso(runs: Sequence[Recorder], unit: int = 1, renames: bool = True) -> Lasso | None:
    """The shortest period of runs for 1, 2, … turns; None if there is none that so few show. `unit`: what a size grows
    by with each turn. `renames`: whether mbarriers may take turns of their own."""
    last = None
    for period in range(1, len(runs) // 3 + 1):
        found = _regular(runs, period, renames)
        if found is None:
            continue
        why, at = broken(runs, period, unit, found.period // period)
        if not why:
            return found
        last = last or replace(found, why_not=why, at=at)
    return last


def broken(runs: Sequence[Recorder], period: int, unit: int, times: int = 1) -> tuple[str, int | None]:
    """What keeps numbers of turns from going on as they do: each of the last period stands for those of its class.
    `times`: periods after which mbarriers are the same as well."""
    seen = seen_in(runs[-2 * period :])
    sizes = Sizes(runs[-1].flow, [run.given for run in runs], runs[-1].symbols, unit, period, seen, times)
    of_each = (_broken_in(runs[-1 - period - back], runs[-1 - back], sizes, 1 if back else 2) for back in range(period))
    for why, at in chain(chain.from_iterable(of_each), sizes.uneven(), sizes.loaded()):
        return why, at
    return "", None


def _broken_in(shorter: Recorder, longer: Recorder, sizes: Sizes, least: int) -> Iterator[tuple[str, int]]:
    """The same of one run and that for a period less. `least`: periods for which it has to show what moves evenly."""
    yield from _registers(shorter, longer, sizes.period, least)
    yield from comparisons(shorter, longer, (LARGEST_SIZE // sizes.unit - len(sizes.given)) // sizes.period)
    yield from _by_counters(shorter, longer, sizes)


# Traces -----------------------------------------------------------------------------------------------


def _regular(runs: Sequence[Recorder], period: int, renames: bool) -> Lasso | None:
    """From the first number of turns from which every trace grows by one block in each period, but for the mbarriers
    that it names."""
    start, _ = _start(runs, period)
    if start is not None or not renames:
        return None if start is None else Lasso(period, start)
    start, renaming = _start(runs, period, Renaming())
    if start is None or renaming is None or not all(_is_behind(runs, period, renaming, w) for w in _warps(runs)):
        return None
    times = renaming.periods()
    return None if times is None else Lasso(period * times, start, reach=_reach(runs, period, renaming))


def _start(
    runs: Sequence[Recorder], period: int, renaming: Renaming | None = None
) -> tuple[int | None, Renaming | None]:
    """That number, and how mbarriers are renamed from it on, if they may be."""
    latest, least = len(runs) - 3 * period, 0
    warps, grown = sorted(_warps(runs)), dict[tuple[WarpName, int], int]()
    start = len(runs) - period + 1
    for turns in range(len(runs) - period, 0, -1):
        pairs = [(runs[turns - 1].traces.get(w, []), runs[turns - 1 + period].traces.get(w, [])) for w in warps]
        sizes = [len(longer) - len(shorter) for shorter, longer in pairs]
        if any(grown.setdefault((w, turns % period), size) != size for w, size in zip(warps, sizes, strict=True)):
            break
        found = renaming and renaming.copy()
        if not least and not all(_grows(*pair, True, found) for pair in pairs):
            # a block ahead of which there is none is not compared with it
            least, found = max(turns + 1 - period, 1), renaming and renaming.copy()
        if least > min(turns, latest) or (least and not all(_grows(*pair, False, found) for pair in pairs)):
            break
        start, renaming = turns, found
    return (start, renaming) if start <= latest else (None, None)


def _is_behind(runs: Sequence[Recorder], period: int, renaming: Renaming, warp: WarpName) -> bool:
    """Whether a warp that makes no turns names what is renamed behind them alone: what it does with one mbarrier for
    all numbers of turns may come at any time, and be for another one each time."""
    trace, shorter = (run.traces.get(warp, []) for run in (runs[-1], runs[-1 - period]))
    if len(trace) != len(shorter):
        return True
    same = takewhile(lambda pair: pair[0] == pair[1], zip(trace, shorter, strict=True))
    return not any(renaming.names(entry) for entry, _ in same)


def _reach(runs: Sequence[Recorder], period: int, renaming: Renaming) -> int:
    """Turns after which each mbarrier that is renamed looks as it did, and not fewer than a period."""
    found = period
    for warp, trace in runs[-1].traces.items():
        grown = len(trace) - len(runs[-1 - period].traces.get(warp, []))
        if grown:
            found = max(found, -(-renaming.farthest(trace) * period // grown))
    return found


def _warps(runs: Sequence[Recorder]) -> set[WarpName]:
    return {warp for run in runs for warp in run.traces}


def _grows(shorter: Trace, longer: Trace, must_repeat: bool, renaming: Renaming | None) -> bool:
    if renaming is None:
        return has_grown(shorter, longer, must_repeat)
    grown = len(longer) - len(shorter)
    return grown >= 0 and _put_in(shorter, longer, grown, must_repeat, renaming)


def has_grown(shorter: Trace, longer: Trace, must_repeat: bool) -> bool:
    """Whether the longer trace is the shorter one with blocks of one size put in, each of which equals the one before
    it where it must."""
    grown = len(longer) - len(shorter)
    return grown >= 0 and any(
        grown % times == 0 and _put_in(shorter, longer, grown // times, must_repeat)
        for times in range(1, _MOST_ROUNDS + 1)
    )


_MOST_ROUNDS = 64
"""How often a loop may be come to in one execution, as one inside of another is."""


def _put_in(shorter: Trace, longer: Trace, size: int, must_repeat: bool, renaming: Renaming | None = None) -> bool:
    """The same for blocks of this size. With a renaming for one block: what is behind it, and the block behind the one
    before it, is renamed."""
    at = 0
    for entry in shorter:
        if at >= len(longer):
            return False
        if entry != longer[at]:
            end = at + size
            if renaming is not None:
                return _renamed(shorter[at:], longer[end:], renaming) and (
                    not must_repeat or (at >= size and _renamed(longer[at - size : at], longer[at:end], renaming))
                )
            if not size or end >= len(longer) or entry != longer[end]:
                return False
            if must_repeat and (at < size or longer[at - size : at] != longer[at:end]):
                return False
            at = end
        at += 1
    rest = len(longer) - at
    if rest != size:
        return rest == 0
    if not must_repeat or not size:
        return True
    before = longer[max(at - size, 0) : at]
    return before == longer[at:] if renaming is None else _renamed(before, longer[at:], renaming)


def _renamed(entries: Trace, later: Trace, renaming: Renaming) -> bool:
    return len(entries) == len(later) and all(map(renaming.takes, entries, later))


# Registers --------------------------------------------------------------------------------------------


def _registers(shorter: Recorder, longer: Recorder, period: int, least: int) -> Iterator[tuple[str, int]]:
    """Registers at the head of a loop that are neither periodic nor move evenly."""
    for (warp, head), entries in longer.states.items():
        for states, before in _rounds(entries, shorter.states.get((warp, head), [])):
            turns = len(states) - len(before)
            if turns <= 0:
                continue
            if len(states) < least * turns + 1:
                yield f"a loop of {warp} makes {len(states)} turns, {turns} of them in a period", head
                continue
            for name in sorted(set().union(*states)):
                values, of_shorter = [s.get(name) for s in states], [s.get(name) for s in before]
                if len(of_shorter) >= least * turns and values[turns:] == values[:-turns] == of_shorter:
                    # in all lanes alike
                    continue
                lanes = range(WARP) if any(isinstance(v, tuple) for v in values) else range(1)
                for lane in lanes:
                    now, then = ([of_lane(v, lane) for v in run] for run in (values, of_shorter))
                    if not _moves_evenly(now, then, turns, least):
                        yield f"a register of {warp} neither repeats nor moves evenly over the turns of a loop", head
                        break


T = TypeVar("T")


def _rounds(longer: Sequence[tuple[int, T]], shorter: Sequence[tuple[int, T]]) -> Iterator[tuple[list[T], list[T]]]:
    """What two runs show of a loop each time that they come to it; together, if one of them comes to it more often."""
    if {around for around, _ in longer} != {around for around, _ in shorter}:
        yield [one for _, one in longer], [one for _, one in shorter]
        return
    by_round: dict[int, tuple[list[T], list[T]]] = defaultdict(lambda: ([], []))
    for around, one in longer:
        by_round[around][0].append(one)
    for around, one in shorter:
        by_round[around][1].append(one)
    yield from by_round.values()


def ends(entries: Sequence[tuple[int, T]]) -> list[T]:
    """What a run shows of a loop in the first turn and in the last one, of the first time that it comes to it and of
    the last one."""
    if not entries:
        return []
    rounds = [[one for around, one in entries if around == of] for of in (entries[0][0], entries[-1][0])]
    return [of_round[at] for of_round in rounds for at in (0, -1)]


def _moves_evenly(now: Sequence[int | None], before: Sequence[int | None], period: int, least: int) -> bool:
    """Whether a value moves by one number in each period, for so many of them or more, and what is ahead of that and
    behind it is as in the run that has a period less: moved by one number as well."""
    if not any(v is not None for v in now):
        return True
    start, end, _ = _even_part(now, period)
    if end - start < least * period or len(before) != len(now) - period:
        return False
    ahead, behind = _moved(before[:end], now), _moved(before[start:], now[start + period :])
    return all(len(set(moved)) <= 1 and None not in moved for moved in (ahead, behind))


def _even_part(values: Sequence[int | None], period: int) -> tuple[int, int, int]:
    """The longest stretch in which a value moves by one number in each period: its first turn, the one behind its last,
    without the period that follows, and the number."""
    steps = _moved(values, values[period:])
    start = end = first = 0
    for number, step in enumerate(steps):
        if step is None or step != steps[first]:
            first = number
        if step is not None and number + 1 - first > end - start:
            start, end = first, number + 1
    return start, end, (steps[start] or 0) if end else 0


def _moved(first: Sequence[int | None], second: Sequence[int | None]) -> list[int | None]:
    """How far each value lies from its counterpart; None if one of them is data and the other is not."""
    found: list[int | None] = []
    for one, other in zip(first, second, strict=False):
        if one is None or other is None:
            found.append(0 if one is other else None)
        else:
            found.append(other - one & 0xFFFFFFFF)
    return found


# Comparisons ------------------------------------------------------------------------------------------


def comparisons(shorter: Recorder, longer: Recorder, more: int) -> Iterator[tuple[str, int]]:
    """Comparisons whose sides may change places at some turn, or for some number of turns, that no run has come to.
    `more`: periods that the longest size has besides."""
    for (warp, at), entries in longer.comparisons.items():
        kind = longer.flow.code.code[at].parts[-1]
        for sides, of_shorter in _rounds(entries, shorter.comparisons.get((warp, at), [])):
            now, before = numbers(sides, kind), numbers(of_shorter, kind)
            if why := _changing(now, before) or _leaving(now, before, kind, more):
                yield f"a comparison of {warp} {why}", at


def moved_apart(shorter: Recorder, longer: Recorder) -> Iterator[tuple[int, int]]:
    """How far the sides of comparisons lie apart for a size, and how much farther for a longer one, where that is
    another number. Those with another one in each turn are left out."""
    for (warp, at), entries in longer.comparisons.items():
        kind = longer.flow.code.code[at].parts[-1]
        for sides, of_shorter in _rounds(entries, shorter.comparisons.get((warp, at), [])):
            now, before = ([a - b for a, b in numbers(run, kind)] for run in (sides, of_shorter))
            turns, half = len(now) - len(before), len(before) // 2
            if not turns or _is_periodic(now, turns):
                ends = zip(now[:half] + now[half + turns :], before, strict=True)
                yield from ((apart, of_longer - apart) for of_longer, apart in ends if of_longer != apart)


Sides = list[tuple[int, int]]


def numbers(sides: Sequence[tuple[int, int]], kind: str) -> Sides:
    """The sides as numbers of the type that is compared."""
    mask = (1 << _width(kind)) - 1
    if kind[0] == "u":
        return [(left & mask, right & mask) for left, right in sides]
    half = mask + 1 >> 1
    return [(((left & mask) ^ half) - half, ((right & mask) ^ half) - half) for left, right in sides]


def largest(kind: str) -> int:
    """The first number that a type has not."""
    return 1 << _width(kind) - (kind[0] != "u")


def _width(kind: str) -> int:
    return int(kind[1:]) if kind[1:].isdigit() else 32


def _changing(sides: Sides, of_shorter: Sides) -> str:
    """Why a comparison may change its result."""
    now, before = ([left - right for left, right in run] for run in (sides, of_shorter))
    turns = len(now) - len(before)
    if turns < 0 or (turns and len(now) < 2 * turns + 1):
        return f"is made {len(now)} times, {turns} of them in a period"
    if turns and not _is_periodic(now, turns):
        return _unsettled(now, before, turns)
    # what is ahead of the periods that are put in, and what is behind them
    half = len(before) // 2
    stay = all(map(_stays, now[:half] + now[half + turns :], before))
    return "" if stay else "may change its result for more turns"


def _leaving(now: Sides, before: Sides, kind: str, more: int) -> str:
    """Why a side may become a number that its type does not have, and begin again at another one."""
    for at in (0, -1) if before else ():
        for side, of_shorter in zip(now[at], before[at], strict=True):
            step = abs(side - of_shorter)
            if step and abs(side) + step * more > largest(kind):
                return "compares a number that has no room for all turns"
    return ""


def _is_periodic(values: Sequence[int], period: int) -> bool:
    return all(values[i] == values[i + period] for i in range(period, len(values) - period))


def _stays(now: int, before: int) -> bool:
    """Whether a difference does not move towards zero, or through it."""
    return now == before or 0 < before < now or now < before < 0


def _unsettled(now: Sequence[int], before: Sequence[int], period: int) -> str:
    middle = len(now) // 2 - period // 2
    step = now[middle + period] - now[middle]
    even = sum(now[i + period] - now[i] == step for i in range(len(now) - period))
    if even < len(now) - 2 * period:
        return "does not move evenly"
    if now[-1] == before[-1]:
        # it moves with the number of turns: it crosses zero near the last
        return ""
    if now[:period] == before[:period]:
        # it starts at one number: it has to have crossed zero
        crossed = (step > 0 and now[-1] > 0) or (step < 0 and now[-1] < 0)
        return "" if crossed else "may change its result at a later turn"
    sign = 1 if now[0] > 0 else -1
    leaves = sign * (now[0] - before[0]) >= 0 and sign * (now[-1] - before[-1]) >= 0
    if leaves and all(sign * difference > 0 for difference in (*now, *before)):
        # the more turns there are, the farther from zero it lies
        return ""
    return "follows neither the first turn nor the last"


# Operands ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Turning:
    """A loop of one warp whose turns grow, each time that it comes to it: its registers that go on moving, and what
    follows from them."""

    loop: Loop
    states: Sequence[Mapping[str, Value]]
    before: Sequence[Mapping[str, Value]]
    counters: Mapping[str, Followed]
    followers: Followers


def _turning(shorter: Recorder, longer: Recorder, sizes: Sizes) -> Iterator[Turning]:
    flow, longest = longer.flow, max(longer.states.values(), key=len, default=())
    for (warp, head), entries in longer.states.items():
        for states, before in _rounds(entries, shorter.states.get((warp, head), [])):
            turns = len(states) - len(before)
            counters = _counters(states, turns)
            if not counters:
                continue
            loop, heads = flow.heads[head], _at_head(states, turns)
            # rounded up, so that what one execution shows is looked at once for those a few turns shorter
            most = _rounded(len(longest)) + -(-LARGEST_SIZE // sizes.unit) * turns // sizes.period
            steady = steady_in(longer, warp, head, turns)
            of_loop = sizes.followed[head, turns, most, steady, frozenset(counters)]
            known = next((one for one in of_loop if one.is_of(heads)), None)
            if known is None:
                made = partial(Repeating, flow, loop, heads=heads, symbols=longer.symbols, period=turns, most=most,
                               seen=replace(sizes.seen, steady=steady), asked=set())  # fmt: skip
                of_loop.append(known := _followers(loop, made, counters, heads, sizes.times))
                sizes.stored.update(known.stored)
            yield Turning(loop, states, before, counters, known)


def _followers(
    loop: Loop, made: Callable[[Collection[str]], Repeating], counters: Mapping[str, Followed],
    heads: Mapping[Key, Counted], times: int,
) -> Followers:  # fmt: skip
    flow = made(()).flow
    following = Following(flow, loop.body, counters, partial(_settled, made(())))
    repeating = made(following.kinds.keys()).as_said()
    steps: dict[str, set[int | None]] = defaultdict(set)
    for at in loop.body:
        for to in flow.code.successors[at]:
            for name in flow.live[to] & following.kinds.keys() if to not in loop.members else ():
                steps[name].add(repeating.behind(at, name))
    uneven = {name for name, found in steps.items() if len(found) > 1 or None in found}
    # what the last turn makes of a counter may move otherwise than it does at the head
    others = {
        name: found.pop() or 0
        for name, found in steps.items()
        if name not in uneven and found not in ({0}, {repeating.at_head(name)})
    }
    wrong = tuple(_operands(loop, following, repeating, times))
    return Followers(heads, repeating.asked, wrong, others, uneven, tuple(following.stored(loop.body)))


def _rounded(number: int) -> int:
    return -(-number // 64) * 64


def _by_counters(shorter: Recorder, longer: Recorder, sizes: Sizes) -> Iterator[tuple[str, int]]:
    """What is done in loops, and behind them, by counters of theirs."""
    turning = list(_turning(shorter, longer, sizes))
    for one in turning:
        yield from one.followers.wrong
    yield from _left_behind(turning, sizes)


def _operands(loop: Loop, following: Following, repeating: Repeating, times: int) -> Iterator[tuple[str, int]]:
    """Synchronizing instructions an operand of which follows a counter, and comparisons that follow one otherwise than
    evenly: what they give may change at a turn that no run has come to."""
    of_operands = repeating.after(times)
    for at in loop.body:
        name = following.flow.code.code[at].parts[0]
        repeats = repeating if name == "setp" else of_operands
        if not all(repeats(at, operand) for operand in that_must_repeat(following.flow, at, following)):
            what = "a comparison follows a counter through more than its low bits"
            yield what if name == "setp" else f"an operand of {name} follows a counter", at


def _settled(values: Repeating, at: int, kind: Followed, follow: Mapping[str, Followed]) -> Followed | None:
    """What an instruction gives that chooses one of two numbers, if that moves evenly for all turns or repeats. What
    others give is looked at where it is asked for."""
    if values.flow.code.code[at].parts[0] not in ("min", "max"):
        return kind
    step = values.moved_by(at, follow.keys())
    return kind if step is None else Followed(Shape.EVEN, kind.reach, None) if step else None


def _at_head(states: Sequence[Mapping[str, Value]], period: int) -> dict[Key, Counted]:
    """What registers are at the head of a loop for any number of turns, if they move evenly in the middle."""
    found: dict[Key, Counted] = {}
    start = max(0, (len(states) - 2 * period) // 2)
    aligned = -(-start // period) * period
    # executions of some turns less show the same there
    start = aligned if aligned + 2 * period <= len(states) else start
    for name in states[start]:
        values = [state.get(name) for state in states[start : start + 2 * period]]
        lanes = range(WARP if any(isinstance(v, tuple) for v in values) else 1)
        pairs = [
            (of_lane(now, lane), of_lane(later, lane))
            for now, later in zip(values, values[period:], strict=False)
            for lane in lanes
        ]
        steps = {
            None if now is None or later is None else later - now
            for now, later in pairs
            if now is not None or later is not None
        }
        step = steps.pop() if len(steps) == 1 and len(values) == 2 * period else None
        numbers = [v for v in values if isinstance(v, int)]
        if step is not None:
            found[name] = evenly(numbers, period) if len(numbers) == len(values) else Counted((), unsigned(step, 64))
    return found


def _left_behind(turning: Sequence[Turning], sizes: Sizes) -> Iterator[tuple[str, int]]:
    """What is done behind loops by what their counters come to, and by what follows from these."""
    for one in turning:
        others, uneven = one.followers.others, one.followers.uneven
        names = one.counters.keys() - {*others, *uneven} if one.before else ()
        ends = {name: _end(one.states[-1].get(name), one.before[-1].get(name)) for name in names}
        counters = {name: end for name, end in ends.items() if end is None or end.step}
        yield from sizes.behind(one.loop, counters, others, uneven)


def _end(now: Value, before: Value) -> End | None:
    """What a loop leaves in a register; None if lanes differ in that, or it is less than nothing."""
    lanes = range(WARP if isinstance(now, tuple) or isinstance(before, tuple) else 1)
    steps = {(of_lane(now, lane) or 0) - (of_lane(before, lane) or 0) for lane in lanes}
    last = max(signed(of_lane(now, lane) or 0, 32) for lane in lanes)
    return End(steps.pop(), last) if len(steps) == 1 and last >= 0 else None


def _counters(states: Sequence[Mapping[str, Value]], period: int) -> dict[str, Followed]:
    """Registers that go on moving, with the low bits of each that were seen in all places of the period."""
    found: dict[str, int] = {}
    if not 0 < 2 * period < len(states):
        return {}
    for name in states[0].keys() & states[-1].keys():
        for lane in range(WARP) if any(isinstance(state.get(name), tuple) for state in states) else range(1):
            values = [of_lane(state.get(name), lane) for state in states]
            start, end, step = _even_part(values, period)
            if step:
                reach = reached(step, -(-(end - start) // period))
                found[name] = min(found.get(name, reach), reach)
    return {name: Followed(Shape.EVEN, reach) for name, reach in found.items()}
