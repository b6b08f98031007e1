#!/usr/bin/env bash
# ./dev setup says what it will install, and asks once on a terminal.
# Usage: dev_setup_test.sh SOURCE_FOLDER
set -euo pipefail
source=$1
work=$(mktemp -d -t ddp-dev-XXXXXX)
trap 'rm -rf -- "$work"' EXIT
unset CI Torch_DIR CMAKE_PREFIX_PATH

# All but its last line, which runs a command; then what setup would do.
sed '$d' "$source/dev" >"$work/dev"
cat >"$work/setup" <<'EOF'
cd "${0%/*}" && source ./dev
missing_of() { echo some-package; }
find_users_torch() { torch=/somewhere; }
setup_packages() { touch installed; }
setup_torch() { echo "torch for $1"; }
run_setup "$@"
EOF

# ANSWER, none without a terminal; ARGUMENTS...
setup() {
  local answer=$1
  shift
  rm -f -- "$work/installed"
  if [[ -z $answer ]]; then
    bash "$work/setup" "$@" </dev/null >"$work/said" 2>&1 || true
  else
    printf '%s\n' "$answer" |
      script -qec "bash '$work/setup' $*" /dev/null >"$work/said" || true
  fi
}

expect() { # WHAT CONDITION...
  local what=$1
  shift
  "$@" || { echo "failed: $what"; cat "$work/said"; exit 1; }
}

setup no
expect 'it says what it will install' grep -q some-package "$work/said"
expect 'it asks on a terminal' grep -q 'install it?' "$work/said"
expect 'a no installs nothing' test ! -e "$work/installed"
setup yes
expect 'a yes installs' test -e "$work/installed"
setup no --yes
expect '--yes asks nothing' test -e "$work/installed"
setup '' --yes --full
expect '--full takes all of torch' grep -q 'torch for python' "$work/said"
CI=true setup no
expect 'CI=true asks nothing' test -e "$work/installed"
setup ''
expect 'it asks nothing without a terminal' test -e "$work/installed"
expect 'it says it all the same' grep -q some-package "$work/said"
