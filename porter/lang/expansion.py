# SPDX-License-Identifier: Apache-2.0
"""What the string literals of a source set are once its macros are expanded.

Macros are expanded as the preprocessor does it: arguments first, `#` and `##` on what was written, a name not again in
what it stands for (C++ [cpp.rescan]). Which branch of an `#if` holds is not known here; of several definitions of a
name each is tried.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from porter.lang.asm import unescape
from porter.lang.cuda import CudaFile
from porter.lang.lexical import MacroText, blanked
from porter.lang.sources import SourceSet
from porter.lang.text import Span

_TOKEN = re.compile(
    r"(?P<space>\s+|\\\r?\n|//[^\n]*|/\*.*?\*/)"
    r'|(?P<raw>(?:u8|[uUL])?R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)")'
    r'|(?P<string>(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*")'
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<number>\.?\d(?:[\w.]|'\w|[eEpP][+-])*)"
    r"|(?P<char>'(?:[^'\\\n]|\\.)+')"
    r"|(?P<punct>##|::|.)",
    re.DOTALL,
)
_BLANKS = re.compile(r"(?:\s+|\\\r?\n|//[^\n]*|/\*.*?\*/)+", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*")
_BYTES_NAME = re.compile(rb"[A-Za-z_]\w*")
_DULL = (
    r"(?:\s+|\\\r?\n|//[^\n]*|/\*.*?\*/"
    r'|(?:(?<=[,:(])|(?<=[,:(]\s))"[^"\\\n]*"(?=\()'
    r'|(?!(?:u8|[uUL])?R?")%s[A-Za-z_]\w*'
    r"|\.?\d(?:[\w.]|'\w|[eEpP][+-])*"
    r"|'(?:[^'\\\n]|\\.)+'"
    r'|[^\w\s\\"\'])++'
)
"""Code without strings other than an operand's constraint, and without names of which what is put in front of a name
says that they are macros."""
_AS_INSTRUCTION = re.compile(r"(?:^|[;{}:\n])\s*(?:@\S+\s+)?\x00([^\x00]*)\x00")
"""A name that is no text of a template, where an instruction's name would stand."""
_ASM = ("asm", "__asm__", "__asm")
_ASM_WORDS = ("volatile", "__volatile__", "goto", "inline", "(")
_ASM_ENDS = (":", "::", ")", ";")
_MOST_TOKENS = 200_000
"""Of one expansion. More is a macro that nobody writes by hand."""
_MOST_DEFINITIONS = 4


@dataclass(frozen=True)
class Token:
    """One preprocessing token. `origin` is the offset in its file of the code that it comes from: its own, or that of
    the macro's use. `chain` are the macros that it came out of, the used one first; `made` says that `#` or `##` made
    it. `spaced`: blanks stand before it."""

    kind: str
    text: str
    origin: int
    spaced: bool = False
    chain: tuple[str, ...] = ()
    made: bool = False
    hidden: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Joined:
    """Text in adjacent string literals that no single literal of the source holds. `span` is the code that it comes
    from, `chain` the macros that made it; none of them if the literals stand in code."""

    path: str
    span: Span
    text: str
    chain: tuple[str, ...]


@dataclass(frozen=True)
class _Macro:
    name: str
    params: tuple[str, ...] | None
    variadic: bool
    body: tuple[Token, ...]


class TooLong(Exception):
    """An expansion that grows beyond what anybody writes by hand."""


def joined_strings(sources: SourceSet, pattern: re.Pattern[str], piece: re.Pattern[bytes]) -> list[Joined]:
    """Where the pattern is in strings that only the preprocessor puts together, once for each place and text. What has
    no `piece` in it makes none."""
    found: dict[tuple[str, int, str], Joined] = {}
    macros = [m for file in sources.files.values() for m in file.lexed.macros()]
    carrying = _carrying(macros, piece)
    holding = {
        path
        for path, file in sources.files.items()
        if piece.search(file.source) or not carrying.isdisjoint(_BYTES_NAME.findall(file.source))
    }
    for file, expander in _expansions(sources):
        if file.path not in holding:
            continue
        for joined in _of_file(file, expander, pattern):
            found.setdefault((joined.path, joined.span.start, joined.text), joined)
    return list(found.values())


def _carrying(macros: Sequence[MacroText], piece: re.Pattern[bytes]) -> set[bytes]:
    """Names of macros that a piece may come out of: one in a body, in that of a macro in it, or in what `##` names."""
    words = [(m.name.encode(), set(_BYTES_NAME.findall(m.body))) for m in macros]
    found = {m.name.encode() for m in macros if b"##" in m.body or piece.search(m.body)}
    while more := {name for name, used in words if name not in found and not found.isdisjoint(used)}:
        found |= more
    return found


