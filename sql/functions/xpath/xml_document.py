"""An XML document as a tree of nodes, as XPath sees it.

Documents are untrusted. They are parsed by expat, which loads nothing; a document with its own declarations (entities,
attributes with defaults) is refused, so a document is never larger than its text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal
from xml.parsers import expat

from ..bounds import current_bounds, out_of_time

NodeKind = Literal["root", "element", "attribute", "text", "comment", "instruction"]

_DEPTH_MAX = 1_000
_NODES_PER_SECOND = 100_000  # that can be read and searched, about


class XmlNode:
    """`name`: with its prefix, empty for texts, comments and the root. `value`: the text, of what has no children.
    `place`: its place in the document, from 0."""

    __slots__ = ("attributes", "children", "kind", "name", "parent", "place", "value")

    def __init__(self, kind: NodeKind, name: str, value: str, parent: XmlNode | None, place: int) -> None:
        self.kind: NodeKind = kind
        self.name, self.value, self.parent, self.place = name, value, parent, place
        self.children: list[XmlNode] = []
        self.attributes: list[XmlNode] = []

    @property
    def local_name(self) -> str:
        return self.name.rpartition(":")[2]

    def descendants(self) -> Iterator[XmlNode]:
        """In the order of the document, without the node itself and without attributes."""
        waiting = self.children[::-1]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))


def read_document(text: str) -> XmlNode:
    """The root, whose children are the element and what stands beside it.

    Raises `ExpatError` and `ValueError` for what is no document or may not be one, `BoundExceeded` for one that is too
    large to be searched in time.
    """
    return _Reader().read(text)


class _Reader:
    def __init__(self) -> None:
        self._count = 0
        self._most = int(current_bounds().seconds * _NODES_PER_SECOND)
        self._root = XmlNode("root", "", "", None, 0)
        self._open = [self._root]

    def read(self, text: str) -> XmlNode:
        parser = expat.ParserCreate("utf-8")
        parser.buffer_text = True
        parser.ordered_attributes = True
        parser.StartDoctypeDeclHandler = self._doctype
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.CommentHandler = lambda value: self._add("comment", "", value)
        parser.ProcessingInstructionHandler = lambda name, value: self._add("instruction", name, value)
        parser.Parse(text.encode(), True)
        return self._root

    def _doctype(self, _name: str, _system: str | None, _public: str | None, declares: int) -> None:
        if declares:
            raise ValueError("the document declares entities or attributes of its own")

    def _start(self, name: str, attributes: list[str]) -> None:
        if len(self._open) > _DEPTH_MAX:
            raise ValueError(f"elements are nested deeper than {_DEPTH_MAX}")
        element = self._add("element", name, "")
        for key, value in zip(attributes[::2], attributes[1::2], strict=True):
            if key.partition(":")[0] != "xmlns":
                element.attributes.append(self._made("attribute", key, value))
                element.attributes[-1].parent = element
        self._open.append(element)

    def _end(self, _name: str) -> None:
        self._open.pop()

    def _text(self, value: str) -> None:
        before = self._open[-1].children
        if before and before[-1].kind == "text":  # what expat gives in pieces is one text
            before[-1].value += value
        else:
            self._add("text", "", value)

    def _add(self, kind: NodeKind, name: str, value: str) -> XmlNode:
        node = self._made(kind, name, value)
        node.parent = self._open[-1]
        self._open[-1].children.append(node)
        return node

    def _made(self, kind: NodeKind, name: str, value: str) -> XmlNode:
        self._count += 1
        if self._count > self._most:
            raise out_of_time()
        return XmlNode(kind, name, value, None, self._count)
