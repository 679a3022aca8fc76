"""The graph of queries and topics, and of one plan: as nodes, text, DOT and SVG."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ET
from itertools import combinations, pairwise

import pytest

from millstream.planner.insight.graph import Edge, Graph, GraphNode
from millstream.planner.insight.graph_layout import lay_out
from millstream.planner.insight.graph_svg import graph_svg
from millstream.planner.insight.graph_text import graph_dot, graph_text
from millstream.testing import Sandbox

STATEMENTS = """
CREATE STREAM clicks (user STRING KEY, url STRING) WITH (kafka_topic='clicks', value_format='JSON', partitions=1);
CREATE STREAM shop AS SELECT * FROM clicks WHERE url LIKE '/shop%';
CREATE TABLE n AS SELECT user, COUNT(*) AS n FROM shop GROUP BY user;
"""


def drawn(*edges: str) -> Graph:
    """`a>b` is an edge."""
    pairs = [edge.split(">") for edge in edges]
    names = dict.fromkeys(name for pair in pairs for name in pair)
    return Graph(
        tuple(GraphNode(name, "STREAM", name) for name in names),
        tuple(Edge(source, target) for source, target in pairs),
    )


def test_a_pipeline_as_text_is_a_tree_from_its_sources() -> None:
    with Sandbox() as sandbox:
        sandbox.execute(STATEMENTS)
        (shown,) = sandbox.execute("SHOW GRAPH;")
    assert shown["text"].splitlines() == [
        "STREAM CLICKS (topic clicks, 1 partition, JSON)",
        "└─▶ QUERY CSAS_SHOP_1 (filter, RUNNING)",
        "    └─▶ STREAM SHOP (topic SHOP, 1 partition, JSON)",
        "        └─▶ QUERY CTAS_N_2 (aggregate, RUNNING)",
        "            └─▶ TABLE N (topic N, 1 partition, JSON)",
    ]


def test_of_a_query_the_graph_is_its_plan_with_figures_and_of_a_stream_what_lies_around_it() -> None:
    with Sandbox() as sandbox:
        sandbox.execute(STATEMENTS + "CREATE STREAM other (a INT) WITH (kafka_topic='o', format='JSON', partitions=1);")
        sandbox.produce("clicks", "ada", {"URL": "/shop/1"})
        sandbox.drain()
        (plan,) = sandbox.execute("SHOW GRAPH OF csas_shop_1;")
        (around,) = sandbox.execute("SHOW GRAPH OF shop;")
        with pytest.raises(Exception, match='no stream, table, topic or query "shup"') as refused:
            sandbox.execute("SHOW GRAPH OF shup;")
    assert "FILTER URL LIKE '/shop%'" in plan["text"]
    assert "in 1 rows" in plan["text"]
    assert {node["title"] for node in around["nodes"]} == {"CLICKS", "CSAS_SHOP_1", "SHOP", "CTAS_N_2", "N"}
    assert refused.value.hint  # pyrefly: ignore[missing-attribute]


def test_a_node_that_two_lead_to_is_drawn_once_and_named_again() -> None:
    text = graph_text(drawn("a>q", "b>q", "q>c"))
    assert text.splitlines() == ["STREAM a", "└─▶ STREAM q", "    └─▶ STREAM c", "", "STREAM b", "└─▶ STREAM q …"]


@pytest.mark.parametrize("graph", [drawn("a>b", "b>a"), drawn("a>a"), drawn("x>a", "a>b", "b>c", "c>a"), Graph((), ())])
def test_circles_and_nothing_at_all_can_be_drawn(graph: Graph) -> None:
    text = graph_text(graph)
    for node in graph.nodes:
        assert node.title in text
    ET.fromstring(graph_svg(graph))
    assert graph_dot(graph).startswith("digraph")


HOSTILE = [
    'a"b',
    "back\\slash",
    "<script>alert(1)</script>",
    "new\nline",
    "nul\0",
    "]]>&amp;",
    "‮rtl",
    "x" * 300,
    "%s{}",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_breaks_neither_dot_nor_svg_nor_the_terminal(name: str) -> None:
    from millstream.planner.insight.graph import visible

    graph = Graph((GraphNode(name, "STREAM", visible(name)), GraphNode("q", "QUERY", "q")), (Edge(name, "q"),))
    root = ET.fromstring(graph_svg(graph))
    assert {element.tag.rpartition("}")[2] for element in root.iter()} == {
        "svg",
        "title",
        "style",
        "g",
        "rect",
        "text",
        "path",
    }
    lines = graph_dot(graph).splitlines()
    assert len(lines) == 7  # a name begins no line of its own
    label = lines[3].partition('label="')[2].rpartition('"')[0]
    assert '"' not in label.replace("\\\\", "").replace('\\"', "")
    assert all(char.isprintable() for line in graph_text(graph).splitlines() for char in line)


def test_a_long_pipeline_is_drawn_without_recursion() -> None:
    graph = drawn(*(f"n{i}>n{i + 1}" for i in range(3_000)))
    assert len(graph_text(graph).splitlines()) == 3_001
    ET.fromstring(graph_svg(graph))


@pytest.mark.parametrize("seed", range(20))
def test_boxes_never_overlap_and_edges_lead_from_left_to_right(seed: int) -> None:
    dice = random.Random(seed)
    count = dice.randint(2, 25)
    edges = {(a, b) for a, b in combinations(range(count), 2) if dice.random() < 0.15}
    graph = drawn(*(f"{a}>{b}" for a, b in sorted(edges)), "0>1")
    sizes = {node.id: (float(dice.randint(20, 200)), float(dice.randint(20, 60))) for node in graph.nodes}
    layout = lay_out(graph, sizes)
    for one, other in combinations(layout.boxes.values(), 2):
        apart_x = one.x + one.width <= other.x or other.x + other.width <= one.x
        apart_y = one.y + one.height <= other.y + 1e-6 or other.y + other.height <= one.y + 1e-6
        assert apart_x or apart_y
    for edge, bends in zip(graph.edges, layout.bends, strict=True):
        way = [layout.boxes[edge.source].x, *(x for x, _ in bends), layout.boxes[edge.target].x]
        assert all(left < right for left, right in pairwise(way))
    assert all(box.x >= 0 and box.y >= -1e-6 for box in layout.boxes.values())
