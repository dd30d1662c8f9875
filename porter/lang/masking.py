# SPDX-License-Identifier: Apache-2.0
"""Length-preserving masks that let a C++ grammar read macro-heavy CUDA.

A mask replaces bytes by as many bytes, and never a line end, so that every offset in the tree is an offset in
the original. Names that are specifiers or pragmas for certain are masked at once, if that leaves no parse error.
Other masks are tried one at a time, only on a file that has parse errors, and kept only if the errors become fewer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tree_sitter import Tree

from porter.lang.lexical import MacroText, blanked, closing, lexed, padded, without_mark

Replacement = tuple[int, int, bytes]
Cost = tuple[int, int]


@dataclass(frozen=True)
class MacroUses:
    """What macro names stand for, where that matters to the parser.

    specifiers: name -> what to put in its place (`__device__`, `__global__`, `inline` or nothing);
    pragmas: names that expand to a `_Pragma` only.
    """

    specifiers: Mapping[str, bytes] = field(default_factory=dict)
    pragmas: frozenset[str] = frozenset()

    def joined(self, other: MacroUses) -> MacroUses:
        return MacroUses({**self.specifiers, **other.specifiers}, self.pragmas | other.pragmas)


NO_MACROS = MacroUses()

_SPECIFIERS, _LOOPS = "specifier macros", "loop macros"
_SPECIFIER_BODY = re.compile(
    rb"(?:__device__|__host__|__global__|__forceinline__|__noinline__|__inline__|inline|static|constexpr|extern"
    rb"|__constant__|__shared__|__restrict__|__attribute__\s*\(\(.*?\)\)|__declspec\s*\([^)]*\)|\[\[.*?\]\]"
    rb"|__launch_bounds__\s*\([^)]*\)|__cluster_dims__\s*\([^)]*\)|\s)+"
)
_PRAGMA_BODY = re.compile(rb'(?:_Pragma\s*\(\s*"(?:[^"\\]|\\.)*"\s*\)|__pragma\s*\([^)]*\)|\s)+')


def learn_macros(macros: Iterable[MacroText]) -> MacroUses:
    """The maskable macros among these definitions.

    A macro that is defined in terms of another maskable one (`#define DEVICE FORCE __device__`) counts too.
    An empty body says that the name stands for nothing: it may be blanked, but never in place of a call.
    """
    specifiers: dict[str, bytes] = {}
    pragmas: set[str] = set()
    # What is called like a function stands for a pragma or is not masked.
    pending = [macro for macro in macros if macro.params is None or b"ragma" in macro.body]
    for _ in range(3):
        for macro in pending:
            body = macro.joined
            for name in re.findall(rb"\b[A-Za-z_]\w*\b", body):
                text = name.decode()
                if text in specifiers:
                    body = re.sub(rb"\b" + name + rb"\b", specifiers[text] or b" ", body)
            if macro.params is None and (not body.strip() or _SPECIFIER_BODY.fullmatch(body)):
                # Between two definitions of a name (#if … #else) the one that says more wins.
                found = _stands_for(body)
                if found or macro.name not in specifiers:
                    specifiers[macro.name] = found
            elif _PRAGMA_BODY.fullmatch(body) and body.strip():
                pragmas.add(macro.name)
    for name in pragmas:
        specifiers.pop(name, None)
    return MacroUses(specifiers, frozenset(pragmas))


def _stands_for(body: bytes) -> bytes:
    for word in (b"__global__", b"__device__", b"__host__", b"inline", b"static", b"constexpr"):
        if re.search(rb"(?<!\w)" + word + rb"(?!\w)", body):
            return word
    return b"inline" if re.search(rb"__forceinline__|__inline__|__noinline__", body) else b""


# Names that headers outside the file set define. Learnt definitions come first.
_KNOWN_SPECIFIER = re.compile(
    rb"\b(?:[A-Z][A-Z0-9]*_)*(?:HOST_DEVICE|DEVICE_HOST|DEVICE|GLOBAL|KERNEL|HOST|FORCE_?INLINE|INLINE|NOINLINE"
    rb"|HD|API|EXPORT|CONSTEXPR)(?:_INLINE|_FUNC|_NOINLINE)?\b(?!\s*\()"
    rb"|\b__KD?_?HD?__\b"
)
_KNOWN_PRAGMA = re.compile(rb"\b(?:[A-Z][A-Z0-9]*_)*(?:PRAGMA_)?(?:NO_?)?UNROLL(?:_[A-Z0-9]+)*\b")


_BETWEEN_WORDS = bytes(c if (chr(c).isalnum() and c < 0x80) or c == 0x5F else 0x20 for c in range(256))


def _words(text: bytes) -> set[bytes]:
    """The names and numbers of a text."""
    return set(text.translate(_BETWEEN_WORDS).split())


def _specifiers(code: bytes, plain: bytes, uses: MacroUses) -> Iterator[Replacement]:
    words = _words(plain)
    return _masked_words({w for w in words if w.decode() in uses.specifiers or _looks_like_specifier(w)}, plain, uses)


def _masked_words(words: set[bytes], plain: bytes, uses: MacroUses) -> Iterator[Replacement]:
    if not words:
        return
    for match in re.finditer(rb"\b(?:" + b"|".join(sorted(words, reverse=True)) + rb")\b", plain):
        substitute = uses.specifiers.get(match.group().decode())
        if substitute is None:
            if plain[match.end() : match.end() + 40].lstrip()[:1] in (b"(", b"=", b",", b")", b";", b":"):
                continue
            substitute = _guess(match.group())
        before = match.start() - 1
        while before >= 0 and plain[before] in b" \t\r\n\f\v":
            before -= 1
        if before >= 0 and plain[before] in b")]":
            # After a parameter list or a capture the grammar knows no specifier.
            substitute = b""
        if len(substitute) > len(match.group()):
            # `function_specifiers` still says what a short name stands for.
            substitute = b"inline"
        yield match.start(), match.end(), padded(match.group(), substitute)


def _looks_like_specifier(word: bytes) -> bool:
    return word.isupper() and _KNOWN_SPECIFIER.fullmatch(word) is not None


def _looks_like_pragma(word: bytes) -> bool:
    return word.isupper() and _KNOWN_PRAGMA.fullmatch(word) is not None


def specifier_of(word: str, uses: MacroUses) -> str:
    """The specifier that a macro in front of a function stands for, by its definition or else by its name; the word
    itself if it is none."""
    if word in uses.specifiers:
        return uses.specifiers[word].decode() or word
    name = word.encode()
    if not _looks_like_specifier(name):
        return word
    return "__device__" if b"DEVICE" in name else _guess(name).decode() or word


def _before_type(word: bytes) -> re.Pattern[bytes]:
    """Where a word can be no name of a type, variable or constant."""
    return re.compile(rb"\b" + word + rb"\s+(?:static\s+|inline\s+|constexpr\s+)*(?:void|auto|bool|int|float)\b")


def _before_loop(word: bytes) -> re.Pattern[bytes]:
    return re.compile(rb"\b" + word + rb"\s+(?:for|while)\s*\(")


def _guess(name: bytes) -> bytes:
    if b"GLOBAL" in name or b"KERNEL" in name:
        return b"__global__"
    if b"DEVICE" in name:
        return b"__device__" if len(name) >= 10 else b"inline"
    if b"INLINE" in name:
        return b"inline"
    return b""


def _loop_macros(code: bytes, plain: bytes, uses: MacroUses) -> Iterator[Replacement]:
    names = [w for w in _words(plain) if w.decode() in uses.pragmas or _looks_like_pragma(w)]
    return _masked_pragmas([rb"\b" + n + rb"\b" for n in sorted(names)], plain) if names else iter(())


def _masked_pragmas(patterns: list[bytes], plain: bytes) -> Iterator[Replacement]:
    for match in re.finditer(b"|".join(patterns), plain):
        end = match.end()
        if call := re.compile(rb"[ \t]*\(").match(plain, end):
            end = max(end, closing(plain, call.end() - 1))
        yield match.start(), end, blanked(plain[match.start() : end])


def _alignment(code: bytes, plain: bytes, uses: MacroUses) -> Iterator[Replacement]:
    for match in re.finditer(rb"\b(?:__align__|[A-Z]+_ALIGNAS|ALIGNAS|ALIGN|[A-Z]+_ALIGN)(?=\s*\()", plain):
        yield match.start(), match.end(), padded(match.group(), b"alignas")


def _postfix_alignment(code: bytes, plain: bytes, uses: MacroUses) -> Iterator[Replacement]:
    if b"align" in plain:
        yield from _calls(plain, re.compile(rb"(?<=[\])\w])\s*\b(?:alignas|__align__)\s*\("))


def _kernel_attributes(code: bytes, plain: bytes, uses: MacroUses) -> Iterator[Replacement]:
    yield from _calls(plain, re.compile(rb"\b(?:__cluster_dims__|__maxnreg__|__block_size__)\s*\("))


def _launch_bounds(code: bytes, plain: bytes, uses: MacroUses) -> Iterator[Replacement]:
    yield from _calls(plain, re.compile(rb"\b(?:__launch_bounds__|[A-Z_]*LAUNCH_BOUNDS)\s*\("))


def _calls(plain: bytes, head: re.Pattern[bytes]) -> Iterator[Replacement]:
    for match in head.finditer(plain):
        end = closing(plain, match.end() - 1)
        if end > 0:
            yield match.start(), end, blanked(plain[match.start() : end])


def _grid_constant(code: bytes, plain: bytes, uses: MacroUses) -> Iterator[Replacement]:
    for match in re.finditer(rb"\b[A-Z]\w*_GRID_CONSTANT\b|\bGRID_CONSTANT\b", plain):
        yield match.start(), match.end(), padded(match.group(), b"__grid_constant__")
    for match in re.finditer(rb"\b__grid_constant__\b", plain):
        yield match.start(), match.end(), blanked(match.group())


def _attributes(code: bytes, plain: bytes, uses: MacroUses) -> Iterator[Replacement]:
    for match in re.finditer(rb"\[\[[\w:,\s()]*\]\]", plain):
        yield match.start(), match.end(), blanked(match.group())
    yield from _calls(plain, re.compile(rb"\b(?:__attribute__|__declspec)\s*\("))


def _operators(code: bytes, plain: bytes, uses: MacroUses) -> Iterator[Replacement]:
    # Directives included: `#if defined(A) and defined(B)` is where they hurt.
    for match in re.finditer(rb"\b(?:and|or|not)\b", code):
        yield match.start(), match.end(), {b"and": b"&& ", b"or": b"||", b"not": b"!  "}[match.group()]


def _typename(code: bytes, plain: bytes, uses: MacroUses) -> Iterator[Replacement]:
    # `typename T` of a template head stays; `typename T::X` is a type without the keyword as well.
    for match in re.finditer(rb"\btypename(?=\s+(?:::)?\s*[A-Za-z_])", plain):
        if _qualified(plain, match.end()):
            yield match.start(), match.end(), blanked(match.group())


def _qualified(plain: bytes, start: int) -> bool:
    """True if the name at `start` goes on with `::`, template arguments skipped."""
    name = re.compile(rb"\s*(::)?\s*[A-Za-z_]\w*\s*").match(plain, start)
    if name is None:
        return False
    if name.group(1):
        return True
    at = name.end()
    if plain[at : at + 1] == b"<":
        depth = 0
        for token in re.compile(rb"[<>;{}]").finditer(plain, at, at + 2000):
            if token.group() in b";{}":
                return False
            depth += 1 if token.group() == b"<" else -1
            if depth == 0:
                at = token.end()
                break
        else:
            return False
    return plain[at : at + 20].lstrip().startswith(b"::")


def _template_keyword(code: bytes, plain: bytes, uses: MacroUses) -> Iterator[Replacement]:
    for match in re.finditer(rb"(?<=\.)\s*template\b|(?<=->)\s*template\b|(?<=::)\s*template\b", plain):
        yield match.start(), match.end(), blanked(match.group())


def _device_lambdas(code: bytes, plain: bytes, uses: MacroUses) -> Iterator[Replacement]:
    pattern = rb"(?<=\])(?:\s*(?:__device__|__host__|__forceinline__|[A-Z]\w*_DEVICE|[A-Z]\w*_INLINE))+(?=\s*[({])"
    for match in re.finditer(pattern, plain):
        yield match.start(), match.end(), blanked(match.group())


def _default_braces(code: bytes, plain: bytes, uses: MacroUses) -> Iterator[Replacement]:
    for match in re.finditer(rb"(?<==)\s*(\{[^{};]*\})(?=\s*[,)])", plain):
        inside = match.group(1)[1:-1]
        piece = b"(" + inside + b")" if inside.strip() else padded(match.group(1), b"0")
        yield match.start(1), match.end(1), piece


def _decltype_braces(code: bytes, plain: bytes, uses: MacroUses) -> Iterator[Replacement]:
    for match in re.finditer(rb"\bdecltype\s*\(", plain):
        end = closing(plain, match.end() - 1)
        if end > 0 and (braces := re.compile(rb"\s*\{\s*\}").match(plain, end)):
            yield end, braces.end(), braces.group().replace(b"{", b"(").replace(b"}", b")")


def _friends(code: bytes, plain: bytes, uses: MacroUses) -> Iterator[Replacement]:
    for match in re.finditer(rb"(?<=\w)\s+(friend)(?=\s)", plain):
        yield match.start(1), match.end(1), blanked(match.group(1))


def _requirements(code: bytes, plain: bytes, uses: MacroUses) -> Iterator[Replacement]:
    # `template <class T, REQUIRES(is_x<T>)>`: an unnamed parameter with a default.
    for match in re.finditer(rb"(?<=[<,])\s*(\w*REQUIRES)\s*\(", plain):
        end = closing(plain, match.end() - 1)
        if end > 0:
            yield match.start(1), end, padded(plain[match.start(1) : end], b"int")


def _odd_arguments(code: bytes, plain: bytes, uses: MacroUses) -> Iterator[Replacement]:
    # Macro arguments that are no expressions: operators and `return x`.
    for match in re.finditer(rb"(?<=[(,])\s*([-+*/%&|^!=<>~]+)\s*(?=[,)])", plain):
        if match.group(1) not in (b"&", b"&&", b"*", b"="):
            yield match.start(1), match.end(1), b"0" * len(match.group(1))
    for match in re.finditer(rb"(?<=,)\s*(return)\b(\s*)(?=([^;{}]*)\)\s*;)", plain):
        piece = b"0     " if not match.group(3).strip() else blanked(match.group(1))
        yield match.start(1), match.end(1), piece


_OF_ARRAY = re.compile(
    rb"(?<![\w:])(?!(?:return|else|throw|case|co_return|co_yield|goto|delete|do)\b)"
    rb"[A-Za-z_][\w:]*(?:<[^;{}()]*>)?(?P<open>\s+\()\s*[*&]\s*[A-Za-z_]\w*\s*(?P<close>\))(?:\s*\[[^\[\];{}]*\])+\s*=(?!=)"
)
"""`T (*p)[N] =` and `T (&r)[N] =`: a pointer or reference to an array. Written so, with a blank, it is no call."""


def _with_arrays(text: bytes) -> bytes:
    """The text with pointers to arrays without their parentheses, so that the grammar reads a declaration and not an
    element of what a call gives."""
    if not _OF_ARRAY.search(text):
        return text
    plain = lexed(text).plain
    found = []
    for match in _OF_ARRAY.finditer(plain):
        if plain[max(0, match.start() - 10_000) : match.start()].rstrip()[-1:] in (b";", b"{", b"}"):
            found += [(match.start(name), match.end(name), blanked(match.group(name))) for name in ("open", "close")]
    return _replace(text, found)


def _conditional_asm(code: bytes, plain: bytes, uses: MacroUses) -> Iterator[Replacement]:
    # `#if` between the literals of an asm template: the first branch stands for all.
    for match in re.finditer(rb"\b(?:asm|__asm__)\b(?:\s*(?:volatile|__volatile__))?\s*\(", plain):
        end = closing(plain, match.end() - 1)
        inside = code[match.start() : max(end, match.start())]
        if b"#" not in inside:
            continue
        kept, depth = True, 0
        at = match.start()
        for line in inside.splitlines(keepends=True):
            directive = re.match(rb"[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b", line)
            if directive is not None:
                word = directive.group(1)
                depth += 1 if word.startswith(b"if") else -1 if word == b"endif" else 0
                kept = depth == 0 or (kept and word.startswith(b"if"))
            if directive is not None or not kept:
                yield at, at + len(line), blanked(line)
            at += len(line)


_IN_LIST = re.compile(rb"[({\[\]})]|^[ \t]*#[ \t]*(\w*)", re.MULTILINE)
_CHOOSE_NOTHING = (b"define", b"undef", b"pragma", b"line", b"error", b"warning")
_OPERANDS_FOLLOW = [bytes([c]) for c in b"+-*/%=,&|^?!~"]
_CLOSED_BY = {b")": b"(", b"]": b"[", b"}": b"{"}


def _directives_in_lists(code: bytes, plain: bytes, uses: MacroUses) -> Iterator[Replacement]:
    # Between arguments, parameters, initializers and operands the grammar knows no directives: those that choose
    # nothing go.
    ends = {span.start: span.end for span in lexed(code).directives}
    last = _last_within(code, plain, ends)
    lists: list[tuple[bytes, bool]] = []
    before = b""
    at = 0
    while (token := _IN_LIST.search(code, at, last)) is not None:
        text = token.group()
        before = plain[at : token.start()].rstrip()[-1:] or before
        at = token.end()
        if token.start() in ends:
            at = ends[token.start()]
            goes_on = (lists and lists[-1][1]) or before in _OPERANDS_FOLLOW
            if goes_on and token.group(1) in _CHOOSE_NOTHING:
                yield token.start(), at, blanked(code[token.start() : at])
            continue
        if text in (b"(", b"[", b"{"):
            lists.append((text, text != b"{" or before in (b"=", b",", b"(", b"{")))
        elif text in _CLOSED_BY:
            while lists and lists.pop()[0] != _CLOSED_BY[text]:
                pass
        before = text[-1:]


def _last_within(code: bytes, plain: bytes, directives: Iterable[int]) -> int:
    """Up to where directives may stand in a list: no statement ends and no block begins in front of the last one. 0
    for most files, which then need not be gone through."""
    last = at = 0
    outside = True
    for start in directives:
        if between := plain[at:start].rstrip():
            outside = between[-1:] in b";}" or (between[-1:] == b"{" and between[:-1].rstrip()[-1:] not in b"=,({")
        at = start
        if not outside and (named := _IN_LIST.match(code, start)) and named.group(1) in _CHOOSE_NOTHING:
            last = named.end()
    return last


def _missing_commas(code: bytes, plain: bytes, uses: MacroUses) -> Iterator[Replacement]:
    # `: "r"(a)  "l"(b)`: nvcc takes operand lists without the comma.
    for match in re.finditer(rb'(?<=\))([ \t]+)(?="[^"\n]*"\s*\()', plain):
        yield match.start(1), match.end(1), padded(match.group(1), b",")


def _anonymous_bitfields(code: bytes, plain: bytes, uses: MacroUses) -> Iterator[Replacement]:
    for match in re.finditer(rb"(?<=[\w,])(\s+): (?=\s*\d+\s*[,;])", plain):
        before = plain[: match.start()].rsplit(b"\n", 1)[-1].split()
        if before and re.fullmatch(rb"u?int\d*_t|unsigned|int|char|short|long|.*,", before[-1]):
            at = match.end() - 2
            yield at, at + 2, b"_:"


def _comparisons(code: bytes, plain: bytes, uses: MacroUses) -> Iterator[Replacement]:
    for match in re.finditer(rb"<[^<>;{}()]*?(>=)[^<>;{}()=]*?[,>]", plain):
        yield match.start(1), match.end(1), b"=="


def _string_pieces(code: bytes, plain: bytes, uses: MacroUses) -> Iterator[Replacement]:
    # `"wgmma.m64n" N "k16"`: a macro among string literals becomes an empty literal of its length.
    for match in re.finditer(rb'(?<=")(\s*)(#?\s*[A-Za-z_]\w*)(?=\s*")', plain):
        word = match.group(2)
        if len(word) >= 2:
            yield match.start(2), match.end(2), b'"' + blanked(word[1:-1]) + b'"'
        elif match.group(1).endswith((b" ", b"\t")):
            yield match.start(2) - 1, match.end(2), b'""'
    for match in re.finditer(rb'(?<=[(])(\s*)([A-Z_]\w+)(?=\s*")', plain):
        yield match.start(2), match.end(2), b'"' + blanked(match.group(2)[1:-1]) + b'"'


def _unknown_specifiers(code: bytes, plain: bytes, uses: MacroUses) -> Iterator[Replacement]:
    pattern = (
        rb"(?:^|(?<=[;{}>]))[ \t]*\b([A-Z][A-Z0-9_]{2,})(?=\s+(?:static|inline|constexpr|void|auto|bool|int|"
        rb"float|double|unsigned|u?int\d+_t|half|size_t|template|struct|class|__device__|__global__|__host__|"
        rb"[A-Za-z_][\w:]*(?:<[^;{}()]*>)?[\s*&]+[A-Za-z_]\w*\s*\())"
    )
    for match in re.finditer(pattern, plain, re.MULTILINE):
        name = match.group(1)
        yield match.start(1), match.end(1), padded(name, _guess(name))


def _statement_macros(code: bytes, plain: bytes, uses: MacroUses) -> Iterator[Replacement]:
    for match in re.finditer(rb"^[ \t]*([A-Z_][A-Z0-9_]{2,})[ \t]*\(", plain, re.MULTILINE):
        end = closing(plain, match.end() - 1)
        if end < 0:
            continue
        follow = re.compile(rb"[ \t]*\r?\n\s*").match(code, end)
        if follow is None or code[follow.end() : follow.end() + 1] in (
            b";",
            b"{",
            b".",
            b",",
            b")",
            b"?",
            b":",
        ):
            continue
        if plain[follow.end() - 1 : follow.end()] in (b" ", b"\t"):
            # The blank before the next token has room for the semicolon that the macro's user left out.
            yield follow.end() - 1, follow.end(), b";"
        else:
            yield match.start(1), end, blanked(plain[match.start(1) : end])


Rule = Callable[[bytes, bytes, MacroUses], Iterator[Replacement]]

RULES: tuple[tuple[str, Rule], ...] = (
    (_SPECIFIERS, _specifiers),
    (_LOOPS, _loop_macros),
    ("alignment", _alignment),
    ("postfix alignment", _postfix_alignment),
    ("kernel attributes", _kernel_attributes),
    ("grid constants", _grid_constant),
    ("attributes", _attributes),
    ("alternative operators", _operators),
    ("typename in expressions", _typename),
    ("template keyword", _template_keyword),
    ("device lambdas", _device_lambdas),
    ("default braces", _default_braces),
    ("braces after decltype", _decltype_braces),
    ("friends", _friends),
    ("requirement macros", _requirements),
    ("odd macro arguments", _odd_arguments),
    ("conditional asm templates", _conditional_asm),
    ("directives in lists", _directives_in_lists),
    ("missing commas", _missing_commas),
    ("anonymous bitfields", _anonymous_bitfields),
    ("comparisons in template arguments", _comparisons),
    ("string pieces", _string_pieces),
    ("launch bounds", _launch_bounds),
    ("unknown specifiers", _unknown_specifiers),
    ("statement macros", _statement_macros),
)


@dataclass(frozen=True)
class Masked:
    """`uses` is what is known of the file's macros."""

    text: bytes
    tree: Tree
    rules: tuple[str, ...]
    uses: MacroUses


