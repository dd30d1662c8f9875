# SPDX-License-Identifier: Apache-2.0
"""Pages on the YAML files that people write: an example, and every field of the JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from porter.verify.activations import ACTIVATIONS
from porter.verify.array_functions import CONSTANTS, DTYPES, FUNCTIONS, METHODS

DOCS = Path(__file__).resolve().parent

CASES_HEAD = """# Case files

A `case.yaml` beside a kernel says how to run it. It is written once, for the original; a port runs on the
same case.

```yaml
{example}```

`porter case new KERNEL` writes a draft of one ([drafts.md](drafts.md)).

Expressions are arithmetic over the names in `sizes` and `constants`: `+ - * / // % **`, comparisons, `min`,
`max`, `ceil_div(a, b)`, `align_up(a, b)`. `/` must come out even. The reference is a NumPy expression over
the input tensors as float64 arrays.

A case may come from anybody, so its texts are bounded. All tensors of a size have 2^28 elements at most. An array of a
reference has 2^27, all that it holds at one time 2^28, and it may do about what one core does in a few seconds. A
product of 2048 x 2048 x 1024 is within that, one of 4096 x 4096 x 4096 is not: `{{python: …}}` has no such limit, and
is run only with `--trust`.

References have these functions by name, without `np.`, and know what errors of their arguments make of the result:

{activations}

Of NumPy they have

| | |
|---|---|
| behind `np.` | {functions} |
| of arrays | {methods}, `.T`, `.shape`, `.ndim`, `.size` |

A kernel in a string of a Python file (`load_inline`) has the Python file as its `kernel`. Of the string the device
code is compiled; host functions and PyTorch's headers are left out.

## Parameters

`params` lists the kernel's arguments in their order. Each is

| written as | is |
|---|---|
| `C` | the address of a tensor, from its first element on |
| `{{address_of: C, offset: M * N}}` | the same, some elements on |
| `map_a` | a tensor map: 128 bytes by value, `__grid_constant__` |
| `{{address_of: map_a}}` | the address of a tensor map in global memory, which Porter puts there |
| `K`, `"K / BK"`, `3` | a number, as wide as the compiled kernel declares the parameter |
| `{{value: alpha, type: f32}}` | a number of a stated type: `s8` to `u64`, `f16`, `bf16`, `f32`, `f64`, `bool` |
| `{{struct: [C, {{value: N, type: s32}}]}}` | a struct by value: members in order, naturally aligned |

A number in a struct needs its `type`; structs may stand in structs (`corpus/gemm_grouped/case.yaml`). PTX often
declares a floating-point parameter as bits, so `{{value: alpha, type: f32}}` says what they are.

## Strides

`shape` is outermost dimension first, as in NumPy; `strides` are in elements, one for each dimension, row-major where
they are left out. A matrix by columns is `{{shape: [M, K], strides: [1, M]}}`, one with rows of `LD` elements
`{{shape: [M, K], strides: [LD, 1]}}`. Elements must not overlap. `strides` of a tensor map are those of the tensor
where absent; `dims` and `offset` make a map over a part of it.

## What a port changes

A port that Porter makes runs with the launch of the original, or says itself what it changes. A port that is given
(`--port`) may have other blocks, clusters, grids, shared memory and tensor maps; then the case says so:

```yaml
port:
  constants: {{BM: 256, BN: 256, STAGES: 4}}     # of a pair of CTAs, each with half of A and of B
  launch:
    cluster: [2, 1, 1]
    dynamic_smem: STAGES * (BM + BN) // 2 * BK * 2 + CONSUMERS * 64 * BN * 2 + 128
  tensor_maps:
    tma_a: {{box: [BM // 2, BK]}}
    tma_b: {{box: [BN // 2, BK]}}
  multiples: {{M: BM, N: BN}}                    # sizes that are none are not run, and the last lines say so
```

