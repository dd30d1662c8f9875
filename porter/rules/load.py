# SPDX-License-Identifier: Apache-2.0
"""Read and validate rule files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import fields
from difflib import get_close_matches
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from porter.diagnostics import Code, Location, PorterError
from porter.diagnostics.reading import read_file
from porter.diagnostics.yaml_text import FAST, read_yaml
from porter.lang.text import Safety
from porter.model.dsl.names import KINDS as PYTHON_KINDS
from porter.model.dsl.names import Names
from porter.model.facts import KINDS, Fact, kind_name
from porter.model.recognition import Emitter
from porter.model.spellings import MEANINGS, Spelling, Spellings
from porter.rules.emit import EMITTED, FACETS, words_in
from porter.rules.pattern import PatternError
from porter.rules.ptx import PtxPattern, ptx_patterns, unknown
from porter.rules.python import NamePattern, name_patterns
from porter.rules.recognize import (
    LHS,
    FactPattern,
    Origin,
    check_fields,
    check_literals,
    fact_patterns,
    refusal_patterns,
    replacement_patterns,
    spellings,
)
from porter.rules.rule import Advice, Compares, Example, Region, Rule, SpellingPattern, When

FILES = {
    "cuda": ("*.cu", "*.cuh", "*.h", "*.hpp", "*.hh", "*.cpp", "*.cc", "*.cxx", "*.inl"),
    "ptx": ("*.cu", "*.cuh", "*.h", "*.hpp", "*.hh", "*.cpp", "*.cc", "*.cxx", "*.inl"),
    "python": ("*.py",),
    "cmake": ("CMakeLists.txt", "*.cmake", "CMakePresets.json"),
    "make": ("Makefile", "makefile", "GNUmakefile", "*.mk"),
    "setup": ("setup.py", "pyproject.toml"),
}
"""The files of each language."""
_BUILD = ("cmake", "make", "setup", "text")
_LONGEST = 200


def mappings_directory() -> Path:
    """The rules that come with Porter: inside the installed package, or beside it in a checkout."""
    installed = Path(str(resources.files("porter"))) / "_mappings"
    return installed if installed.is_dir() else Path(__file__).resolve().parents[2] / "mappings"


def load_rules(extra_directories: Sequence[str] = ()) -> list[Rule]:
    """All rules, Porter's own first, ordered by ID within each directory; one file may stand for a directory.
    A file that is named more than once is read once.

    Raises:
        PorterError: RULE_FILE (unreadable or invalid file), RULE_DUPLICATE (an ID defined twice),
            FILE_NOT_FOUND (a file or directory that does not exist).
    """
    rules = list(_own_rules())
    if not extra_directories:
        return rules
    read = {Path(source).resolve() for source in {r.source for r in rules}}
    for directory in extra_directories:
        path = Path(directory)
        if not path.exists():
            raise PorterError(Code.FILE_NOT_FOUND, path=directory)
        files = [f for f in (_files(path) if path.is_dir() else [path]) if f.resolve() not in read]
        read.update(f.resolve() for f in files)
        rules += _read(files)
    return _unique(rules)


@cache
def _own_rules() -> tuple[Rule, ...]:
    return tuple(_unique(_read(_files(mappings_directory()), False)))


def _unique(rules: list[Rule]) -> list[Rule]:
    seen: dict[str, Rule] = {}
    for rule in rules:
        other = seen.setdefault(rule.id, rule)
        if other is not rule:
            raise PorterError(Code.RULE_DUPLICATE, rule.where, rule=rule.id, other=other.where)
    return rules


def _files(directory: Path) -> list[Path]:
    return sorted([*directory.glob("*.yaml"), *directory.glob("*.yml")])


def _read(files: Iterable[Path], is_user: bool = True) -> list[Rule]:
    return sorted((r for f in files for r in read_rule_file(f, is_user)), key=lambda r: r.id)


@cache
def schema() -> dict[str, Any]:
    """The JSON Schema of rule files, for editors."""
    text = resources.files("porter.rules").joinpath("rules.schema.json").read_text(encoding="utf-8")
    read: dict[str, Any] = json.loads(text)
    return read


_Loader: Any = type("_Loader", (FAST,), {})
"""YAML whose only truth values are `true` and `false`: `on` is a word of rules."""
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag != "tag:yaml.org,2002:bool"]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("true|false"), ["t", "f"])


def read_rule_file(path: Path, is_user: bool = True) -> list[Rule]:
    """The rules of one file. Raises PorterError RULE_FILE with the place of the first problem."""
    try:
        root, data = read_yaml(read_file(path).decode("utf-8"), _Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = Location(str(path), mark.line + 1, mark.column + 1) if mark else Location(str(path))
        raise PorterError(Code.RULE_FILE, where, problem=str(getattr(error, "problem", error))) from error
    except (ValueError, TypeError, RecursionError) as error:
        # a text that is no UTF-8, a date that is none, a mapping as a key
        raise PorterError(Code.RULE_FILE, Location(str(path)), problem=str(error)) from error
    if root is None:
        raise PorterError(Code.RULE_FILE, Location(str(path)), problem="the file is empty")
    validator = jsonschema.Draft202012Validator(schema())
    # a word that is not known is why another is missing
    problems = sorted(
        validator.iter_errors(data),
        key=lambda e: (_unknown_key(e) is None, list(map(str, e.absolute_path))),
    )
    if problems:
        first = problems[0]
        at = "/".join(map(str, first.absolute_path)) or "the file"
        steps, key = list(first.absolute_path), _unknown_key(first)
        if key is not None:
            known = _keys_of(first)
            near = get_close_matches(key, known, 1)
            said = f"did you mean `{near[0]}`?" if near else f"known are {', '.join(known)}"
            problem = f"{at}: unknown key `{key}`; {said}"
            raise PorterError(Code.RULE_FILE, _place(path, root, steps, key), problem=problem)
        raise PorterError(Code.RULE_FILE, _place(path, root, steps), problem=f"{at}: {_said(first)}")
    entries = enumerate(data["rules"])
    return [_rule(entry, data, path, _place(path, root, ["rules", i]), is_user) for i, entry in entries]


def _unknown_key(error: jsonschema.ValidationError) -> str | None:
    """A key that no schema names, where that is what is wrong."""
    if error.validator != "additionalProperties" or not isinstance(error.instance, dict):
        return None
    return next((str(key) for key in error.instance if key not in _keys_of(error)), None)


def _keys_of(error: jsonschema.ValidationError) -> list[str]:
    found = error.schema if isinstance(error.schema, dict) else {}
    return sorted(found.get("properties", ()))


def _said(error: jsonschema.ValidationError) -> str:
    """What a schema says of a value, without all of the value."""
    inner = max(error.context or (), key=lambda e: len(e.absolute_path), default=error)
    text = " ".join(inner.message.split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _place(path: Path, node: yaml.Node | None, steps: Sequence[str | int], key: str = "") -> Location:
    """Where a value stands in a file, as near as the file has it; with `key` that of the mapping that it is."""
    for step in steps:
        inner: yaml.Node | None = None
        if isinstance(node, yaml.MappingNode):
            inner = next((v for k, v in node.value if k.value == step), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            inner = node.value[step]
        if inner is None:
            break
        node = inner
    if key and isinstance(node, yaml.MappingNode):
        node = next((k for k, _ in node.value if k.value == key), node)
    if node is None:
        return Location(str(path))
    return Location(str(path), node.start_mark.line + 1, node.start_mark.column + 1)


def _rule(entry: dict[str, Any], data: dict[str, Any], path: Path, where: Location, is_user: bool) -> Rule:
    try:
        return _made(entry, data, path, where, is_user)
    except (PatternError, re.error, IndexError) as error:
        raise PorterError(Code.RULE_FILE, where, problem=f"{entry['id']}: {error}") from error


_FORMS = (
    frozenset({"recognize", "as"}),
    frozenset({"recognize", "replace"}),
    frozenset({"recognize", "refuse"}),
    frozenset({"recognize", "advise"}),
    frozenset({"on", "emit"}),
    frozenset({"pass"}),
)
_BESIDE = {
    frozenset({"recognize", "as"}): {"where", "map", "definition", "emit", "needs", "request"},
    frozenset({"recognize", "refuse"}): {"where"},
    frozenset({"recognize", "replace"}): {"where", "map", "compares"},
    frozenset({"on", "emit"}): {"via", "where", "needs", "request"},
    frozenset({"pass"}): {"chips"},
}
_DECIDING = frozenset[str]().union(*_FORMS, *_BESIDE.values())


def _form(entry: dict[str, Any]) -> frozenset[str]:
    """Which of the kinds of rule an entry is. Raises PatternError if it is none, or two."""
    stated = _DECIDING & set(entry)
    forms = [f for f in _FORMS if f <= stated and not (f == {"on", "emit"} and "recognize" in stated)]
    if len(forms) != 1:
        raise PatternError(
            "a rule has `recognize` with one of `as`, `replace`, `refuse` and `advise`, or `on` with `emit`"
            + (f", and not {', '.join(sorted(stated))}" if stated else "")
        )
    extra = stated - forms[0] - _BESIDE.get(forms[0], set())
    if "emit" not in entry and stated & {"needs", "request"}:
        raise PatternError("`needs` and `request` are for a text: there is no `emit`")
    if extra:
        raise PatternError(f"`{min(extra)}` says nothing beside {' and '.join(f'`{w}`' for w in sorted(forms[0]))}")
    return forms[0]


def _made(entry: dict[str, Any], data: dict[str, Any], path: Path, where: Location, is_user: bool) -> Rule:
    if "pass" in _form(entry) and is_user and not entry["pass"].startswith("steps/"):
        raise PatternError("`pass` is for Porter's own rules: it names code, of others that of a step, `steps/NAME`")
    language = entry.get("language") or data.get("language") or "cuda"
    files = tuple(entry.get("files") or data.get("files") or FILES.get(language, ()))
    if not files:
        raise PatternError("`language: text` needs `files`")
    if entry.get("in") == Region.NAME and "advise" not in entry:
        raise PatternError("`in: name` is for `advise`; other rules write the name itself")
    region = Region(entry.get("in") or data.get("in") or ("text" if language in _BUILD else "code"))
    origin = Origin(
        entry["id"], data["library"], where, entry.get("priority", 0), is_user, entry.get("definition", "check"),
        tuple(data.get("scope", ())), entry.get("map", {}),
    )  # fmt: skip
    asked = entry.get("recognize")
    pattern, spelling, recognizers, names = None, None, tuple[FactPattern, ...](), tuple[NamePattern, ...]()
    instructions = tuple[PtxPattern, ...]()
    if isinstance(asked, dict) and "as" in entry:
        spelling = _spelling(entry, asked["regex"])
    elif isinstance(asked, dict):
        pattern = _regex(entry, asked["regex"])
    elif asked is not None and language == "ptx":
        instructions = _ptx_patterns(entry, origin, [asked] if isinstance(asked, str) else asked)
    elif asked is not None and language == "python":
        names = _name_patterns(entry, origin, [asked] if isinstance(asked, str) else asked)
    elif asked is not None:
        recognizers = _recognizers(entry, origin, language, [asked] if isinstance(asked, str) else asked)
    refused = entry.get("refuse")
    return Rule(
        id=entry["id"],
        title=entry["title"],
        library=data["library"],
        safety=_safety(entry, is_user),
        reason=" ".join(entry["reason"].split()),
        references=tuple(entry.get("references", ())),
        examples=tuple(_examples(entry, recognizers, language)),
        language=language,
        pattern=pattern,
        region=region,
        files=files,
        when=When(entry.get("when", "always")),
        replace=entry.get("replace"),
        compares=Compares(entry["compares"]) if "compares" in entry else None,
        chips=tuple(entry.get("chips", ())),
        refusal=(refused.get("code", "RULE_REFUSED"), refused["what"], refused["advice"]) if refused else None,
        advice=_advice(entry["advise"], pattern) if "advise" in entry else None,
        becomes=entry.get("becomes") or _shown(entry),
        implemented_by=entry.get("pass"),
        recognizers=recognizers,
        names=names,
        instructions=instructions,
        spelling=spelling,
        emitter=_emitter(entry, origin, recognizers),
        source=str(path),
        where=where,
    )


def _advice(stated: dict[str, Any], pattern: re.Pattern[str] | None) -> Advice:
    """Raises PatternError and re.error if it does not fit its pattern."""
    if pattern is None:
        raise PatternError("`advise` is for a regex")
    sign, given = stated.get("sign", "finding"), stated.get("given", {})
    words = {"code", "what", "advice"} & set(stated)
    if (sign == "finding") != (words == {"code", "what", "advice"}) or (sign != "finding" and words):
        raise PatternError("a finding, and nothing else, has `code`, `what` and `advice`")
    for template in given.values():
        re.sub(pattern, template, "")
        _check_template(pattern, template)
    unless = re.compile(stated["unless"], re.MULTILINE) if "unless" in stated else None
    return Advice(
        sign, tuple(given.items()), stated.get("code", ""), stated.get("what", ""), stated.get("advice", ""), unless
    )


def _safety(entry: dict[str, Any], is_user: bool) -> Safety:
    """What a rule says of itself; that of a user is safe if an example proves it."""
    stated = Safety(entry["safety"])
    unproved = is_user and stated is Safety.SAFE and not any(e.get("verify") for e in entry["examples"])
    return Safety.REVIEW if unproved else stated


def _recognizers(entry: dict[str, Any], origin: Origin, language: str, texts: list[str]) -> tuple[FactPattern, ...]:
    if language != "cuda":
        raise PatternError(f"`{texts[0]}`: a pattern of {language} is a regex")
    if "in" in entry or "files" in entry:
        raise PatternError("`in` and `files` are for a regex")
    if kind_name(Spelling) in entry.get("as", ()):
        raise PatternError(f"`{texts[0]}`: a spelling is a regex")
    if "advise" in entry:
        raise PatternError(f"`{texts[0]}`: `advise` is for a regex")
    where = entry.get("where", {})
    if "replace" in entry:
        return replacement_patterns(origin, texts, entry["replace"], where)
    if "refuse" in entry:
        return refusal_patterns(origin, texts, entry["refuse"]["what"], entry["refuse"]["advice"], where)
    return fact_patterns(origin, texts, entry["as"], where)


def _ptx_patterns(entry: dict[str, Any], origin: Origin, texts: list[str]) -> tuple[PtxPattern, ...]:
    if "as" in entry:
        raise PatternError(
            "an instruction needs no `as`: what it does is read from the instruction table; where the text of an asm "
            "statement cannot be read, a rule with `language: cuda` says what the function that holds it is"
        )
    for word in ("in", "map", "definition"):
        if word in entry:
            raise PatternError(f"`{word}` says nothing of an instruction")
    replaced = entry.get("replace", "")
    wrong = unknown(replaced) if "$" not in replaced else ""
    if wrong:
        raise PatternError(f"`replace` is no PTX: {wrong}")
    written = {"replace": replaced, **entry.get("refuse", {})}
    return ptx_patterns(origin, texts, written, entry.get("where", {}))


def _name_patterns(entry: dict[str, Any], origin: Origin, texts: list[str]) -> tuple[NamePattern, ...]:
    for word in ("in", "map", "definition", "emit"):
        if word in entry:
            raise PatternError(f"`{word}` says nothing of names in Python")
    return name_patterns(origin, texts, entry, entry.get("where", {}))


def names_of(rules: Iterable[Rule]) -> Names:
    """What rules say that names in Python are."""
    return Names(p for rule in rules for p in rule.names)


@cache
def own_names() -> Names:
    """What Porter's own rules say that names in Python are."""
    return names_of(_own_rules())


