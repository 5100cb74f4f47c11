"""What a browser makes of the HTML of a report, without a browser."""

import json
from html.parser import HTMLParser
from typing import Any


class Page(HTMLParser):
    """What a browser makes of a page: elements, ids, the addresses it would load, and the text outside of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._script = False
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """One more element."""
        self.elements.append((tag, dict(attrs)))
        self._script = tag in ("script", "style")
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        """Its end."""
        self._script = False

    def handle_data(self, data: str) -> None:
        """Text, or a script."""
        if self._script and self.scripts:
            self.scripts[-1] += data
        elif not self._script:
            self.text += data

    def facts(self) -> Any:
        """What the scripts are given."""
        return json.loads(self.scripts[0])
