# SPDX-License-Identifier: Apache-2.0
"""Records as JSON with one row a line, so that a change shows as one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def as_rows(document: Mapping[str, Any]) -> str:
    """A JSON object: each value on a line, of a list of objects each object."""
    return "{\n" + ",\n".join(f" {json.dumps(k)}: {_value(v)}" for k, v in document.items()) + "\n}\n"


def _value(value: Any) -> str:
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        return json.dumps(value, ensure_ascii=False)
    rows = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in value)
    return f"[\n{rows}\n ]" if value else "[]"
