"""Connectors copy records from other systems into topics (sources), and from topics into other systems (sinks).

`connector.py` has the two classes that a connector extends. `source_runner.py` and `sink_runner.py` run one task of a
connector, exactly once as far as the other system allows. `connectors.py` runs the connectors of the catalog. Nothing
here knows SQL.
"""
