"""The page at /, in a real browser without a window, driven by a script that is appended to it."""

from __future__ import annotations

import html
import re
import shutil
import subprocess

import httpx
import pytest

from day0.runtime.server import page

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium here; .ci/run installs it")

SEND = """<script>
addEventListener("load", async () => {
  const wait = milliseconds => new Promise(done => setTimeout(done, milliseconds));
  while (!name) await wait(20);
  %s
  at("text").value = "hello";
  at("form").requestSubmit();
});
</script>"""
DROP = """
  const dropped = new DataTransfer();
  dropped.items.add(new File([new Uint8Array([1, 2, 3])], "a.png", { type: "image/png" }));
  document.dispatchEvent(new DragEvent("drop", { dataTransfer: dropped, cancelable: true }));
  while (!images.length) await wait(20);
"""


@pytest.fixture
def browsed(scripted, tmp_path, monkeypatch):
    def browse(script: str, *options: str):
        driven = tmp_path / "page.html"
        driven.write_text(page.PAGE.read_text() + script)
        monkeypatch.setattr(page, "PAGE", driven)
        served = scripted(options={"command": "day0 serve <tiny> --tp 1"})
        command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=6000", *options]
        command += [f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", "--dump-dom", served.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        assert "Refused to" not in done.stderr and "Uncaught" not in done.stderr, done.stderr
        return served, done.stdout

    return browse


def paragraphs(dom: str, kind: str) -> list[str]:
    return [html.unescape(text) for text in re.findall(rf'<p class="{kind}">(.*?)</p>', dom, re.DOTALL)]


def test_the_page_is_one_small_file_that_loads_nothing(scripted):
    answer = httpx.get(f"{scripted(options={'api_key': 'k'}).url}/")
    assert answer.status_code == 200 and answer.headers["Content-Type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert len(answer.content) < 10_000, "read whole by who reviews it, sent in one round trip"
    assert not re.search(r"https?:|//[a-z]+\.|@import|<link rel=\"stylesheet", answer.text)


def test_the_plan_wants_the_key(scripted):
    served = scripted(options={"api_key": "k", "command": "day0 serve x"})
    assert httpx.get(f"{served.url}/plan").status_code == 401
    told = httpx.get(f"{served.url}/plan", headers={"Authorization": "Bearer k"})
    assert told.json() == {"command": "day0 serve x"}


@needs_browser
def test_a_message_is_answered_in_the_browser(browsed):
    served, dom = browsed(SEND % "")
    asked = {"messages": [{"role": "user", "content": "hello"}]}
    own = httpx.post(f"{served.url}/v1/chat/completions", json=asked, timeout=30).json()
    assert paragraphs(dom, "user") == ["hello"]
    said = own["choices"][0]["message"]["content"].replace("\r", "")  # HTML keeps no carriage return
    assert [text.replace("\n", "") for text in paragraphs(dom, "answer")] == [said.replace("\n", "")]
    assert '<h1 id="model">tiny</h1>' in dom and "day0 serve &lt;tiny&gt; --tp 1" in dom
    facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", dom))
    assert facts["State"] == "ready" and facts["Context"] == "256"
    assert {"Running", "Waiting", "Cache in use", "Cache pages free"} <= facts.keys()


@needs_browser
def test_a_dropped_image_is_sent_and_a_refusal_is_shown(browsed):
    _, dom = browsed(SEND % DROP)
    assert 'src="data:image/png;base64,AQID"' in dom
    assert paragraphs(dom, "error") == ["the model 'tiny' takes no images"]
