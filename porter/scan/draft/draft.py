# SPDX-License-Identifier: Apache-2.0
"""A draft of a case file: what is known of how to run a kernel, and what is a guess."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

LINE = 116
"""Columns of a line of a case file."""


UNKNOWN = "the value of "
"""Begins the reason of a guess at a parameter."""


@dataclass
class Draft:
    """The fields of a case by name. `guesses` says of a field (`tensors.C`, `reference`) what is assumed there; `notes`
    where a value comes from. `files` are texts that go beside the case, by name."""

    fields: dict[str, Any] = field(default_factory=dict)
    guesses: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)

    def guess(self, where: str, why: str) -> None:
        self.guesses[where] = why

    def place_files(self, stem: str) -> None:
        """Files beside a case that has a name of its own have it in front."""
        if stem == "case":
            return
        self.files = {f"{stem}.{name}": text for name, text in self.files.items()}
        reference = self.fields.get("reference")
        if isinstance(reference, dict):
            self.fields["reference"] = {"python": f"{stem}.{reference['python']}"}

    def text(self) -> str:
        """The case file, with every guess marked by a comment behind its line."""
        lines = ["# A draft. Lines with `guess` say what the sources do not: check them, then take the words away."]
        for name, value in self.fields.items():
            if isinstance(value, Mapping) and name in ("tensors", "tensor_maps", "launch") and value:
                lines.append(self._marked(f"{name}:", name))
                lines += [self._marked(f"  {k}: {flow(v)}", f"{name}.{k}") for k, v in value.items()]
            elif name == "params":
                lines += self._params(value)
            else:
                lines.append(self._marked(f"{name}: {flow(value)}", name))
        return "\n".join(lines) + "\n"

    def _params(self, value: Sequence[Any]) -> list[str]:
        whole = self._marked(f"params: {flow(value)}", "params")
        own = any(f"params[{i}]" in self.guesses for i in range(len(value)))
        if len(whole) <= LINE and not own:
            return [whole]
        head = self._marked("params:", "params")
        return [head, *(self._marked(f"  - {flow(v)}", f"params[{i}]") for i, v in enumerate(value))]

    def _marked(self, line: str, where: str) -> str:
        if where in self.guesses:
            return f"{line}  # guess: {self.guesses[where]}"
        return f"{line}  # {self.notes[where]}" if where in self.notes else line


class _Dumper(yaml.SafeDumper):
    pass


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = '"' if "'" in value or not value.replace("_", "").replace("::", "").replace(".", "").isalnum() else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def flow(value: Any) -> str:
    """A value on one line, as case files have them."""
    text = yaml.dump(value, Dumper=_Dumper, default_flow_style=True, sort_keys=False, width=10**6, allow_unicode=True)
    text = text.strip()
    return text.removesuffix("...").strip()
