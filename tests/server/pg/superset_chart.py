"""A chart of Apache Superset over a stream of ours, by its own code: `python superset_chart.py URI`, with the Python
of an environment that has Superset. Prints what it finds as JSON."""

from __future__ import annotations

import json
import sys


def main(uri: str) -> None:
    from superset.app import create_app

    with create_app().app_context():
        from superset import db
        from superset.connectors.sqla.models import SqlaTable
        from superset.models.core import Database

        database = Database(database_name="millstream", sqlalchemy_uri=uri)
        db.session.add(database)
        db.session.commit()
        tables = database.get_all_table_names_in_schema(catalog=None, schema="public")
        table = SqlaTable(table_name="clicks", schema="public", database=database, database_id=database.id)
        db.session.add(table)
        db.session.commit()
        table.fetch_metadata()
        total = {"expressionType": "SQL", "sqlExpression": "SUM(size)", "label": "total"}
        chart = table.query(
            {
                "columns": ["user_id"], "metrics": [total], "filter": [{"col": "size", "op": ">", "val": 1}],
                "orderby": [], "granularity": None, "from_dttm": None, "to_dttm": None, "is_timeseries": False,
                "row_limit": 100, "extras": {},
            }
        )  # fmt: skip
        found = {
            "schemas": sorted(database.get_all_schema_names(catalog=None)),
            "tables": sorted(each[0] for each in tables),
            "columns": {each.column_name: each.type for each in table.columns},
            "error": chart.error_message,
            "rows": chart.df.to_dict("records"),
        }
        print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
