# SPDX-License-Identifier: Apache-2.0
"""What words in sources and build files stand for, where nothing but the word tells: rules with a regex say it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "capability": "a name of what holds a compute capability as one number, such as 90 or 900",
        "capability_major": "a name of what holds the first number of one",
        "capability_minor": "a name of what holds the second number of one",
        "capability_in_hundreds": "a name of what holds one as a number such as 900",
        "capability_asked": "a text in which a compute capability may be asked for",
        "query_of_major": "in the arguments of a query, what asks for the first number",
        "query_of_minor": "in the arguments of a query, what asks for the second number",
        "query_of_both": "the name of a function that gives both numbers through its two pointers",
        "capability_member": "a member that is a number of one, of the properties of a device",
        "capability_of_code": "a member that says which chip a compiled kernel is for",
        "capability_struct": "in a text, what says that it asks for the properties of a device",
        "printing": "the name of a function whose arguments are only shown to somebody",
        "pairing": "the name of a function or type that makes one value of its arguments",
        "to_text": "the name of a function that makes a text of its arguments",
        "lookup": "the name of a function or method that looks a value up",
        "capability_pair": "an expression that makes Hopper's capability of two numbers",
        "conversion": "the name of a function or type that gives its argument as a number",
        "chip_text": "the contents of a string that names Hopper",
        "comparison": "the name of a function that holds texts against each other",
        "hopper_macro": "a macro that is defined for Hopper alone",
        "blackwell_macro": "a macro that is defined for datacenter Blackwell alone",
        "common_macro": "a macro that is defined for both",
        "late_architecture": "the name of a function that tells the chip which code is compiled for",
        "hopper_condition": "a part of a preprocessor condition that Hopper meets",
        "blackwell_condition": "a part of one that Blackwell meets and Hopper does not",
        "tensor_memory": "a name of what uses Tensor Memory",
        "a_in_registers": "a name of an MMA, or of a function that chooses one, with A from registers",
        "a_in_shared": "the same with A in shared memory",
        "computing_function": "a function whose result follows from its arguments, none of which it changes",
        "hopper_atom": "the name of an MMA's atom, with the types `d`, `a` and `b`, and `from` where it takes operands",
        "hopper_selector": "the name of a function that chooses one, with `from` where it takes operands",
        "hopper_namespace": "the namespace of what is said of Hopper's MMAs",
        "scale_of_hopper": "the same in front of what says whether an MMA adds",
        "type_of_tiled_mma": "the type of a tiled MMA up to its atom",
        "namespace_of_types": "a namespace that types of operands stand in",
        "asserting_macro": "a macro that holds two values against each other as types",
        "atom_of_sm100": "an atom of an MMA of SM100",
        "asking_for_lane": "in a text, what asks which lane of a warp a thread is, or gives values to others",
        "choosing_function": "a function that gives one of its two arguments, by an argument of its template",
        "calling_function": "a function that calls another one for each of several values, and does nothing else",
        "computing_method": "a method of which the same holds, also of its object",
        "making_tiled_mma": "a function that makes a tiled MMA of an atom, and of how many there are",
        "load_of_box": "a class whose `copy` loads a box of two dimensions by a tensor map",
        "pipeline_of_threads": "a class of pipelines whose stages threads give back",
        "layout_of_shape": "a function that gives a layout of the shape that it is handed behind a smaller one",
        "scale_of_d": "a member that says whether an MMA adds to its accumulator",
        "python_capability": "a function of Python that gives a compute capability as a pair",
        "python_major": "an attribute of Python that is the first number of one",
        "python_member": "an attribute of Python that is one, or a number of one",
        "python_shown": "a function of Python whose arguments are only shown to somebody or collected",
        "python_keeps": "a function of Python whose result has its arguments in it",
        "python_asking": "a function of Python that says whether a device has the one that it is given",
        "python_asked": "a text of Python in which a compute capability may be asked for",
        "hopper_target": "in a build file, a target that only Hopper is",
        "blackwell_target": "in a build file, what stands for Blackwell",
        "composed_target": "in a build file, a target whose number is put in",
        "asks_for_90": "in a build file, a comparison with Hopper's capability",
        "asks_for_9": "in a build file, a comparison with its first number",
        "asks_for_pair": "in a build file, Hopper's capability as a pair that is no lower bound",
        "asks_for_device": "in a build file, a comparison with the name of a device",
        "below_blackwell": "in a build file, a bound that keeps Blackwell out",
        "sorted_texts": "in a build file, the first or last of sorted texts",
        "about_architectures": "a word that a line about architectures has",
        "architecture_list": "in a build file, the name of a variable or property that lists architectures",
        "architecture_argument": "in a build file, what a call has in front of architectures that it is handed",
        "tool_of_one_target": "a tool that takes one architecture",
        "run_time_compiler": "a name of what compiles at run time",
        "nvcc": "nvcc, or what calls it",
        "python_build": "what Python that chooses architectures has",
    }
)
"""What a word may be said to be."""

OF_WORDS = frozenset({"conversion", "lookup", "namespace_of_types", "python_keeps", "to_text"})
"""What only whole words are asked for, never parts of a text."""


@dataclass(frozen=True)
class Spelling:
    """A word, or a part of a text, is one of MEANINGS. Of several rules each may say the same."""

    of: str


class Spellings:
    """What rules say that words are."""

    def __init__(self, patterns: Iterable[tuple[str, re.Pattern[str]]] = ()) -> None:
        self._patterns: dict[str, list[re.Pattern[str]]] = {}
        for of, pattern in patterns:
            self._patterns.setdefault(of, []).append(pattern)
        self._known: dict[tuple[str, str], bool] = {}

    def are(self, of: str, word: str) -> bool:
        """Whether a whole word is one."""
        known = self._known.get((of, word))
        if known is None:
            known = any(p.fullmatch(word) is not None for p in self._patterns.get(of, ()))
            self._known[of, word] = known
        return known

    def stand_in(self, of: str, text: str) -> bool:
        """Whether there is one in a text."""
        assert of not in OF_WORDS
        return any(p.search(text) is not None for p in self._patterns.get(of, ()))

    def matches(self, of: str, text: str) -> list[re.Match[str]]:
        """Each of them in a text, with the groups that the rule gives names."""
        assert of not in OF_WORDS
        return sorted((m for p in self._patterns.get(of, ()) for m in p.finditer(text)), key=lambda m: m.start())

    def places(self, of: str, text: str) -> list[tuple[int, int]]:
        """Where each of them begins and ends in a text."""
        assert of not in OF_WORDS
        return sorted(m.span() for p in self._patterns.get(of, ()) for m in p.finditer(text))
