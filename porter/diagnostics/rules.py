# SPDX-License-Identifier: Apache-2.0
"""PT6xxx: rules."""

from __future__ import annotations

from porter.diagnostics.types import ExitCode, error, warning

RULE_FILE = error(
    "PT6001",
    ExitCode.USAGE,
    "broken rule file: {problem}",
    "Rule files are YAML and follow `rules.schema.json`; patterns, captures and texts have to fit together.",
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
RULE_NEAR_MISS = error(
    "PT6004",
    ExitCode.UNPORTED,
    "near miss of rule {rule}: {what}",
    "The name is one that a rule is for, and the form is none that it knows. An instruction of the tensor core that is "
    "left out would make a wrong port.",
    "Write a rule for this form, or rewrite the call; `porter rules explain FILE:LINE` shows what was tried.",
)
RULE_CONFLICT = error(
    "PT6005",
    ExitCode.USAGE,
    "rules contradict each other at {place}: {what}",
    "Two rules of the same priority, whose patterns are as long, recognize different things at one place.",
    "Give one of them a `priority`, or narrow it by `where`.",
)
RULE_DISAGREES = error(
    "PT6006",
    ExitCode.USAGE,
    "rule {rule} is wrong at {place}: {what}",
    "The body of the called function is at hand, and does something else than the rule says.",
    "Mend the rule; `definition: read` takes the body in place of the rule, `definition: keep` the rule unread.",
)
RULE_BINDING = error(
    "PT6007",
    ExitCode.UNPORTED,
    "rule {rule} needs ${name}: {why}",
    "The text of an emitter names something that the model does not have at this place.",
    "Narrow the rule, or write its text without it.",
)
RULE_REFUSED = error(
    "PT6008",
    ExitCode.UNPORTED,
    "{what}: {advice}",
    "A rule says that this construct is not ported, and what can be done.",
    "Follow the rule's advice, or keep the kernel for sm_90a.",
)
RULE_NOT_APPLIED = warning(
    "PT6009",
    "rule {rule} is not applied: {what}",
    "A replacement is for this name, and the form is none that it knows, or what the name means is not sure. The text "
    "stays as it is.",
    "Write a rule for this form, give the header with -I, or change the text by hand.",
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