_NON_ASCII = bytes(c if c < 0x80 else 0x5F for c in range(256))


def mask(
    source: bytes,
    parse: Callable[[bytes, Tree | None], Tree],
    cost: Callable[[Tree], Cost],
    macros: MacroUses = NO_MACROS,
) -> Masked:
    """Parse `source`, masking only as much as its errors ask for.

    A byte-order mark becomes blanks and bytes outside ASCII become underscores always: the grammar may refuse
    them even in comments. So do the parentheses of pointers to arrays, which it reads as calls.
    """
    text = _with_arrays(without_mark(source).translate(_NON_ASCII))
    uses = macros.joined(learn_macros(lexed(text).macros())) if b"define" in text else macros
    expanded, kept = _expanded(text, uses)
    tree = parse(expanded, None)
    errors = cost(tree)
    if errors[0] and kept:
        # The parser takes longest over errors, so the text as it stands comes second.
        expanded, kept, tree = text, (), parse(text, None)
        errors = cost(tree)
    if errors[0] == 0:
        return Masked(expanded, tree, kept, uses)
    state = _State(text, tree, errors, ())
    masked: dict[tuple[bytes, str], bytes] = {}
    tried: dict[bytes, tuple[Tree, Cost]] = {}

    # Rounds that change nothing try the same masks and texts again.
    def attempt(before: _State, name: str, rule: Rule) -> tuple[bytes, Tree, Cost] | None:
        if (before.text, name) not in masked:
            shown = lexed(before.text)
            masked[before.text, name] = _replace(before.text, list(rule(shown.code, shown.plain, uses)))
        candidate = masked[before.text, name]
        if candidate == before.text:
            return None
        if candidate not in tried:
            tree = parse(candidate, _edited(before, candidate))
            tried[candidate] = (tree, cost(tree))
        return candidate, *tried[candidate]

    # Each mask on its own first. What then still fails may need two at once: go on with one that does not
    # help yet but does no harm either.
    for patient in (False, False, True):
        if state.errors[0]:
            state = _round(state, attempt, patient)
    # A trial's tree shares parts with the one before it; the tree that is kept depends on its text alone.
    return Masked(state.text, parse(state.text, None) if state.kept else state.tree, state.kept, uses)


