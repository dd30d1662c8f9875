# SPDX-License-Identifier: Apache-2.0
"""The page of a kernel and its port: what stands in it, that it needs nothing else, and that a browser is content."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner
from documents import checked, group, hazards, left, verified
from rich.text import Text

from porter.cli.main import main
from porter.ptx.parser import parse_module
from porter.report import json as report_json
from porter.report import page

CORPUS = Path(__file__).parent.parent.parent / "corpus"
OLD = b"int a;\nwgmma();\nint b;\n</script><b>&amp;\n"
NEW = b"int a;\nfence();\numma();\nint b;\n</script><b>&amp;\n"
PTX = """.version 8.6
.target sm_100a
.address_size 64
.visible .entry k()
{
    .loc 1 3 1
    bar.sync 0;
    .loc 2 9 1, function_name $f, inlined_at 1 2 1
    bar.sync 1;
    ret;
}
.file 1 "a.cu"
.file 2 "elsewhere.cuh"
"""


def porter(*words: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output


class Elements(HTMLParser):
    """Elements in order, with their attributes; whatever is opened has to be closed."""

    VOID = ("meta", "link", "br", "line", "path")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {k: v or "" for k, v in attrs}))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def of(self, name: str) -> list[dict[str, str]]:
        return [a for _, a in self.found if name in a.get("class", "").split()]


def subject(*documents: dict, **fields: object) -> page.Subject:
    found = page.source("a.cu", OLD, NEW)
    module = parse_module(PTX)
    assembly = page.Assembly("k", "sm_100a", PTX, page.places_of(module.functions[0]))
    given = {
        "sources": [found],
        "assembly": assembly,
        "timeline": [Text.assemble(("warp 0", "bold"), " ", ("─", "green"))],
    }
    return page.Subject("a.cu", documents, **(given | fields))


def test_a_line_leads_to_the_line_beside_it_and_to_its_ptx() -> None:
    page_of = Elements(page.html(subject()))
    lines = [a for tag, a in page_of.found if tag == "div" and "data-k" in a]
    keys = [a["data-k"] for a in lines]
    # five rows on both sides; umma() is on the third, which has no original beside it
    assert keys[:5] == keys[5:10] == [f"0:{i}" for i in range(5)]
    changed = [a["data-k"] for a in lines[:10] if "changed" in a.get("class", "")]
    assert sorted(changed) == ["0:1", "0:1", "0:2", "0:2"]
    # the first barrier is on line 3 of the port, the second one is inlined on its line 2
    assert keys[10:] == ["0:2", "0:1", "0:1"]


def test_sources_cannot_end_the_page_or_the_script() -> None:
    text = page.html(subject(checked(left("</script><script>alert(1)</script>", 1))))
    assert "<script>alert" not in text
    assert "&lt;/script&gt;&lt;b&gt;&amp;amp;" in text
    assert len(re.findall("<script", text)) == 1
    Elements(text)


def test_nothing_is_asked_of_the_network() -> None:
    page_of = Elements(page.html(subject(hazards("a.cu"), verified("clean"))))
    for _, attributes in page_of.found:
        for name in ("src", "href", "action", "data"):
            assert attributes.get(name, "#").startswith(("#", "data:"))
    assert not re.search(r"@import|url\((?!data:)", page.html(subject()))
    policy = next(a["content"] for tag, a in page_of.found if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy


def test_a_hazard_has_both_sites_and_the_missing_edge() -> None:
    page_of = Elements(page.html(subject(hazards("a.cu", pairs=2))))
    assert len(page_of.of("flow")) == 2
    assert len(page_of.of("site")) == 4
    assert [tag for tag, _ in page_of.found].count("line") == 2
    assert "fence.proxy.async" in page_of.texts
    # the sites of the first pair are lines 1 and 2 of the port
    assert [a["data-k"] for a in page_of.of("site")][:2] == ["0:0", "0:1"]


def test_edit_groups_have_their_state_and_lead_to_their_lines() -> None:
    ported = group(OLD, b"wgmma", b"umma")
    (shown,) = Elements(page.html(subject(ported))).of("group")
    assert shown["data-k"] == "0:1"
    ported["groups"][0]["state"] = "refused"
    assert "refused" in Elements(page.html(subject(ported))).texts


def test_a_document_of_another_kind_shows_its_figures() -> None:
    document = report_json.document("doctor", 0, {"diagnostics": [], "grade": "B", "share": 0.7})
    texts = Elements(page.html(subject(document))).texts
    assert {"grade", "B", "share", "0.7"} <= set(texts)


def test_documents_of_commands_become_files(tmp_path: Path) -> None:
    (tmp_path / "h.json").write_text(json.dumps(hazards("a.cu")))
    names = {form: tmp_path / f"out.{form}" for form in ("html", "sarif", "junit", "markdown")}
    options = [word for form, path in names.items() for word in (f"--{form}", path)]
    output = porter("report", tmp_path / "h.json", *options, code=5)
    assert output.count("wrote ") == 4
    assert json.loads(names["sarif"].read_text())["runs"][0]["results"]
    Elements(names["html"].read_text())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "it is no JSON"),
        ("[]", "it says no kind of result"),
        ('{"kind": "nothing"}', "it says no kind of result"),
        ('{"kind": "hazards", "schema_version": 7}', "schema_version"),
        ('{"kind": "hazards", "schema_version": 1}', "the document does not follow the schema of `hazards`"),
    ],
)
def test_what_is_no_document_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "h.json").write_text(text)
    output = porter("report", tmp_path / "h.json", "--html", tmp_path / "o.html", code=2)
    assert "PT0030" in output
    assert problem in output
    assert not (tmp_path / "o.html").exists()


def test_a_report_has_to_go_somewhere(tmp_path: Path) -> None:
    assert "name at least one file" in porter("report", tmp_path / "k.cu", code=2)


@pytest.mark.slow
def test_a_kernel_of_the_corpus_in_a_browser(tmp_path: Path) -> None:
    """Light and dark: no message on the console, no request, and a click marks lines in all panes."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if importlib.util.find_spec("playwright") is None or chromium is None:
        pytest.skip("no Chromium, or no playwright to drive it (pip install playwright; apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    out = tmp_path / "gemm.html"
    porter("report", "--style", "compat", CORPUS / "gemm_ws" / "gemm_ws.cu", "--html", out)
    said: list[str] = []
    asked: list[str] = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        backgrounds = set()
        for scheme in ("light", "dark"):
            view = browser.new_context(color_scheme=scheme).new_page()
            view.on("console", lambda message: said.append(message.text))
            view.on("pageerror", lambda error: said.append(str(error)))
            view.on("request", lambda request: asked.append(request.url))
            view.goto(out.as_uri())
            view.locator(".group", has_text="PTR110").click()
            for pane in (".old", ".new", ".ptx"):
                assert view.locator(f"{pane} .mark").count() > 0
            view.locator(".tab").nth(1).click()
            assert view.locator(".file:not([hidden])").count() == 1
            backgrounds.add(view.evaluate("getComputedStyle(document.body).backgroundColor"))
        browser.close()
    assert not said
    assert {url.partition(":")[0] for url in asked} <= {"file", "data"}
    assert len(backgrounds) == 2
