#!/usr/bin/env bash
# ./dev docs builds the site, and refuses a public name without a comment, a link
# to a page that is missing, and a link of a built page that leads nowhere. Skips
# if its tools cannot be downloaded.
# Usage: site_test.sh SOURCE_FOLDER
set -euo pipefail
source=$1
work=$(mktemp -d -t ddp-site-XXXXXX)
trap 'rm -rf -- "$work"' EXIT
(cd -- "$source" && cp -r --parents dev CMakeLists.txt ./*.md docs examples */include "$work")
cd -- "$work"
touch examples/CMakeLists.txt

built() { ./dev docs >"$work/log" 2>&1; }
fail() { echo "failed: $1"; cat "$work/log"; exit 1; }
refused() { # WHAT TEXT
  ! built || fail "$1 is built"
  grep -qF -- "$2" "$work/log" || fail "$1 does not say '$2'"
}

built || {
  ! grep -E 'downloading .*failed|doxygen is missing' log || exit 77
  fail 'the site is not built'
}
for page in index install getting-started examples/index api/index; do
  [[ -s build/site/$page.html ]] || fail "there is no $page.html"
done
version=$(sed -n 's/^project(ddp VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
for page in index api/index; do
  grep -qwF -- "$version" "build/site/$page.html" || fail "no version in $page"
done
grep -q '"title":"PowerSGDHook"' build/site/search/search_index.json ||
  fail 'the search does not know a class'

header=ddp/include/ddp/ddp.h
cp -- $header saved
echo 'namespace ddp { void unexplained(); }' >>$header
refused 'a name without a comment' 'unexplained() (function) of namespace ddp is not'
mv -- saved $header

cp -- docs/data.md saved
echo 'See [this](nowhere.md).' >>docs/data.md
refused 'a link to no page' "'nowhere.md'"
cp -- saved docs/data.md
echo 'See [this](checkpoints.md#nowhere).' >>docs/data.md
refused 'a link to no place' 'checkpoints.md#nowhere'
cp -- saved docs/data.md

echo '<a href="gone.html#x">gone</a>' >>build/site/data.html
! python3 -B docs/site/check_links.py build/site >log || fail 'a dead link passes'
grep -q 'data.html: there is no gone.html#x' log || fail 'no dead link is named'

git init -q && git add -A && git config user.name test && git config user.email test
git commit -qm test && ./dev docs --publish 9.9 >"$work/log" 2>&1 || fail 'no version is published'
git show gh-pages:versions.json | grep -q '"version": "9.9"' || fail 'no 9.9 in the menu'
git show gh-pages:index.html | grep -q 'latest/' || fail 'the start page leads elsewhere'