def _spelling(entry: dict[str, Any], text: str) -> SpellingPattern:
    if set(entry["as"]) != {kind_name(Spelling)}:
        raise PatternError("a regex recognizes no fact but a spelling; write the call with its captures")
    for word in ("in", "files", "definition", "emit"):
        if word in entry:
            raise PatternError(f"`{word}` says nothing of a spelling")
    ((kind, values),) = entry["as"].items()
    check_fields(Spelling, kind, values, frozenset())
    if values["of"] not in MEANINGS:
        raise PatternError(f"`{values['of']}` is nothing that a word is; there are {', '.join(MEANINGS)}")
    return SpellingPattern(values["of"], _regex(entry, text))


@cache
def own_spellings() -> Spellings:
    """What Porter's own rules say that words are."""
    return spellings(_own_rules())


def _regex(entry: dict[str, Any], text: str) -> re.Pattern[str]:
    for word in ("where", "map"):
        if word in entry:
            raise PatternError(f"`{word}` is for captures, and a regex has none")
    pattern = re.compile(text, re.MULTILINE)
    if pattern.fullmatch("") is not None:
        raise PatternError("the regex matches nothing at all")
    if "replace" in entry:
        re.sub(pattern, entry["replace"], "")
        _check_template(pattern, entry["replace"])
    return pattern


