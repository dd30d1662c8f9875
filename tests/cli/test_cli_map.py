# SPDX-License-Identifier: Apache-2.0
"""`porter map`: the table has an answer for all that only Hopper has, and says what is wrong about it."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import jsonschema
import pytest
import yaml
from fakes_cli import porter, porter_json
from instructions.samples import opcodes

from porter.diagnostics import Code, PorterError
from porter.ptx.forms.grammar import Form
from porter.ptx.requirement import Requirement, TargetName
from porter.ptx.table import FORMS
from porter.rules.load import load_rules, mappings_directory
from porter.rules.mapping import look_up, table

FILES = sorted((mappings_directory() / "map").glob("*.yaml"))
OWN = {rule.id for rule in load_rules()}


# --- the data


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_data_follow_their_schema(path: Path) -> None:
    schema = json.loads(resources.files("porter.rules").joinpath("map.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator(schema).validate(yaml.safe_load(path.read_text("utf-8")))


def test_entries_name_rules_diagnostics_and_pages_that_there_are() -> None:
    entries, claims = table()
    assert {rule for e in entries for rule in e.rules} <= OWN
    said = " ".join(text for e in entries for text in (e.becomes, e.advice, *e.conditions))
    assert set(re.findall(r"PT\d{4}", said)) <= {code.id for code in Code}
    assert set(re.findall(r"PTR\d{3}", said)) <= OWN
    root = Path(__file__).resolve().parents[2]
    pages = {r.split()[0] for one in (*entries, *claims) for r in one.references if r.startswith("docs/")}
    assert not [page for page in pages if not (root / page).is_file()]


def test_what_is_ported_is_ported_by_a_rule() -> None:
    rules = {rule.id for rule in load_rules() if rule.kind != "refusal"}
    named = [e for e in table()[0] if e.status == "ported"]
    assert named
    assert not [e.names for e in named if not rules & set(e.rules)]


def test_claims_are_numbered_once_and_each_is_found_by_its_words() -> None:
    claims = table()[1]
    assert [c.id for c in claims] == [f"A{n}" for n in range(1, 41)] + [f"B{n}" for n in range(1, 19)]
    for claim in claims:
        assert all(claim in look_up(word).claims for word in claim.words), claim.id


# --- everything that only Hopper has


def hopper_only(needs: Requirement) -> bool:
    hopper, blackwell = TargetName.parse("sm_90a"), TargetName.parse("sm_100a")
    names = [target for target, _ in needs.alternatives]
    return any(map(hopper.offers, names)) and not any(map(blackwell.offers, names))


HOPPER_FORMS = [f for f in FORMS if any(hopper_only(r) for r in (f.requirement, *(needs for _, needs in f.also)))]


def test_the_table_of_instructions_has_forms_for_hopper_only() -> None:
    assert {f.pattern.split(".")[1] for f in HOPPER_FORMS} == {"mma_async", "fence", "commit_group", "wait_group"}


@pytest.mark.parametrize("form", HOPPER_FORMS, ids=lambda f: f"{f.section}-{f.name}")
def test_every_instruction_of_hopper_has_an_answer(form: Form) -> None:
    for opcode in set(opcodes(form, 4)):
        first = look_up(opcode).entries[0]
        assert first.status in ("ported", "refused")
        # its own shape and types are spoken of, not only the family
        if ".mma_async.sync" in opcode:
            assert first.names[0] != "wgmma.mma_async", opcode
        if ".sp." in opcode:
            assert first.names == ("wgmma.mma_async.sp",)


def cute_headers() -> Path:
    found = importlib.util.find_spec("cutlass_library")
    places = found.submodule_search_locations if found is not None else None
    path = Path(next(iter(places or ["/nonexistent"]))) / "source" / "include" / "cute"
    if not path.is_dir():
        pytest.skip("nvidia-cutlass is not installed")
    return path


@pytest.mark.external
def test_every_atom_of_cute_for_hopper_has_an_answer() -> None:
    files = [p for folder in ("arch", "atom") for p in (cute_headers() / folder).glob("*sm90*.hpp")]
    names: set[str] = set()
    for path in files:
        text = path.read_text("utf-8", "replace")
        names |= set(re.findall(r"\bSM90_\w+", text))
        names |= {f"SM90::GMMA::{n}" for n in re.findall(r"^struct (MMA_\d+x\w+)", text, re.MULTILINE)}
        names |= {f"SM90::GMMA::SPARSE::{n}" for n in re.findall(r"^struct (GMMA_\d+x\w+)", text, re.MULTILINE)}
    assert len(names) > 1000
    unknown = [name for name in sorted(names) if not answered(f"cute::{name}")]
    assert not unknown


def answered(word: str) -> bool:
    try:
        answer = look_up(word)
    except PorterError:
        return False
    return bool(answer.entries) and not answer.is_family


def public_names(path: Path) -> Iterator[str]:
    """What a module defines, and what it says that it hands on."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name
        if isinstance(node, ast.Assign):
            names = [t.id for t in node.targets if isinstance(t, ast.Name)]
            if names == ["__all__"]:
                yield from ast.literal_eval(node.value)
            yield from (name for name in names if not name.startswith("_"))


