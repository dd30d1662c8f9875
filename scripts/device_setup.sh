#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Source this on a machine that has CUDA and PyTorch's Python: the packages that Porter needs, from wheels in .whl.
python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target /tmp/site .whl/*.whl || exit 1
export PYTHONPATH=/tmp/site:$PWD PYTHONUNBUFFERED=1
