# SPDX-License-Identifier: Apache-2.0
"""Macro expansion of pieces of C++ text, as the preprocessor does it (C++ [cpp.replace]): to a fixpoint, with `#`,
`##` and `__VA_ARGS__`; a macro is not expanded again inside its own expansion."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from porter.lang.lexical import MacroText

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"""|(?P<word>[A-Za-z_]\w*)|(?P<number>\.?\d(?:[\w.]|[eEpP][+-]|'\w)*)|(?P<paste>\#\#)|(?P<other>.)""",
    re.DOTALL | re.VERBOSE,
)
_MOST_CHARACTERS = 200_000
_MOST_CHOICES = 8


class TooLong(Exception):
    """An expansion that grows without end, or beyond what anybody writes."""


@dataclass(frozen=True)
class Macro:
    """`params` is None for an object-like macro; the last of them is `...` if it takes any number."""

    name: str
    params: tuple[str, ...] | None
    body: str


@dataclass
class Macros:
    """The macros of a source set by name; of several definitions of one name all are kept, since which of them holds
    depends on what is compiled."""

    by_name: dict[str, list[Macro]] = field(default_factory=dict)

    @staticmethod
    def of(definitions: Iterable[MacroText]) -> Macros:
        found = Macros()
        for definition in definitions:
            params = None if definition.params is None else tuple(definition.params)
            macro = Macro(definition.name, params, definition.joined.decode("utf-8", "replace"))
            known = found.by_name.setdefault(definition.name, [])
            if macro not in known:
                known.append(macro)
        return found

    def __contains__(self, name: str) -> bool:
        return name in self.by_name

    def words(self, name: str) -> frozenset[str]:
        """Every word that an expansion of the macro may hold, itself not counted in; pasted words are not among
        them."""
        found: set[str] = set()
        work = [name]
        while work:
            for macro in self.by_name.get(work.pop(), ()):
                new = set(re.findall(r"[A-Za-z_]\w*", macro.body)) - found
                found |= new
                work += [w for w in new if w in self.by_name]
        return frozenset(found)

    def text(self, name: str) -> str:
        """The macro's own bodies, and those of the macros that they use in turn."""
        used = [m.body for w in sorted(self.words(name)) for m in self.by_name.get(w, ())]
        return " ".join([*(m.body for m in self.by_name.get(name, ())), *used])

    def pastes(self, name: str) -> bool:
        """Whether an expansion may make words of its own by `##`."""
        return any("##" in m.body for w in (name, *self.words(name)) for m in self.by_name.get(w, ()))

    def expand(self, text: str) -> list[str]:
        """The expansions of a piece of text, one for each way to choose among definitions of one name (the first
        ones where there are very many).

        Raises:
            TooLong: it grows beyond 200,000 characters.
        """
        named = set(re.findall(r"[A-Za-z_]\w*", text)) & self.by_name.keys()
        reached = named.union(*(self.words(n) for n in named))
        chosen: list[dict[str, Macro]] = [{}]
        for name in sorted(reached & self.by_name.keys()):
            if len(self.by_name[name]) > 1:
                chosen = [{**c, name: d} for c in chosen for d in self.by_name[name]][:_MOST_CHOICES]
        return list(dict.fromkeys(self._expand(text, c, frozenset()) for c in chosen))

    def _macro(self, name: str, chosen: Mapping[str, Macro]) -> Macro | None:
        definitions = self.by_name.get(name)
        return None if not definitions else chosen.get(name, definitions[0])

    def _expand(self, text: str, chosen: Mapping[str, Macro], hidden: frozenset[str]) -> str:
        if len(text) > _MOST_CHARACTERS:
            raise TooLong
        tokens = _tokens(text)
        out: list[str] = []
        at = 0
        while at < len(tokens):
            token = tokens[at]
            macro = self._macro(token, chosen) if token[:1].isalpha() or token[:1] == "_" else None
            at += 1
            if macro is None or macro.name in hidden:
                out.append(token)
                continue
            if macro.params is None:
                out.append(self._expand(macro.body, chosen, hidden | {macro.name}))
                continue
            found = _arguments(tokens, at)
            if found is None:
                out.append(token)
                continue
            arguments, at = found
            body = self._substitute(macro, arguments, chosen, hidden)
            out.append(self._expand(body, chosen, hidden | {macro.name}))
        result = "".join(out)
        if len(result) > _MOST_CHARACTERS:
            raise TooLong
        return result

    def _substitute(
        self, macro: Macro, arguments: Sequence[str], chosen: Mapping[str, Macro], hidden: frozenset[str]
    ) -> str:
        assert macro.params is not None
        names = list(macro.params)
        values = dict(zip(names, arguments, strict=False))
        variadic = bool(names) and names[-1].endswith("...")
        if variadic:
            name = names[-1].removesuffix("...").strip() or "__VA_ARGS__"
            values.pop(names[-1], None)
            values[name] = ",".join(arguments[len(names) - 1 :])
        tokens = _tokens(macro.body)
        out: list[str] = []
        for index, token in enumerate(tokens):
            before, behind = _neighbour(tokens, index, -1), _neighbour(tokens, index, 1)
            if token == "#" and macro.params is not None and behind in values:
                continue
            if token not in values:
                out.append(token)
            elif before == "#":
                text = values[token].strip().replace("\\", "\\\\").replace('"', '\\"')
                out.append(f'"{text}"')
            elif "##" in (before, behind):
                out.append(values[token].strip())
            else:
                out.append(self._expand(values[token], chosen, hidden))
        return re.sub(r"\s*##\s*", "", "".join(out))


def _tokens(text: str) -> list[str]:
    return [m.group() for m in _TOKEN.finditer(text)]


def _neighbour(tokens: Sequence[str], index: int, step: int) -> str:
    index += step
    while 0 <= index < len(tokens) and tokens[index].isspace():
        index += step
    return tokens[index] if 0 <= index < len(tokens) else ""


def _arguments(tokens: Sequence[str], at: int) -> tuple[list[str], int] | None:
    """The arguments in parentheses from a token on, and the index behind them; None if no parenthesis follows."""
    while at < len(tokens) and tokens[at].isspace():
        at += 1
    if at >= len(tokens) or tokens[at] != "(":
        return None
    found, depth = [""], 0
    while at < len(tokens):
        token = tokens[at]
        at += 1
        if token in "([{":
            depth += 1
            if depth == 1:
                continue
        elif token in ")]}":
            depth -= 1
            if depth == 0:
                return [a.strip() for a in found], at
        if token == "," and depth == 1:
            found.append("")
        else:
            found[-1] += token
    return None
