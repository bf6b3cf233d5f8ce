"""The report in a real browser: no console errors, no network, no sideways scrolling on a phone."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from test_report import result

from adaptive_sampling.ab.report import render

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None,
    reason="no Chromium here: the report was not looked at in a browser (Debian: apt install chromium)",
)
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


def browse(page: Path, profile: Path, *flags: str) -> tuple[str, list[str]]:
    """The page's text after loading, and what went to the console."""
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", "--enable-logging=stderr", "--v=0", *flags]
    done = subprocess.run([*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def test_report_opens_without_a_word_on_the_console(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(render(result()), encoding="utf-8")
    dom, console = browse(page, tmp_path / "profile")
    assert "fewer tokens" in dom
    assert console == []
    # The same page with a fault does say so: the console is being read.
    broken = tmp_path / "broken.html"
    broken.write_text(page.read_text().replace("</body>", "<script>console.error('seen')</script></body>"))
    assert any("seen" in line for line in browse(broken, tmp_path / "profile")[1])


def test_report_fits_a_phone(tmp_path: Path) -> None:
    widths = tmp_path / "phone.html"
    inner = html.escape(render(result()), quote=True)
    # A frame as wide as a phone, which a headless window cannot be.
    widths.write_text(
        f'<iframe id="f" style="width:375px;height:600px;border:0" srcdoc="{inner}">'
        "</iframe><script>onload=()=>{const d=document.getElementById('f').contentDocument.documentElement;"
        "document.title=d.scrollWidth+' of '+d.clientWidth}</script>",
        encoding="utf-8",
    )
    dom, _ = browse(widths, tmp_path / "profile")
    found = re.search(r"<title>(\d+) of (\d+)</title>", dom)
    assert found is not None
    assert int(found[1]) == int(found[2]) > 300


def test_report_makes_a_picture(tmp_path: Path) -> None:
    page, picture = tmp_path / "report.html", tmp_path / "report.png"
    page.write_text(render(result()), encoding="utf-8")
    browse(page, tmp_path / "profile", "--window-size=1000,1600", f"--screenshot={picture}")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 20_000
