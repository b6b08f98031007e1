#!/usr/bin/env bash
# ./dev builds one at a time, and configures again only where something it
# depends on has changed.
# Usage: dev_build_test.sh SOURCE_FOLDER
set -euo pipefail
source=$1
work=$(mktemp -d -t ddp-dev-XXXXXX)
trap 'rm -rf -- "$work"' EXIT
unset DDP_DEV_LOCKED Torch_DIR

# A CMake that notes what it is asked for, and whether it is alone.
mkdir -p "$work/bin" "$work/cuda" "$work/root" \
  "$work/torch/share/cmake/Torch"
touch "$work/torch/share/cmake/Torch/TorchConfig.cmake" \
  "$work/torch/share/cmake/Torch/TorchConfigVersion.cmake"
cat >"$work/bin/cmake" <<EOF
#!/bin/sh
case "\$1" in
  --build) what=build ;;
  *) what=configure; mkdir -p build/release ;;
esac
mkdir "$work/busy" 2>/dev/null || what="\$what beside another"
echo "\$what" >>"$work/log"
# Until the other one of two waits.
i=0
while [ -e "$work/two" ] && [ \$i -lt 300 ] &&
  ! grep -q 'waiting for another ./dev' "$work/first" "$work/second"; do
  sleep 0.1
  i=\$((i + 1))
done
rmdir "$work/busy" 2>/dev/null || true
EOF
printf '#!/bin/sh\n' >"$work/cuda/nvcc"
chmod +x "$work/bin/cmake" "$work/cuda/nvcc"
# All but its last line, which runs a command.
sed '$d' "$source/dev" >"$work/root/dev"

build() { # PATH
  (cd "$work/root" && PATH=$1 CMAKE_PREFIX_PATH=$work/torch bash -c \
    'source ./dev; build_targets own')
}

fail() {
  echo "failed: $1"
  cat "$work/log"
  exit 1
}

toolkit=$work/cuda
[[ ! -e /usr/local/cuda/bin/nvcc ]] || toolkit=/usr/local/cuda/bin
# Debian's toolkit is in /usr/bin.
mkdir "$work/tools"
ln -s /usr/bin/* "$work/tools"
rm -f -- "$work/tools/nvcc"
with=$work/bin:$toolkit:$work/tools without=$work/bin:$work/tools
build "$with"
build "$with"
[[ $(<"$work/log") == configure$'\n'build$'\n'build ]] ||
  fail 'what is configured is not configured again'
build "$without"
[[ $(grep -c configure "$work/log") == 1 ]] ||
  fail 'a PATH without the CUDA toolkit changes nothing'

: >"$work/log"
touch "$work/two" "$work/first" "$work/second"
build "$with" 2>"$work/first" &
build "$with" 2>"$work/second" &
wait %1
wait %2
[[ $(<"$work/log") == build$'\n'build ]] || fail 'two builds take turns'
grep -q 'waiting for another ./dev' "$work/first" "$work/second" ||
  fail 'the one that waits says so'
rm -- "$work/two"

: >"$work/log"
(cd "$work/root" && PATH=$with CMAKE_PREFIX_PATH=$work/torch bash -c \
  'source ./dev; build_targets own; bash -c "source ./dev; build_targets own"')
[[ $(<"$work/log") == build$'\n'build ]] ||
  fail 'one that another one runs does not wait for it'
