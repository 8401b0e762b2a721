#!/usr/bin/env bash
# The training step on one GPU, under six minutes: times, shares of the GPU's peak, memory, profile, and
# what the paper's epoch and its whole grid would take. More flags go to step.py.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
"$python" -c 'import sys, torch; sys.exit(0 if torch.cuda.is_available() else "no GPU is visible to torch")'
exec timeout --signal=INT 355 "$python" benchmarks/step.py --device cuda \
  --shapes bert-base roberta-base bundled --rounds 12 --seconds 45 "$@"
