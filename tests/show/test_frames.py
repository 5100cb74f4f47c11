"""What a notebook shows: a figure that stands alone, and text that stays text."""

import base64
import re
import zlib

from plotly.graph_objects import Figure
from plotly.offline import get_plotlyjs

from headway.show import frames


def test_a_figure_brings_plotly_along_and_asks_nothing_of_a_network() -> None:
    shown = frames.html("a <b>", Figure({"data": [], "layout": {"title": {"text": "</script>@PLOTLY"}}}))
    assert shown.startswith("<pre>a &lt;b&gt;</pre>")
    (packed,) = re.findall(r'atob\("([^"]+)"\)', shown)
    assert zlib.decompress(base64.b64decode(packed)).decode() == get_plotlyjs()
    assert shown.count("</script>") == 1
    assert "@PLOTLY" in shown, "a name of the user's stays as it is"
    assert "src=" not in shown


def test_two_figures_of_one_page_have_places_of_their_own() -> None:
    places = [re.findall(r'<div id="([^"]+)"', frames.html("", Figure()))[0] for _ in range(2)]
    assert len(set(places)) == 2