def _emitter(entry: dict[str, Any], origin: Origin, recognizers: Sequence[FactPattern]) -> Emitter | None:
    if "emit" not in entry:
        return None
    kind = recognizers[0].kind if recognizers else KINDS.get(entry["on"])
    if kind not in EMITTED:
        names = ", ".join(map(kind_name, EMITTED))
        raise PatternError(f"no text is written for `{entry.get('on') or kind_name(recognizers[0].kind)}`; for {names}")
    assert kind is not None
    check_literals((p.pattern.text, p.pattern.rest) for p in recognizers)
    own = recognizers[0].pattern.captures | {LHS} if recognizers else frozenset[str]()
    known = {f.name for f in fields(kind)} | EMITTED[kind]
    needs = tuple(entry.get("needs", ()))
    for name in (*words_in(entry["emit"]), *needs):
        if name not in known and name not in own:
            there = ", ".join(sorted(known | own))
            raise PatternError(f"nothing binds `${name}` at a {kind_name(kind)}; there are {there}")
    include = entry.get("request", {}).get("include", "")
    return Emitter(
        rule=origin.rule,
        where=origin.where,
        on=kind,
        text=entry["emit"],
        via=entry.get("via", ""),
        needs=needs,
        include=include,
        priority=origin.priority,
        is_user=origin.is_user,
        is_own=bool(recognizers),
        asks=() if recognizers else _asked(kind, entry.get("where", {})),
    )


