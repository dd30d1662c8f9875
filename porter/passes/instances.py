# SPDX-License-Identifier: Apache-2.0
"""Files that only instantiate templates of headers: what such a file says apart from its template arguments.

Libraries give each instantiation a file of its own, to compile them beside each other. Such a file has includes,
conditions on macros that nothing else defines, explicit instantiations, and specializations whose bodies only call.
Two of them that differ in arguments alone are ported alike: arguments of host code decide nothing in a port. What rules
know, what the headers name, and numbers that are compute capabilities stay a part of what is compared.

Sources: C++20 [temp.explicit], [temp.expl.spec].
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

from porter.lang.lexical import lexed
from porter.model.recognition import Vocabulary
from porter.model.spellings import OF_WORDS
from porter.ptx.arch import CHIPS
from porter.rules.rule import Rule

_TOKEN = re.compile(rb"\s+|[A-Za-z_]\w*|\d[\w.']*|::|.", re.DOTALL)
_GUARD = re.compile(rb"[ \t]*#[ \t]*(?P<kind>ifdef|ifndef|endif|else|include|pragma)\b[ \t]*(?P<rest>[^\n]*)")
_WORD = re.compile(rb"[A-Za-z_]\w*")
_NUMBER = re.compile(rb"\d+")
_COMPARED = re.compile(rb"\b(?:is_same(?:_v)?|conditional(?:_t)?)\s*<[^;{}()]*?>")
"""Where headers ask which type an argument is: of a name that means nothing else to them, a port does not ask."""
_OF_A_TEMPLATE = frozenset({b"<", b">", b",", b"::"})
_IN_A_CALL = frozenset({b"(", b")", b"{", b"}", b";", b"&", b"*"}) | _OF_A_TEMPLATE
_FOREIGN = frozenset(
    b"__global__ __device__ __host__ asm class struct union enum using namespace extern operator if for while switch "
    b"new sizeof decltype friend concept requires typedef goto do try throw".split()
)


Said = tuple[tuple[str, tuple[str, ...]], ...]
"""IDs of rules and the texts that they match."""


@dataclass(frozen=True)
class Instances:
    """`parts` is the text, in which None stands for an argument or a macro that decides nothing; `given` are those, in
    order. `said` is what rules find in it."""

    parts: tuple[bytes | None, ...]
    given: tuple[bytes, ...]
    said: Said = ()

    @property
    def words(self) -> frozenset[str]:
        return frozenset(w.decode() for part in self.given for w in _WORD.findall(part))


def instances_in(source: bytes, named: Collection[bytes], say: Callable[[bytes], Said]) -> Instances | None:
    """What a file says, None for one that holds something else than instances. `named`: words that mean something to
    other files. `say`: what rules find in a text."""
    text = lexed(source)
    places = _guards(source, text.directives) if b'"' not in text.plain and b"'" not in text.plain else None
    arguments = _arguments(text.plain) if places is not None else None
    if places is None or arguments is None:
        return None
    own = {word for part in _outside(arguments, text.plain) for word in _WORD.findall(part)}
    free = [(s, e) for s, e in places if source[s:e] not in named and source[s:e] not in own]
    guards = {source[s:e] for s, e in free}
    free += [(s, e) for s, e in arguments if _decides_nothing(source[s:e], named, own | guards)]
    parts: list[bytes | None] = []
    at = 0
    for start, end in sorted(free):
        parts += [source[at:start], None]
        at = end
    return Instances((*parts, source[at:]), tuple(source[s:e] for s, e in sorted(free)), say(source))


def meaning(source: bytes) -> frozenset[bytes]:
    """The words of a header that may mean something: all but types that it only compares others with."""
    return _meaning(source)


@lru_cache(maxsize=512)
def _meaning(source: bytes) -> frozenset[bytes]:
    return frozenset(_WORD.findall(_COMPARED.sub(b" ", lexed(source).code)))


def saying(rules: Sequence[Rule], words: Vocabulary) -> Callable[[bytes], Said]:
    """What rules find in a text: their patterns and spellings, and words that they recognize."""
    patterns = [(r.id, r.pattern) for r in rules if r.pattern is not None]
    spelled = [(r.id, r.spelling) for r in rules if r.spelling is not None]
    patterns += [(id, spelling.pattern) for id, spelling in spelled if spelling.of not in OF_WORDS]
    of_words = [(id, spelling.pattern) for id, spelling in spelled if spelling.of in OF_WORDS]

    @lru_cache(maxsize=4096)
    def say(source: bytes) -> Said:
        text = lexed(source).code.decode("latin-1")
        own = re.findall(r"[A-Za-z_]\w*", text)
        found = [(id, tuple(m.group() for m in pattern.finditer(text))) for id, pattern in patterns]
        found += [(id, tuple(w for w in own if pattern.fullmatch(w))) for id, pattern in of_words]
        return (*((id, texts) for id, texts in found if texts), ("", tuple(w for w in own if w in words)))

    return say


def _decides_nothing(argument: bytes, named: Collection[bytes], own: Collection[bytes]) -> bool:
    if _NUMBER.fullmatch(argument):
        return int(argument) not in CHIPS and int(argument) // 10 not in CHIPS
    words = _WORD.findall(argument)
    return argument in (b"true", b"false") or not any(w in named or w in own for w in words[-1:])


def _guards(source: bytes, directives: Sequence[object]) -> list[tuple[int, int]] | None:
    """Macros that conditions ask for, None where there is another kind of directive."""
    found = []
    for span in directives:
        start, end = span.start, span.end  # type: ignore[attr-defined]
        match = _GUARD.fullmatch(source, start, end)
        if match is None:
            return None
        rest = match["rest"].split(b"//")[0].strip()
        if match["kind"] in (b"ifdef", b"ifndef"):
            if not _WORD.fullmatch(rest):
                return None
            found.append((match.start("rest"), match.start("rest") + len(rest)))
        elif match["kind"] == b"pragma" and rest != b"once":
            return None
    return found


def _arguments(plain: bytes) -> list[tuple[int, int]] | None:
    """Numbers and names in argument lists of templates, each name with its qualifiers; None where the text has
    something else than explicit instantiations, and specializations that call."""
    tokens = [(m.group(), m.start(), m.end()) for m in _TOKEN.finditer(plain) if not m.group().isspace()]
    found: list[tuple[int, int]] = []
    begins, depth, braces = True, 0, 0
    for i, (token, start, end) in enumerate(tokens):
        if begins and not braces and token != b"template":
            return None
        begins = False
        is_word = _WORD.fullmatch(token) is not None
        if token in _FOREIGN or not (is_word or token in _IN_A_CALL or _NUMBER.fullmatch(token)):
            return None
        if token == b"<":
            if i == 0 or not _WORD.fullmatch(tokens[i - 1][0]):
                return None
            depth += 1
        elif token == b">":
            depth -= 1
        elif depth and token not in _OF_A_TEMPLATE:
            if not (is_word or _NUMBER.fullmatch(token)):
                return None
            is_head = is_word and i + 1 < len(tokens) and tokens[i + 1][0] == b"<"
            if is_word and tokens[i - 1][0] == b"::" and found and found[-1][1] == tokens[i - 1][1]:
                found[-1] = (found[-1][0], end)
            else:
                found.append((start, end))
            if is_head:
                # a template among the arguments stays what it is
                found.pop()
        elif depth and token == b"::" and found and found[-1][1] == start:
            found[-1] = (found[-1][0], start)
        elif not depth and token in (b"{", b"}"):
            braces += 1 if token == b"{" else -1
            begins = not braces
        elif not depth and token == b";":
            begins = not braces
        if depth < 0 or braces < 0:
            return None
    return found if begins and not depth and not braces else None


def _outside(places: Sequence[tuple[int, int]], text: bytes) -> list[bytes]:
    """The text between places."""
    ends = [0, *(end for _, end in places)]
    starts = [*(start for start, _ in places), len(text)]
    return [text[end:start] for end, start in zip(ends, starts, strict=True)]