def _expanded(text: bytes, uses: MacroUses) -> tuple[bytes, tuple[str, ...]]:
    """The text with the names masked that are specifiers or pragmas for certain, and the masks that changed it."""
    words = _words(text)
    specifiers = {w for w in words if uses.specifiers.get(w.decode())}
    specifiers |= {w for w in words - specifiers if _looks_like_specifier(w) and _before_type(w).search(text)}
    loops = {w for w in words if w.decode() in uses.pragmas}
    loops |= {w for w in words - loops if _looks_like_pragma(w) and _before_loop(w).search(text)}
    pragmas = [rb"\b" + w + rb"\b" for w in sorted(loops)]
    kept: tuple[str, ...] = ()
    if specifiers or pragmas:
        plain = lexed(text).plain
        found = list(_masked_words(specifiers, plain, uses))
        kept += (_SPECIFIERS,) if found else ()
        if pragmas and (unrolled := list(_masked_pragmas(pragmas, plain))):
            kept += (_LOOPS,)
            found += unrolled
        text = _replace(text, found)
    return text, kept


def _edited(before: _State, candidate: bytes) -> Tree:
    """The tree of `before` marked as changed in the lines where `candidate`, of the same length, differs."""
    tree = before.tree.copy()
    start = 0
    for row, (old, new) in enumerate(zip(before.text.split(b"\n"), candidate.split(b"\n"), strict=True)):
        end = start + len(new)
        if old != new:
            tree.edit(start, end, end, (row, 0), (row, len(new)), (row, len(new)))
        start = end + 1
    return tree


@dataclass(frozen=True)
class _State:
    text: bytes
    tree: Tree
    errors: Cost
    kept: tuple[str, ...]


def _round(
    state: _State,
    attempt: Callable[[_State, str, Rule], tuple[bytes, Tree, Cost] | None],
    patient: bool,
) -> _State:
    """Every mask not made yet, once. `patient` keeps also those that leave the errors as they are, provided
    that in the end there are fewer."""
    before = state
    for name, rule in RULES:
        if name in state.kept:
            continue
        found = attempt(state, name, rule)
        if found is None:
            continue
        candidate, tree, errors = found
        if errors < state.errors or (patient and errors[0] <= state.errors[0]):
            state = _State(candidate, tree, errors, (*state.kept, name))
        if errors[0] == 0:
            break
    return state if state.errors < before.errors else before


def _replace(text: bytes, replacements: list[Replacement]) -> bytes:
    result = bytearray(text)
    cursor = 0
    for start, end, piece in sorted(replacements):
        if start < cursor:
            continue
        assert len(piece) == end - start
        result[start:end] = piece
        cursor = end
    return bytes(result)
