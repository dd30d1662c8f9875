# SPDX-License-Identifier: Apache-2.0
"""PT6xxx: rules."""

from __future__ import annotations

from porter.diagnostics.types import ExitCode, error

RULE_FILE = error(
    "PT6001",
    ExitCode.USAGE,
    "broken rule file: {problem}",
    "Rule files are YAML and follow `rule.schema.json`, those with `schema: 2` follow `facts.schema.json`.",
    "Mend the place that is named; an editor with the schema shows what is allowed there.",
)
RULE_DUPLICATE = error(
    "PT6002",
    ExitCode.USAGE,
    "rule {rule} is defined twice, here and in {other}",
    "A rule ID names one rule for good.",
    "Give the new rule an ID of its own.",
)
RULE_UNKNOWN = error(
    "PT6003",
    ExitCode.USAGE,
    "no rule has the ID or prefix {rule}",
    "Rules are selected and ignored by their ID or the beginning of it; `none` selects no rule.",
    "See docs/rules.md for the IDs.",
)