@pytest.mark.external
def test_every_name_of_cute_dsl_for_hopper_has_an_answer() -> None:
    found = importlib.util.find_spec("cutlass")
    if found is None or found.origin is None:
        pytest.skip("nvidia-cutlass-dsl is not installed")
    package = Path(found.origin).parent
    warpgroup = package / "cute" / "nvgpu" / "warpgroup"
    helpers = package / "utils" / "hopper_helpers.py"
    names = {f"cutlass.cute.nvgpu.warpgroup.{n}" for p in warpgroup.glob("*.py") for n in public_names(p)}
    names |= {f"cutlass.utils.hopper_helpers.{n}" for n in public_names(helpers)}
    assert len(names) > 20
    unknown = [name for name in sorted(names) if not any(name.endswith(f".{n}") for n in own_names(name))]
    assert not unknown


def own_names(word: str) -> list[str]:
    """The names of the first answer: the module's own entry is none for what is in it."""
    return [n for n in look_up(word).entries[0].names if n.count(".") == word.count(".") - 1]


# --- the command


def test_map_of_a_word() -> None:
    document = porter_json("map", "wgmma.wait_group.sync.aligned")
    (entry,) = document["entries"]
    assert entry["status"] == "ported"
    assert entry["rules"][0] == {"id": "PTR120", "title": "wgmma fence, commit and wait"}
    text = porter("map", "wgmma.wait_group").stdout
    for part in ("becomes", "conditions", "PTR121", "PTX ISA 9.7.15.7.3"):
        assert part in text
    assert "\x1b" not in text
    assert "\x1b" in porter("--color", "always", "map", "wgmma.wait_group").stdout
    assert "\x1b" not in porter("map", "wgmma.wait_group", env={"NO_COLOR": "1"}).stdout


def test_map_says_what_is_wrong() -> None:
    document = porter_json("map", "tcgen05.wait")
    assert "A6" in {c["id"] for c in document["claims"]}
    text = porter("map", "tcgen05.wait::ld").stdout
    assert "takes an mbarrier" in text
    assert "waits only for this thread's ld or st" in text


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("SM90_64x128x16_F32F16F16_SS<Major::K, Major::K>", "SM90_*_F32F16F16_SS"),
        ("cute::SM90_64x128x16_F32F16F16_RS", "SM90_*_F32F16F16_RS"),
        ("cutlass.cute.nvgpu.warpgroup.MmaF8Op", "cute.nvgpu.warpgroup.MmaF8Op"),
        ("MmaF8Op", "cute.nvgpu.warpgroup.MmaF8Op"),
        ("make_trivial_tiled_mma", "utils.hopper_helpers.make_trivial_tiled_mma"),
        ("WGMMA.FENCE", "wgmma.fence"),
        ("warpgroup_wait<0>()", "cute::warpgroup_wait"),
        ("__syncthreads()", "__syncthreads"),
        ("cp.async.bulk.tensor.2d.shared::cluster.global.tile", "cp.async.bulk.tensor"),
    ],
)
def test_words_as_sources_have_them(word: str, name: str) -> None:
    assert name in look_up(word).entries[0].names


def test_map_of_what_names_begin_with() -> None:
    document = porter_json("map", "tcgen05")
    assert document["is_family"]
    assert {"tcgen05.ld", "tcgen05.mma"} <= {n for e in document["entries"] for n in e["names"]}
    assert len(porter_json("map")["entries"]) == len(table()[0])


def test_an_unknown_word() -> None:
    said = porter("map", "tcgen05.wiat", code=2).stderr
    assert "PT6054" in said
    assert "near: tcgen05.wait" in said
    assert "near" not in porter("map", "zzzzzzzz", code=2).stderr.splitlines()[1]


def test_map_knows_rules_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "acme.yaml").write_text(
        "schema: 2\nlibrary: acme\nrules:\n  - {id: ACME100, title: House wait, recognize: 'acme::wait()',\n"
        "     as: {wait: {pending: '0'}}, safety: review, reason: It is wgmma's.,\n"
        "     examples: [{before: 'acme::wait()', facts: [{wait: {pending: '0'}}]}, {near: 'acme::wait(x)'}]}\n"
    )
    porter("map", "acme::wait", code=2)
    assert "ACME100 House wait" in porter("map", "acme::wait", "--rules", tmp_path).stdout
