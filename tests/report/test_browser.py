"""A report in a real browser's engine, where one is installed: `pip install '.[browser]'`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from boltgen.report.facts import facts_of
from boltgen.report.page import page
from boltgen.running.artifact import Artifact

pytest.importorskip("PyQt6.QtWebEngineWidgets", exc_type=ImportError)

_LOOK = """
import json, sys
from PyQt6.QtCore import QTimer, QUrl
from PyQt6.QtWebEngineCore import QWebEnginePage
from PyQt6.QtWidgets import QApplication

said = []

class Page(QWebEnginePage):
    def javaScriptConsoleMessage(self, level, message, line, source):
        said.append(message)

app = QApplication(sys.argv[:1])
page = Page()
question = '''JSON.stringify({
  boxes: document.querySelectorAll("#model .box").length,
  closed: !document.querySelector("details").open,
  background: getComputedStyle(document.body).backgroundColor,
  before: document.getElementById("model").style.width,
  after: (document.querySelector("[data-zoom]").click(),
          document.getElementById("model").style.width),
})'''
opened = '''location.hash = document.querySelector("#model a").getAttribute("href");'''

def answered(text):
    page.runJavaScript(opened)
    QTimer.singleShot(500, lambda: page.runJavaScript(
        "document.querySelector('details').open",
        lambda is_open: (print(json.dumps([json.loads(text), is_open, said])), app.quit())))

page.loadFinished.connect(lambda ok: page.runJavaScript(question, answered))
page.load(QUrl.fromLocalFile(sys.argv[1]))
QTimer.singleShot(60000, lambda: app.exit(1))
sys.exit(app.exec())
"""


@pytest.mark.parametrize(("scheme", "color"), [(1, "rgb(255, 255, 255)"), (0, "rgb(20, 24, 29)")])
def test_it_works_in_a_browser(scheme: int, color: str, artifact: Artifact, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page(facts_of(artifact.folder, artifact.metadata)), encoding="utf-8")
    flags = f"--no-sandbox --disable-gpu --blink-settings=preferredColorScheme={scheme}"
    done = subprocess.run(
        [sys.executable, "-c", _LOOK, path],
        env={**os.environ, "QT_QPA_PLATFORM": "offscreen", "QTWEBENGINE_CHROMIUM_FLAGS": flags},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    seen, is_open, said = json.loads(done.stdout.splitlines()[-1])
    assert seen["boxes"] == len(artifact.metadata.regions)
    assert seen["closed"]
    assert seen["background"] == color
    assert (seen["before"], seen["after"]) == ("", "125%")
    assert is_open, "a link opens the part that it leads to"
    assert said == []
