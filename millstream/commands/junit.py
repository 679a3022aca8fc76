"""Results of `millstream test` as JUnit XML, which CI systems read."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.errors import ServerError

from .sql_tests import SqlTestFailure, SqlTestResult

# XML 1.0 cannot represent these characters, not even escaped.
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class CannotWriteResults(ServerError):
    """The file for the test results cannot be written."""

    code = "CANNOT_WRITE_RESULTS"


@dataclass(frozen=True, slots=True)
class JUnitFile:
    """A file of tests with their results; `error`: why it could not be read."""

    name: str
    results: Sequence[SqlTestResult]
    error: str | None = None


def junit_xml(files: Iterable[JUnitFile]) -> bytes:
    """A `testsuite` for each file, with a `testcase` for each test. Times are in seconds."""
    root = ElementTree.Element("testsuites")
    for file in files:
        failures = sum(result.failure is not None for result in file.results)
        suite = ElementTree.SubElement(
            root, "testsuite", name=_text(file.name), tests=str(len(file.results) + (file.error is not None)),
            failures=str(failures), errors=str(int(file.error is not None)), skipped="0",
            time=f"{sum(result.seconds for result in file.results):.3f}",
        )  # fmt: skip
        for result in file.results:
            case = ElementTree.SubElement(
                suite, "testcase", classname=_text(file.name), name=_text(result.test.name), file=_text(file.name),
                line=str(result.test.line), time=f"{result.seconds:.3f}",
            )  # fmt: skip
            if result.failure is not None:
                _add_failure(case, file.name, result.failure)
        if file.error is not None:
            case = ElementTree.SubElement(suite, "testcase", classname=_text(file.name), name="file", time="0")
            ElementTree.SubElement(case, "error", message=_text(file.error))
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)


def _add_failure(case: ElementTree.Element, file: str, failure: SqlTestFailure) -> None:
    first_line = failure.message.partition("\n")[0]
    found = ElementTree.SubElement(case, "failure", message=_text(first_line))
    found.text = _text(f"{file}:{failure.line}\n{failure.statement}\n{failure.message}")


def _text(text: str) -> str:
    r"""
    >>> _text("a\x00b") == "a\ufffdb"
    True
    """
    return _NOT_XML.sub("\ufffd", text)