def unread_templates(sources: SourceSet) -> list[Joined]:
    """asm statements whose template has, where an instruction would begin, a name of which nobody knows what it stands
    for; once for each place. `text` is that name."""
    found: dict[tuple[str, int], Joined] = {}
    for file, expander in _expansions(sources):
        for joined in _made_templates(file, expander):
            found.setdefault((joined.path, joined.span.start), joined)
    return list(found.values())


def _expansions(sources: SourceSet) -> Iterator[tuple[CudaFile, _Expander]]:
    """Every file, with the macros of the whole set; of several definitions of a name each once."""
    definitions: dict[str, list[MacroText]] = {}
    for file in sources.files.values():
        for macro in file.lexed.macros():
            if all(m.joined != macro.joined or m.params != macro.params for m in definitions.get(macro.name, ())):
                definitions.setdefault(macro.name, []).append(macro)
    rounds = min(max((len(d) for d in definitions.values()), default=1), _MOST_DEFINITIONS)
    for chosen in range(rounds):
        macros = _Macros({name: d[min(chosen, len(d) - 1)] for name, d in definitions.items()})
        for file in sources.files.values():
            yield file, _Expander(macros)


def expanded_text(text: str, macros: Mapping[str, MacroText]) -> str:
    """A piece of code with every use of a macro replaced by what it stands for.

    Raises:
        TooLong: an expansion does not end, or grows beyond what anybody writes by hand.
    """
    expander = _Expander(_Macros(macros), strict=True)
    return "".join(" " * t.spaced + t.text for t in expander.stream(text))


def _expanded(file: CudaFile, expander: _Expander) -> Iterator[Token]:
    """The tokens of a file's code, with one for each stretch that has neither strings nor macros."""
    code = bytearray(file.source)
    for span in file.lexed.directives:
        code[span.start : span.end] = blanked(file.source[span.start : span.end])
    text = code.decode("latin-1")
    yield from expander.stream(text, _dull(text, expander.macros))
    yield Token("end", "", len(text))


def _made_templates(file: CudaFile, expander: _Expander) -> Iterator[Joined]:
    template: list[str] | None = None
    last = None
    for token in _expanded(file, expander):
        if token.text in _ASM:
            template, last = [], token
        elif template is None or last is None or token.text in _ASM_WORDS:
            continue
        elif token.kind in ("string", "raw"):
            template.append(_value(token))
        elif token.kind == "name":
            template.append(f"\x00{token.text}\x00")
        else:
            if (hidden := _AS_INSTRUCTION.search("".join(template))) is not None:
                end = last.origin + len(last.chain[0] if last.chain else last.text)
                yield Joined(file.path, Span(last.origin, min(end, len(file.source))), hidden[1], last.chain)
            template = None


def _of_file(file: CudaFile, expander: _Expander, pattern: re.Pattern[str]) -> Iterator[Joined]:
    run: list[Token] = []
    for token in _expanded(file, expander):
        if token.kind in ("string", "raw"):
            run.append(token)
            continue
        if run:
            yield from _matches(file, run, pattern)
            run = []


def _matches(file: CudaFile, run: Sequence[Token], pattern: re.Pattern[str]) -> Iterator[Joined]:
    values = [_value(t) for t in run]
    starts = [0]
    for value in values:
        starts.append(starts[-1] + len(value))
    for match in pattern.finditer("".join(values)):
        first = max(i for i, s in enumerate(starts[:-1]) if s <= match.start())
        last = max(i for i, s in enumerate(starts[:-1]) if s < match.end())
        if first == last and not run[first].made and pattern.search(run[first].text):
            continue
        pieces = run[first : last + 1]
        at = min(t.origin for t in pieces)
        chain = max((t.chain for t in pieces), key=len)
        end = at + max(len(t.text) if not t.chain else len(t.chain[0]) for t in pieces if t.origin == at)
        yield Joined(file.path, Span(at, min(end, len(file.source))), match.group(), chain)


def _value(token: Token) -> str:
    inside = token.text[token.text.index('"') + 1 : -1]
    if token.kind == "raw":
        return inside[inside.index("(") + 1 : inside.rindex(")")]
    return unescape(inside)