def _asked(kind: type[Fact], where: dict[str, Any]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """What an emitter asks of the instruction. Raises PatternError."""
    known, found = FACETS.get(kind, {}), []
    for name, value in sorted(where.items()):
        if name not in known:
            there = ", ".join(known) or "nothing"
            raise PatternError(f"a text for a {kind_name(kind)} cannot ask for `{name}`; there is {there}")
        listed = value.get("in") if isinstance(value, dict) else [value]
        if not isinstance(listed, list) or not listed:
            raise PatternError(f"`{name}` is one value, or {{in: […]}}")
        found.append((name, tuple(map(str, listed))))
    return tuple(found)


def _shown(entry: dict[str, Any]) -> str:
    if "as" not in entry:
        advised = entry.get("advise", {})
        return str(entry.get("emit") or advised.get("advice") or advised.get("sign", ""))
    ((kind, values),) = entry["as"].items()
    return " ".join([kind, *(f"{name}={value}" for name, value in values.items())])


def _check_template(pattern: re.Pattern[str], template: str) -> None:
    """Raises re.error for a reference to a group that the pattern does not have."""
    for number in re.findall(r"\\(?:g<)?(\d+)>?", template):
        if int(number) > pattern.groups:
            raise re.error(f"invalid group reference {number}")


def _examples(entry: dict[str, Any], recognizers: Sequence[FactPattern], language: str) -> Iterable[Example]:
    """Raises PatternError if they do not say what they are examples of."""
    entries = entry["examples"]
    if "as" in entry:
        if not any("before" in e for e in entries):
            raise PatternError("`examples` of a recognizer need one with `before`")
        if not any("near" in e or isinstance(e.get("absent"), str) for e in entries):
            raise PatternError("`examples` of a recognizer need one with `near` or `absent`, a form that it is not for")
    for e in entries:
        _check_stated(e)
        alone = e.get("near") or (e["absent"] if isinstance(e.get("absent"), str) else None)
        if (alone is None) == ("before" not in e):
            raise PatternError("an example has `before` and what becomes of it, or `near` or `absent` alone")
        text = alone or e["before"]
        if recognizers and "__device__" not in text and "__global__" not in text:
            text = f"template <int N> __device__ void f(int x, float r) {{ {text}; }}\n"
        if language == "python" and "import " not in text:
            text = f"import {text.partition('.')[0]}\n{text}\n"
        proved = [word for word in ("compile", "verify") if e.get(word)]
        if proved and (language != "cuda" or not e.get("file", "kernel.cu").endswith(".cu") or alone):
            raise PatternError(f"`{proved[0]}` is for an example with the `before` of a .cu file")
        if e.get("verify") and not re.search(r"\bmain\s*\(", text):
            raise PatternError("`verify` runs the example, which has no main()")
        yield Example(
            before=text,
            after=e.get("after"),
            expect=tuple(e.get("expect", ())),
            absent=tuple(e["absent"]) if isinstance(e.get("absent"), list) else (),
            file=e.get("file", "kernel.py" if language == "python" else "kernel.cu"),
            diagnostics=tuple(e.get("diagnostics", ())),
            facts=tuple((k, tuple(v.items())) for fact in e.get("facts", ()) for k, v in fact.items()),
            is_near="near" in e,
            others=tuple(e.get("with", {}).items()),
            compile=e.get("compile", ""),
            verify=e.get("verify", False),
            style=e.get("style", "compat"),
            types=tuple(tuple(t) if isinstance(t, list) else t for t in e.get("types", ())),
            traced=tuple(e.get("traced", ())),
            stages=e.get("stages", 0),
            registers=e.get("registers", 0),
            drop_promotion=e.get("drop_promotion", False),
            block_scale=e.get("block_scale", False),
            chosen=tuple(e.get("chosen", ())),
        )


def _check_stated(example: dict[str, Any]) -> None:
    """Raises PatternError if an example names a fact or a diagnostic that there is none of."""
    for kind, values in (item for fact in example.get("facts", ()) for item in fact.items()):
        made = KINDS.get(kind) or PYTHON_KINDS.get(kind)
        if made is None:
            raise PatternError(f"`facts` of an example: `{kind}` is no kind of fact")
        unknown_field = next((name for name in values if name not in {f.name for f in fields(made)}), None)
        if unknown_field is not None:
            raise PatternError(f"`facts` of an example: a {kind} has no `{unknown_field}`")
    for code in example.get("diagnostics", ()):
        if code not in Code.__members__ and code not in {c.id for c in Code}:
            raise PatternError(f"`diagnostics` of an example: there is no `{code}`")
