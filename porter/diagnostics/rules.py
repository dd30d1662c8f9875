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
RULE_EXAMPLE = error(
    "PT6051",
    ExitCode.FINDINGS,
    "example {number} of {rule} does not hold: {problem}",
    "The examples of a rule are its tests: what they say of a text is compared with what the engine makes of it.",
    "Mend the rule or the example; `porter rules test --accept` writes what was found into the file.",
)
RULE_EXAMPLE_LEFT = error(
    "PT6052",
    ExitCode.UNPORTED,
    "example {number} of {rule} does not hold, and --accept has nothing to write: {problem}",
    "Only whole results, facts and the IDs of messages are written; lines that a result must or must not have, and "
    "near misses, are for the author to say.",
    "Mend the rule or the example by hand.",
)
RULE_PLACE = error(
    "PT6053",
    ExitCode.USAGE,
    "there is {what} here",
    "A place is given as FILE:LINE, or as FILE:LINE:COLUMN where several calls stand on one line.",
    "Give the line on which the call begins.",
)
MAP_UNKNOWN = error(
    "PT6054",
    ExitCode.USAGE,
    "the mapping table has nothing on {word}",
    "`porter map` knows instructions, names of CuTe, CUTLASS and CuTe DSL that are for Hopper, and tcgen05.",
    "Give the name in full or its end, or run `porter map` for all names.",
)