What stands there replaces what the case says, and only for the port: values of `launch` and fields of a tensor map one
by one, `constants` by name, `template` and `params` as a whole. Expressions take the port's constants. Tensors and
reference are those of the original, so that both programs get the same inputs. The launch is held against what the
compiled port states (`__cluster_dims__`, `__launch_bounds__`, shared memory); what does not fit is refused (PT5011).
`verify`, `hazards`, `mutate`, `grade`, `build` and `report` read the section with `--port`. A kernel with
several ports has a case file for each (`--case pair.case.yaml`). The launch of a CuTe DSL port, and of a program with
its own `main()`, is what its host code makes.

## Reference functions

`reference: {{python: "reference.py:attention"}}` names a function of a file beside the case:

```python
def attention(inputs: dict[str, np.ndarray], sizes: dict[str, int]) -> dict[str, np.ndarray]:
```

`inputs` has every tensor of role `input` or `inout` by its name, in float64 and in the tensor's shape, whatever its
strides; `sizes` the sizes and the constants. It gives an array for each tensor of role `output` or `inout`, by name, in
its shape; with a single output the array alone will do. Nothing is rounded: the comparison knows the number formats.

## What results are held to

Inputs of integers must give equal results. The other families are held to a bound: the loss of one step times the
length of the sum (`reduction`), relative to the sum of the absolute values of an element's terms, which follows from
the reference. That fits sums of products. For anything else the case says more:

* `exact: false` where integers give no exact result either (divisions, exponentials);
* `reference: {{python: "reference.py:attention"}}`, a function of the input arrays and the sizes, where an expression
  will not do, or where it overflows: in float64 `exp` is infinite from 710 on, and what follows is NaN;
* `magnitude`, what errors are relative to. A kernel that rounds in between needs more than the sum's own terms:
  probabilities in bf16 lose 2**-9 each, some 4096 times what a sum in float loses;
* `families`, those for which reference and magnitude hold. Attention takes `index` and `normal`
  (`corpus/attention_fwd/case.yaml`).

## Which sizes run

`porter verify` without `--sizes` runs the default size with every input family, and with one family each what that
size cannot show:

* the other instantiations (`template`, `defines`, the constructor of a CuTe DSL kernel) that the listed sizes make;
* edges: a size that is no multiple of a tile. Tensor maps, grid, `tile` and constants such as `BM` say what tiles are;
* a long loop: at least 66 steps, so that neither the 17th nor the 65th is the last; where outputs grow with it, as with
  the keys of attention, at least 18;
* three blocks in each dimension of the grid that a size can make so large, in all at the same time;
* many tiles of a block, where tiles grow with a size and the grid does not: twelve of each block (eight in CuTe DSL),
  so that two accumulators come round again three times.

Sizes that the case lists are taken where they have this, the fewest that do; what is left is derived from a small one
of them: multiples of one size or two, the others small. Two fields help with that:

```yaml
steps: {{S: BN}}               # the main loop runs over S, BN at a time; else over the names in `reduction`
multiples: {{M: 1, N: 8}}      # any M is legal, and any N that is a multiple of 8; {{M: BM}} has no edge
```

Where `multiples` says nothing, an edge is tried: if the original agrees with the reference there, it is legal and the
port is compared too; if not, it is left out. So are the other derived sizes, which are multiples of the greatest common
divisor of the listed ones.

Then the runs themselves say what they did not come to. The simulator tells the largest value that each comparison with
a constant had, and how many phases each mbarrier completed, of original and port. A counter that grew with a size from
one run to another, but not beyond its constant (`if (k == 100)`, `k >> 7`,
`min(k, 100)`), gets a larger value of that size. So does a ring that did not come round three times. Up to four sizes
are added, of at most 600,000 warp-instructions a program. A
constant that hides in other arithmetic (`k % 101 == 100`, which compilers make a multiplication of) is not seen.

Where original or port leave something behind that outlives the launch, in a `__device__` variable or a scratch tensor,
both are launched once more on that: inputs and outputs are set anew, the rest stays. If the original is right in the
second launch only with scratch tensors set anew, its host code does that, and the port's are too. A port that is wrong
there alone is an error of its own (PT5030); of an original that is, nothing is said about its port.

