"""screenshots.py SITE FOLDER takes pictures of five pages as a desktop and a phone
show them, to be looked at, and names pages that are wider than the phone."""

import pathlib
import subprocess
import sys

PAGES = ("index", "getting-started", "launching", "performance", "reference")
DESKTOP, PHONE, HEIGHT = 1280, 390, 2400
# Pages are at least 500 pixels wide, except in a frame.
FRAME = f'<iframe src="{{}}" width={{}} height={HEIGHT} style="border:0"></iframe>'
FIND_WIDE = """<script>onload = () => {
  for (const frame of document.querySelectorAll("iframe")) {
    const width = frame.contentDocument.documentElement.scrollWidth;
    if (width > frame.width) document.body.append(`wide: ${frame.src}: ${width}; `);
  }
  document.body.append("all were read");
}</script>"""


def show(page, body, *arguments):
    page.write_text(f'<body style="margin:0">{body}')
    return subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars",
         "--allow-file-access-from-files", "--virtual-time-budget=20000",
         *arguments, page.as_uri()], check=True, stdout=subprocess.PIPE, text=True).stdout


site, folder = (pathlib.Path(name).resolve() for name in sys.argv[1:])
for page in PAGES:
    for width in (DESKTOP, PHONE):
        frame = FRAME.format((site / f"{page}.html").as_uri(), width)
        show(folder / "frames.html", frame, f"--window-size={width},{HEIGHT}",
             f"--screenshot={folder}/{page}-{width}.png")
# Of Doxygen's pages, those with the longest names stand for all.
frames = "".join(FRAME.format(path.as_uri(), PHONE) for form in (
    "*.html", "api/annotated.html", "api/*ZeroRedundancy*.html") for path in site.glob(form))
said = show(folder / "frames.html", frames + FIND_WIDE, "--dump-dom")
said = said.rsplit("</script>")[-1].split("<")[0].strip().replace("; ", "\n")
sys.exit(0 if said == "all were read" else said)