def _dull(text: str, macros: Container[str]) -> re.Pattern[str]:
    """What matches code without strings, macros and asm."""
    used = [re.escape(name) for name in sorted(set(_NAME.findall(text))) if name in macros or name in _ASM]
    no_macro = rf"(?!(?:{'|'.join(used)})\b)" if used else ""
    return re.compile(_DULL % no_macro, re.DOTALL)


def _tokens(text: str, at: int = 0) -> Iterator[Token]:
    spaced = False
    for match in _TOKEN.finditer(text, at):
        kind = match.lastgroup if match.lastgroup != "mark" else "raw"
        assert kind is not None
        if kind == "space":
            spaced = True
            continue
        yield Token("raw" if match.group("raw") else kind, match.group(), match.start(), spaced)
        spaced = False


def _read(macro: MacroText) -> _Macro:
    params = macro.params
    variadic = params is not None and any(p.endswith("...") for p in params)
    names = tuple(p.removesuffix("...").strip() or "__VA_ARGS__" for p in params) if params is not None else None
    body = tuple(_tokens(macro.joined.decode("latin-1")))
    return _Macro(macro.name, names, variadic, body)


class _Macros:
    """Macros by name, each read when it is asked for: most are never used."""

    def __init__(self, texts: Mapping[str, MacroText]) -> None:
        self._texts = texts
        self._known: dict[str, _Macro] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._texts

    def get(self, name: str) -> _Macro | None:
        if name not in self._known:
            if name not in self._texts:
                return None
            self._known[name] = _read(self._texts[name])
        return self._known[name]


class _Expander:
    """Macro expansion with hide sets (Prosser's algorithm, which the C standard's text was written from)."""

    def __init__(self, macros: _Macros, strict: bool = False) -> None:
        self.macros = macros
        self.strict = strict
        self._left = _MOST_TOKENS

    def stream(self, text: str, dull: re.Pattern[str] | None = None) -> Iterator[Token]:
        """The tokens of a text, each use of a macro replaced by what it stands for; what matches `dull` outside of asm
        is one."""
        at = 0
        in_asm = False
        while at < len(text):
            blanks = _BLANKS.match(text, at)
            at = blanks.end() if blanks is not None else at
            skipped = dull.match(text, at) if dull is not None and not in_asm else None
            if skipped is not None:
                yield Token("dull", "", at)
                at = skipped.end()
                continue
            token = next(_tokens(text, at), None)
            if token is None:
                return
            token = replace(token, spaced=blanks is not None)
            in_asm = token.text in _ASM or (in_asm and token.text not in _ASM_ENDS)
            macro = self.macros.get(token.text) if token.kind == "name" else None
            at = token.origin + len(token.text)
            if macro is None:
                yield token
                continue
            called, end = _parenthesised(text, at) if macro.params is not None else ([], at)
            if macro.params is not None and not called:
                yield token
                continue
            expanded, at = self._use([token, *called], text, end)
            yield from expanded

    def _use(self, tokens: Sequence[Token], text: str, at: int) -> tuple[Sequence[Token], int]:
        """What a use of a macro stands for, and where the text goes on behind it."""
        self._left = _MOST_TOKENS
        origin = tokens[0].origin
        use = [replace(t, origin=origin) for t in tokens]
        try:
            expanded = self._expand(use)
            last = expanded[-1] if expanded else None
            if last is not None and last.kind == "name" and last.text in self.macros:
                # what follows may be the arguments of a macro that the expansion ends with
                behind, end = _parenthesised(text, at)
                if behind:
                    return self._expand([*use, *(replace(t, origin=origin) for t in behind)]), end
            return expanded, at
        except (TooLong, RecursionError):
            if self.strict:
                raise TooLong from None
            return use, at

    def _expand(self, tokens: Sequence[Token]) -> list[Token]:
        pending = list(reversed(tokens))
        done: list[Token] = []
        while pending:
            self._left -= 1
            if self._left < 0:
                raise TooLong
            token = pending.pop()
            macro = self.macros.get(token.text) if token.kind == "name" and token.text not in token.hidden else None
            if macro is None:
                done.append(token)
                continue
            if macro.params is None:
                body = self._substituted(macro, {}, token, token.hidden | {macro.name})
                pending.extend(reversed(body))
                continue
            ahead = pending[::-1]
            end = _closing(ahead, 0)
            if end is None:
                done.append(token)
                continue
            arguments = _arguments(ahead[1 : end - 1], macro)
            if arguments is None:
                done.append(token)
                continue
            hidden = (token.hidden & ahead[end - 1].hidden) | {macro.name}
            body = self._substituted(macro, arguments, token, hidden)
            del pending[len(pending) - end :]
            pending.extend(reversed(body))
        return done

    def _substituted(
        self, macro: _Macro, arguments: dict[str, list[Token]], use: Token, hidden: frozenset[str]
    ) -> list[Token]:
        """The body with arguments in place of parameters, `#` and `##` applied."""
        chain = (*use.chain, macro.name)
        expanded: dict[str, list[Token]] = {}
        result: list[Token] = []
        body = macro.body
        at = 0
        while at < len(body):
            token = replace(body[at], origin=use.origin, chain=chain)
            following = body[at + 1] if at + 1 < len(body) else None
            if token.text == "#" and macro.params is not None and following is not None and following.text in arguments:
                result.append(_stringized(arguments[following.text], token))
                at += 2
                continue
            if token.text == "##" and result and following is not None:
                right = arguments.get(following.text, [replace(following, origin=use.origin, chain=chain)])
                if right and result[-1].kind != "placemarker":
                    result[-1:] = [*_pasted(result[-1], right[0], chain), *right[1:]]
                elif right:
                    result[-1:] = list(right)
                at += 2
                continue
            if token.kind == "name" and token.text in arguments:
                pasted = following is not None and following.text == "##"
                if pasted:
                    argument = arguments[token.text]
                elif token.text not in expanded:
                    argument = expanded[token.text] = self._expand(arguments[token.text])
                else:
                    argument = expanded[token.text] if self.strict else _outside(expanded[token.text])
                result += argument or ([Token("placemarker", "", use.origin)] if pasted else [])
            else:
                result.append(token)
            at += 1
        return [replace(t, hidden=t.hidden | hidden) for t in result if t.kind != "placemarker"]