The last lines of the output say what was not run: listed sizes and instantiations, and sizes that were left out, with
the reason (the case does not allow them, they take too long, what was recorded has one size). They name what is beyond
constants that no run came to, mbarriers that never reached a second phase, and the port's instructions that no run came
to, by source line. Where the port did not run in the simulator, they name the hazard checker and other schedules.
`--sizes default` runs
the default size alone, `--sizes all` all that are listed.

## Fields

Made from `porter/verify/case.schema.json` by `make docs`. Fields in bold are required.
"""

EXAMPLE = DOCS.parent / "corpus" / "gemm_ws" / "case.yaml"


def cases_page() -> str:
    """The case format: an example from the corpus and every field of the schema."""
    schema = json.loads(resources.files("porter.verify").joinpath("case.schema.json").read_text("utf-8"))
    example = EXAMPLE.read_text("utf-8").split("\n", 1)[1]
    return CASES_HEAD.format(example=example, **_functions()) + "\n".join(_field_lines(schema, schema)) + "\n"


def _functions() -> dict[str, str]:
    """What references may call."""
    rows = [f"| `{a.name}({', '.join(['x', *sorted(a.keywords)])})` | {a.formula} |" for a in ACTIVATIONS.values()]
    names = (n for n in FUNCTIONS if "." not in n)
    return {
        "activations": "\n".join(["| function | is |", "|---|---|", *rows]),
        "functions": ", ".join(f"`{n}`" for n in sorted([*names, *CONSTANTS, *DTYPES])),
        "methods": ", ".join(f"`{n}`" for n in sorted(METHODS)),
    }


LAUNCHES_HEAD = """\
# Launch files

A kernel that is known as PTX runs with a file that says how it is launched. Where the PTX comes from does not matter:
an extension, Triton or Gluon, TIRx, tilelang, CuTe DSL, nvcc.

```
porter hazards --ptx kernel.ptx --launch launch.yaml
porter run --ptx kernel.ptx --launch launch.yaml
porter mutate --ptx kernel.ptx --launch launch.yaml
```

FILE of `--ptx` is text, or a fat binary, object, library or executable with PTX in it; of modules for several chips
the newest is taken, or with `--arch sm_90a` the newest that this chip takes. A file without PTX is refused (PT5053).

```yaml
version: 1
ptx: gemm.ptx                  # where --ptx names no other
entry: gemm                    # the name, or a part of it that no other kernel has
sizes: {{M: 256, N: 128, K: 64}} # names for expressions, as in case files
launch:
  grid: [N / 128, M / 128]
  block: [128]
  cluster: [2]                 # what the kernel requires when absent
  dynamic_smem: 3 * (128 + 128) * 64 * 2
tensors:
  A: {{dtype: f16, shape: [M, K], init: integers}}
  B: {{dtype: f16, shape: [N, K], init: {{file: b.npy}}}}
  C: {{dtype: f32, shape: [M, N], init: 0, expected: c.npy}}
tensor_maps:
  map_a: {{tensor: A, box: [128, 64], swizzle: 128B}}
  map_b: {{tensor: B, box: [128, 64], swizzle: 128B, l2_promotion: 256B}}
params:
  - map_a                      # 128 bytes by value
  - map_b
  - C                          # its address; {{address_of: C, offset: 4}} from an element on
  - K                          # a number, as wide as the parameter is
  - {{value: 0.5, type: f32}}
  - {{struct: [A, {{value: 1, type: s32}}]}}   # by value, members with natural alignment
```

Several launches stand in order, each with its `launch`, `params` and `entry`, and with `ptx` where that is another one.
Each finds in the tensors, and in the variables of its module, what the ones before it left; `expected` is what the last
one leaves. `pdl: true` lets a launch begin before the one ahead of it has ended (programmatic dependent launch): what
it reads of that one without `griddepcontrol.wait` is a hazard (G9).

```yaml
launches:
  - {{entry: fill, launch: {{grid: [8], block: [128]}}, params: [C, K]}}
  - entry: gemm
    pdl: true
    launch: {{grid: [N / 128, M / 128], block: [128]}}
    params: [map_a, map_b, C, K]
```

