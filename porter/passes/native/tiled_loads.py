# SPDX-License-Identifier: Apache-2.0
"""What a kernel with tiled MMAs of a library loads by tensor maps into the stages of its pipeline: which boxes, from
where, and as which operand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.functions import Call, Function
from porter.model.pipeline.frames import Frame, Wording, first_value
from porter.model.scopes import resolve
from porter.passes.native.sites import Left, Place
from porter.passes.native.tiled_mainloop import TiledPipelined

_DEEPEST = 8
_MAP, _TO, _COORDS = 0, 3, 4
"""Arguments of a load; mbarrier and cache hint stand between map and place."""
_ARGUMENTS = 6


@dataclass(frozen=True)
class Load:
    """A load of a box: `map` is the kernel's parameter, `memory` what the place is a part of, in the kernel's words.
    `callee` names the function that is called, `coords` are the coordinates as the caller writes them."""

    frame: Frame
    call: Call = field(repr=False)
    callee: Node = field(repr=False)
    map: str
    memory: str
    coords: tuple[Node, ...] = field(repr=False)

    @property
    def place(self) -> Place:
        return Place(self.call.caller, self.call.node)


@dataclass(eq=False)
class Loads:
    """The loads of one kernel, whose functions are `reached`."""

    kernel: TiledPipelined
    reached: list[Function]

    def __post_init__(self) -> None:
        self.program = self.kernel.program
        self.wording = Wording(self.program)
        self._are = self.program.vocabulary.spellings.are

    def all(self) -> list[Load]:
        """
        Raises:
            Left: there are none, or one is not read.
        """
        found = [self._load(call) for call in self._calls()]
        if not found:
            raise self.kernel.begin.left("loads of boxes of two dimensions into the stages of the pipeline")
        return found

    def _calls(self) -> Iterator[Call]:
        for function in self.reached:
            for call in function.calls:
                callee = call.node.child_by_field_name("function")
                parts = function.text(callee).split("::") if callee is not None else []
                if len(parts) > 1 and parts[-1].strip() == "copy" and self._are("load_of_box", parts[-2].strip()):
                    yield call

    def _load(self, call: Call) -> Load:
        place = Place(call.caller, call.node)
        callee = call.node.child_by_field_name("function")
        if len(call.args) != _ARGUMENTS or callee is None:
            raise place.left("a load of a box of two dimensions, with its cache hint")
        frame = self._frame(place)
        name = self.wording.object(frame, call.args[_MAP])
        param = self.kernel.kernel.function.param(name)
        if param is None or param.node is None or "*" in self.kernel.kernel.function.text(param.node):
            raise place.left("a tensor map that is a parameter of the kernel")
        memory = self.memory(frame, call.args[_TO])
        if len(memory) != 1:
            raise place.left("the shared memory that is loaded to, as that of one tensor")
        return Load(frame, call, callee, name, memory.pop(), tuple(call.args[_COORDS:]))

    def _frame(self, place: Place) -> Frame:
        """How the kernel comes to the function of a load."""
        frames = {
            tuple(s.node.id for s in o.sites[:i]): s.frame
            for o in self.kernel.walk.operations if o.kind == "arrive_tx"
            for i, s in enumerate(o.sites) if s.frame.function is place.function
        }  # fmt: skip
        if len(frames) != 1:
            raise place.left("one way from the kernel to this load, by which the bytes of a stage are expected, too")
        return next(iter(frames.values()))

    def memory(self, frame: Frame, node: Node, depth: int = 0) -> set[str]:
        """The shared memory of the tensors that an expression is made of, in the kernel's words."""
        function = frame.function
        found: set[str] = set()
        for name in [node] if node.type == "identifier" else find(node, "identifier"):
            variable = resolve(function, name, function.text(name))
            if variable is None or variable.function is not function or depth > _DEEPEST:
                continue
            if variable.param is not None:
                given = frame.bound.get(variable.name)
                if given is not None and frame.outer is not None:
                    found |= self.memory(frame.outer, given, depth + 1)
                continue
            value = first_value(variable)
            if value is None:
                continue
            whole = value if value.type == "call_expression" else None
            called = whole.child_by_field_name("function") if whole is not None else None
            arguments = whole.child_by_field_name("arguments") if whole is not None else None
            made = called is not None and self._are("tensor_of_memory", function.text(called).split("::")[-1])
            if made and arguments is not None and arguments.named_children:
                found.add(self.wording.words(frame, arguments.named_children[0]))
            else:
                found |= self.memory(frame, value, depth + 1)
        return found

    # --- Where in the product

    def name_of(self, load: Load, param: str) -> str:
        """What the function of a load calls a parameter of the kernel, which it is handed.

        Raises:
            Left: it does not know it.
        """
        frame = load.frame
        if frame.outer is None:
            return param
        for name, given in frame.bound.items():
            same = self.wording.words(frame.outer, given) == param
            if same and not self.wording.changes(frame.function, name):
                return name
        raise load.place.left(f"`{param}` as a parameter of `{frame.function.name}`")


__all__ = ["Left", "Load", "Loads"]