def _outside(tokens: list[Token]) -> list[Token]:
    """An argument that stands in the same body once more, without the statements inside it: nothing is found in them
    that was not found the first time, and bodies that have an argument for each of many types, one in the other, grow
    without end."""
    depth = 0
    ends: list[int] = []
    for i, token in enumerate(tokens):
        if token.kind == "punct":
            depth += (token.text in "([") - (token.text in ")]")
            if depth == 0 and token.text in ";{}":
                ends.append(i)
    return [*tokens[: ends[0] + 1], *tokens[ends[-1] :]] if len(ends) > 1 else tokens


def _parenthesised(text: str, at: int) -> tuple[list[Token], int]:
    """The tokens from a parenthesis at `at` to the one that closes it, and where they end; none if there is none."""
    found: list[Token] = []
    depth = 0
    for token in _tokens(text, at):
        found.append(token)
        if token.kind == "punct":
            depth += (token.text == "(") - (token.text == ")")
        if depth == 0:
            return (found, token.origin + 1) if token.text == ")" and len(found) > 1 else ([], at)
    return [], at


def _closing(tokens: Sequence[Token], at: int) -> int | None:
    """Behind the parenthesis that closes the one at `at`; None if there is none at that place."""
    if at >= len(tokens) or tokens[at].text != "(":
        return None
    depth = 0
    for i in range(at, len(tokens)):
        if tokens[i].kind == "punct":
            depth += (tokens[i].text == "(") - (tokens[i].text == ")")
            if depth == 0:
                return i + 1
    return None


def _arguments(inside: Sequence[Token], macro: _Macro) -> dict[str, list[Token]] | None:
    assert macro.params is not None
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in inside:
        if token.kind == "punct":
            depth += (token.text == "(") - (token.text == ")")
            last = macro.variadic and len(parts) == len(macro.params)
            if token.text == "," and depth == 0 and not last:
                parts.append([])
                continue
        parts[-1].append(token)
    if parts == [[]] and not macro.params:
        parts = []
    if macro.variadic and len(parts) == len(macro.params) - 1:
        parts.append([])
    return dict(zip(macro.params, parts, strict=True)) if len(parts) == len(macro.params) else None


def _stringized(argument: Sequence[Token], operator: Token) -> Token:
    text = ""
    for i, token in enumerate(argument):
        text += " " * (token.spaced and i > 0)
        literal = token.kind in ("string", "char", "raw")
        text += token.text.replace("\\", "\\\\").replace('"', '\\"') if literal else token.text
    return replace(operator, kind="string", text=f'"{text}"', made=True)


def _pasted(left: Token, right: Token, chain: tuple[str, ...]) -> list[Token]:
    tokens = list(_tokens(left.text + right.text))
    return [
        replace(t, origin=left.origin, spaced=left.spaced if i == 0 else t.spaced, chain=chain, made=True)
        for i, t in enumerate(tokens)
    ]