`mutate` and `grade` take files with one launch, `hazards --prove` looks at the one whose kernel `--kernel` names.

A parameter that a compiler made up has a layout of its own: what is known of it as bytes stands as bytes, with the
addresses and tensor maps among them:

```yaml
  - bytes: "00000000000000000000010000000000000000000000803f"
    contains: [{{at: 0, address_of: A}}]
```

Exit codes are those of `porter hazards` and `porter run`: 5 for a hazard, a run-time error, or an output that is not as
`expected`. 6 is no verdict, and 2 is for a file that cannot be meant, with the line.

`porter capture` writes `launch.yaml` beside each case whose kernel is known as PTX: the launch of a program, to be run
without it.

## Fields

Made from `porter/verify/launch.schema.json` by `make docs`. Fields in bold are required. Expressions, tensor maps,
arguments and what bytes contain are those of [case files](cases.md).
"""


def launches_page() -> str:
    """The format of launch files: every field of the schema."""
    schema = json.loads(resources.files("porter.verify").joinpath("launch.schema.json").read_text("utf-8"))
    case = json.loads(resources.files("porter.verify").joinpath("case.schema.json").read_text("utf-8"))
    own = {name: field for name, field in schema["properties"].items() if "$ref" not in field}
    known = {**case, "properties": {**case["properties"], **own}}
    return LAUNCHES_HEAD.format() + "\n".join(_field_lines(schema, known)) + "\n"


def _field_lines(part: dict[str, Any], schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """A table of the properties of `part`, then one for each property that has properties of its own."""
    yield ""
    yield "| field | type | |"
    yield "|-------|------|--|"
    nested: list[tuple[str, dict[str, Any]]] = []
    for name, stated in part["properties"].items():
        field = _resolved(stated, schema)
        shown = f"**`{name}`**" if name in part.get("required", ()) else f"`{name}`"
        described = stated.get("description") or ("" if "$ref" in stated else field.get("description", ""))
        yield f"| {shown} | {_type_text(stated, field)} | {described} |"
        inner = field.get("additionalProperties")
        if isinstance(inner, dict) and "required" in inner:
            inner = {**_resolved(inner, schema), "required": inner["required"]}
        if "properties" in field:
            nested.append((name, field))
        elif isinstance(inner, dict) and "properties" in inner:
            nested.append((f"{name}.<name>", inner))
        elif "properties" in field.get("items", {}):
            nested.append((f"{name}[i]", {**field["items"], "properties": dict(_not_stated_twice(field["items"]))}))
    for name, field in nested:
        yield ""
        yield f"### `{prefix}{name}`"
        yield from _field_lines(field, schema, f"{prefix}{name}.")


def _not_stated_twice(part: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The properties of a part; what is that of the whole goes by its type."""
    for name, stated in part["properties"].items():
        whole = stated.get("$ref", "").startswith("#/properties/") and "description" not in stated
        yield name, {**stated, "description": f"As `{name}` of a file with one launch."} if whole else stated


def _resolved(part: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    reference = part.get("$ref")
    found: Any = schema if reference else part
    for key in reference.partition("#/")[2].split("/") if reference else ():
        found = found[key]
    return found


def _type_text(stated: dict[str, Any], field: dict[str, Any]) -> str:
    if "$ref" in stated:
        name = stated["$ref"].rsplit("/", 1)[1]
        return name if "$defs" in stated["$ref"] and "enum" not in field else _type_text(field, field)
    if "enum" in field:
        return " ".join(f"`{value}`" for value in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    if "anyOf" in field:
        return "text or mapping"
    kind = field.get("type", "text")
    if kind == "array" and "$ref" in field.get("items", {}):
        return f"list of {field['items']['$ref'].rsplit('/', 1)[1]}"
    names = {"object": "mapping", "array": "list", "string": "text", "boolean": "true or false"}
    return " or ".join(names.get(k, k) for k in ([kind] if isinstance(kind, str) else kind))
