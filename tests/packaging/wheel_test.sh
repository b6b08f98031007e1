#!/usr/bin/env bash
# The wheel of ddprun starts Python's DDP from a clean virtual environment, whose
# torch serves the store. Skips without a network or a Python that has torch.
# Usage: wheel_test.sh SOURCE_FOLDER
set -euo pipefail
source=$1 here=$(dirname -- "$(realpath -- "${BASH_SOURCE[0]}")")
skip() { echo "skipped: $*" && exit 77; }
fail() { cat -- "$work/log" && echo "$*" && exit 1; }
python=${DDP_PYTHON:-python3}
torch=$("$python" -c \
  'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))') ||
  skip "$python (DDP_PYTHON) has no torch"
work=$(mktemp -d -t ddp-wheel-XXXXXX)
trap 'rm -rf -- "$work"' EXIT

"$source/dev" wheel "$work/made" >"$work/log" 2>&1 || {
  cat -- "$work/log"
  grep -q 'pip.*failed\|downloading.*failed' "$work/log" &&
    skip 'the tools that make wheels cannot be downloaded'
  exit 1
}
wheel=$(echo "$work"/made/ddprun-*.whl)
[[ $wheel == *-py3-none-manylinux_*.whl ]] ||
  fail "$wheel does not name the glibc that it needs"
(($(stat -c %s -- "$wheel") < 3000000)) || fail "$wheel has more than 3 MB"

"$python" -m venv "$work/venv"
pip=("$work/venv/bin/pip" --disable-pip-version-check -q)
for platform in musllinux_1_2_x86_64 manylinux_2_36_aarch64; do
  ! "${pip[@]}" install --no-index --no-deps --target "$work/other" \
    --platform "$platform" --only-binary :all: "$wheel" 2>"$work/log" ||
    fail "the wheel was taken for $platform"
  grep -q 'is not a supported wheel on this platform' "$work/log" ||
    fail "pip does not say that $platform is not supported"
done
"${pip[@]}" install --no-index "$wheel"
for file in LICENSE THIRD_PARTY_NOTICES; do
  compgen -G "$work/venv/lib/python3*/site-packages/ddprun-*/licenses/$file" \
    >/dev/null || fail "the wheel has no $file"
done
run() { # ARGUMENT...
  PATH=$work/venv/bin:/usr/bin:/bin OMP_NUM_THREADS=1 \
    timeout 120 "$work/venv/bin/ddprun" "$@" >"$work/log" 2>&1
}

# Nothing of it is LibTorch's, nor looked for there.
! readelf -d "$work/venv/bin/ddprun" | grep -E 'torch|c10|stdc|PATH' ||
  fail 'ddprun is linked with more than the C library'
! run --nproc-per-node 1 "$here/waiter.sh" ||
  fail 'a store was served without torch'
grep -q 'cannot serve the store by .*install torch' "$work/log" ||
  fail 'it does not say that torch is missing'

echo "$torch" >"$(echo "$work"/venv/lib/python3*/site-packages)/torch.pth"
run --nproc-per-node 2 "$here/train.py" || fail 'training failed'
[[ $(grep -c 'of 2: the same weights$' "$work/log") == 2 ]] ||
  fail 'the ranks did not train together'
# Each attempt needs a store that outlives its ranks.
run --nproc-per-node 2 --max-restarts 1 "$here/train.py" --fail-once ||
  fail 'the second attempt failed'
code=0
run --nnodes 2 --node-rank 0 --rdzv-endpoint 127.0.0.1:29571 \
  "$here/train.py" || code=$?
((code == 2)) || fail "one of two nodes ended with $code"
grep -q '^ddprun: this ddprun of a wheel starts the ranks of one node' \
  "$work/log" || fail 'it does not say that it is for one node'
