"""Checks that each link of a built site leads to a file, and to a place in it.

Usage: check_links.py SITE. Links to other hosts are not followed.
"""

import html.parser
import pathlib
import sys
import urllib.parse

EMPTY = "#nested-classes"  # Doxygen's, of a class that has private ones only


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.places, self.links = {"", "top"}, set()
        self.feed(path.read_text(errors="replace"))

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id" or (name == "name" and tag == "a"):
                self.places.add(value)
            elif name in ("href", "src") and value and value != EMPTY:
                self.links.add(value)


def broken_links(site, pages):
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = path
            if parts.path:
                folder = site if parts.path.startswith("/") else path.parent
                target = (folder / urllib.parse.unquote(parts.path).lstrip("/")).resolve()
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                yield f"{path.relative_to(site)}: there is no {link}"
            elif target in pages and urllib.parse.unquote(
                    parts.fragment) not in pages[target].places:
                yield f"{path.relative_to(site)}: there is no place {link}"


def main():
    site = pathlib.Path(sys.argv[1]).resolve()
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    broken = list(broken_links(site, pages))
    print(*broken, sep="\n", end="\n" if broken else "")
    count = sum(len(page.links) for page in pages.values())
    print(f"{len(pages)} pages, {count} links, {len(broken)} that lead nowhere")
    sys.exit(bool(broken) or len(pages) < 100)


main()
