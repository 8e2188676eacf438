#!/usr/bin/env python3
"""Checks the built site: every link and anchor leads somewhere, and no page loads anything from the network.

    docs/check.py [FOLDER]    default: build/docs/site
"""
import html.parser
import pathlib
import re
import sys
import urllib.parse

SITE = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent / "build/docs/site")
# Attributes by which a page loads something. A link that the reader may follow (a, form) is not loaded.
LOADS = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("source", "srcset"), ("link", "href"),
         ("object", "data"), ("video", "src"), ("audio", "src"), ("use", "href"), ("image", "href")}


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loads = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("id", "name"):
                self.ids.add(value)
            if (tag, name) in LOADS:
                self.loads.append(value or "")
            elif (tag, name) == ("a", "href"):
                self.links.append(value or "")


def main():
    pages = {path: Page(path.read_text()) for path in SITE.rglob("*.html")}
    problems = []
    for path, page in pages.items():
        here = path.relative_to(SITE)
        for target in page.loads + page.links:
            parts = urllib.parse.urlsplit(target)
            if parts.scheme or target.startswith("//"):
                if target in page.loads and parts.scheme != "data":
                    problems.append(f"{here} loads {target} from the network")
                continue
            if here.name == "404.html":  # its links are absolute, because any address may show it
                continue
            file = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if not file.is_file():
                problems.append(f"{here} links to {target}, which does not exist")
            elif parts.fragment and file in pages and urllib.parse.unquote(parts.fragment) not in pages[file].ids:
                problems.append(f"{here} links to {target}, which has no such heading")
    for path in SITE.rglob("*.css"):
        for target in re.findall(r"(?:url\(|@import\s+)[\"']?((?:https?:)?//[^\"')]*)", path.read_text()):
            problems.append(f"{path.relative_to(SITE)} loads {target} from the network")
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    print(f"{len(pages)} pages, {sum(len(page.links) for page in pages.values())} links, {len(problems)} problems")
    return 1 if problems or len(pages) < 10 else 0


sys.exit(main())
