"""Plans the statements of a text one after the other, as the engine would, without an engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from millstream.planner.catalog import Catalog
from millstream.planner.declarations.sources import plan_create_source
from millstream.planner.physical import PhysicalPlan
from millstream.planner.planning import NewTopic, PlanningContext
from millstream.planner.select.queries import plan_push, plan_query
from millstream.sql import ast
from millstream.sql.parser import parse


@dataclass
class Planner:
    """Holds the catalog that grows with each statement."""

    catalog: Catalog = field(default_factory=Catalog)
    topics: dict[str, int] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)

    def plans(self, text: str) -> Iterator[PhysicalPlan]:
        """The physical plans of the queries in `text`."""
        for statement in parse(text):
            plan = self.plan(statement)
            if plan is not None:
                yield plan

    def plan(self, statement: ast.Statement) -> PhysicalPlan | None:
        context = PlanningContext(self.catalog, self.properties, self.topics, f"QUERY_{len(self.catalog.sources)}")
        match statement:
            case ast.CreateSource():
                planned = plan_create_source(statement, context)
                self._add(planned.topic)
                self.catalog = self.catalog.with_source(planned.source)
                return None
            case ast.CreateAsSelect() | ast.InsertInto():
                query = plan_query(statement, context)
                self._add(query.topic)
                if query.sink is not None:
                    self.catalog = self.catalog.with_source(query.sink)
                return query.plan
            case ast.Query():
                return plan_push(statement, context).plan
            case _:
                raise AssertionError(f"no plan for {type(statement).__name__}")

    def _add(self, topic: NewTopic | None) -> None:
        if topic is not None:
            self.topics[topic.name] = topic.partition_count
