#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# NVIDIA's SM100 tutorials built by `porter nvcc`, run on a Hopper GPU in both modes, with their own checks.
#   scripts/gpu_tutorials.sh FOLDER     where FOLDER holds t01x, t02x, ...
for program in "$1"/t0?x; do
  for mode in eager deferred; do
    echo "== $(basename "$program") $mode"
    PORTER_TIMES=1 PORTER_MODE=$mode timeout 60 "$program" 2>&1 | grep -E "porter:|Relative error|Execution" || echo FAILED
  done
done
# The host's own check of this size takes minutes; the kernel's time is printed before it.
# It takes all columns of an SM: where CTAs share them, one waits for the other.
for columns in cta sm; do
  echo "== t01x deferred 4096 8192 4096, PORTER_COLUMNS=$columns"
  PORTER_TIMES=1 PORTER_MODE=deferred PORTER_COLUMNS=$columns timeout "${2:-45}" "$1/t01x" 4096 8192 4096 2>&1 | grep -E "porter:"
done
