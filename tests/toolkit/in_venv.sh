#!/usr/bin/env bash
# Runs a program by a virtual environment in the cache of ./dev, which has what
# REQUIREMENTS names and nothing else. Skips if that cannot be downloaded.
# Usage: in_venv.sh SOURCE_FOLDER NAME REQUIREMENTS PROGRAM ARGUMENT...
set -euo pipefail
work=$(mktemp -d -t ddp-venv-XXXXXX)
trap 'rm -rf -- "$work"' EXIT
# All but its last line, which runs a command.
sed '$d' "$1/dev" >"$work/dev"
part=$(sha256sum "$3")
bash -c 'source "$0"; ensure_venv "$@"; echo "$venv"' "$work/dev" "$2" \
  "${part:0:12}" 500 "the tools of the test $2" --no-deps -r "$3" \
  >"$work/venv" 2>"$work/log" || {
  cat -- "$work/log"
  grep -q 'downloading .*failed' "$work/log" || exit 1
  echo 'skipped: pip cannot download these tools'
  exit 77
}
"$(<"$work/venv")/bin/python" -B "${@:4}"
