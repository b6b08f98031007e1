# What the tests of ./dev share, each of which is run as NAME SOURCE_FOLDER:
# $work, a folder that goes with the test, with a copy of ./dev in root/, and
# with bin/ for programs that note in `log` what they are asked for, and an empty
# LibTorch in torch/.
source=$1
work=$(mktemp -d -t ddp-dev-XXXXXX)
trap 'rm -rf -- "$work"' EXIT
unset CI DDP_DEV_LOCKED Torch_DIR CMAKE_PREFIX_PATH
mkdir -p "$work"/{bin,root,torch/share/cmake/Torch}
touch "$work/log" "$work/torch/share/cmake/Torch"/TorchConfig{,Version}.cmake
# All but its last line, which runs a command.
sed '$d' "$source/dev" >"$work/root/dev"

expect() { # WHAT CONDITION...
  local what=$1
  shift
  "$@" || { echo "failed: $what"; cat "$work/log"; exit 1; }
}
