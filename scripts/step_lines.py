# SPDX-License-Identifier: Apache-2.0
"""Lines of what makes ports faster: steps, the search for them, and what judges and shows them in the command line.

python scripts/step_lines.py
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "porter"
PARTS = ("passes/native/*.py", "passes/full_rate/*.py", "steps/*.py", "tune/*.py")
OF_CLI = ("candidates", "judging", "licence")
"""What the command line keeps of the search."""


def lines(paths: list[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def main() -> None:
    counts = {part: lines(list(ROOT.glob(part))) for part in PARTS}
    counts["cli: " + ", ".join(OF_CLI)] = lines([ROOT / "cli" / f"{name}.py" for name in OF_CLI])
    for part, count in (*counts.items(), ("all", sum(counts.values()))):
        print(f"{count:7,} {part}")


if __name__ == "__main__":
    main()
