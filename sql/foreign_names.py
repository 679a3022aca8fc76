"""Signs, types and functions of other systems, and their equivalents here. Keywords are in `foreign_words.py`."""

from __future__ import annotations

FOREIGN_SIGNS: dict[str, str] = {
    "#": "A comment begins with -- and ends with its line, or stands between /* and */.",
    "!": "NOT is written as a word, and inequality as <> or !=.",
    "&": "AND is written as a word.",
    "|": "OR is written as a word; || joins texts.",
    "$": "Values of a program are written into the statement: there are no parameters such as $1.",
    "?": "Values of a program are written into the statement: there are no parameters here.",
    "@": "A variable is made with DEFINE name = 'value'; and used as ${name}.",
    "{": "A map is written MAP('key' := value), a struct STRUCT(field := value), an array ARRAY[…].",
    "^": "Powers are written POWER(base, exponent).",
    "~": "A regular expression is matched by REGEXP_EXTRACT('pattern', column) IS NOT NULL.",
    "\\": "A quote inside a string is written twice: 'it''s'.",
    ":": "A type is changed with CAST(column AS STRING); a field of a struct is read with ->, as in person->name; "
    "there are no parameters such as :name.",
}
"""Signs that no statement has, and hints for what users mean by them."""

TYPES_ELSEWHERE: dict[str, str] = {
    "BOOL": "BOOLEAN", "FLOAT": "DOUBLE", "FLOAT4": "DOUBLE", "FLOAT8": "DOUBLE", "REAL": "DOUBLE", "TEXT": "STRING",
    "CHAR": "STRING", "CHARACTER": "STRING", "NVARCHAR": "STRING", "CLOB": "STRING", "UUID": "STRING",
    "JSON": "STRING", "JSONB": "STRING", "ENUM": "STRING", "LONG": "BIGINT", "INT8": "BIGINT", "INT64": "BIGINT",
    "BIGSERIAL": "BIGINT", "SERIAL": "INTEGER", "SMALLINT": "INTEGER", "TINYINT": "INTEGER", "INT4": "INTEGER",
    "INT32": "INTEGER", "NUMBER": "DECIMAL(38, 10)", "NUMERIC": "DECIMAL(38, 10)", "MONEY": "DECIMAL(18, 2)",
    "DATETIME": "TIMESTAMP", "TIMESTAMPTZ": "TIMESTAMP", "TIMESTAMP_LTZ": "TIMESTAMP", "BLOB": "BYTES",
    "BINARY": "BYTES", "VARBINARY": "BYTES", "BYTEA": "BYTES", "OBJECT": "STRUCT<…>", "RECORD": "STRUCT<…>",
    "ROW": "STRUCT<…>",
}  # fmt: skip
"""Types of other systems, and their equivalents here."""

FUNCTIONS_ELSEWHERE: dict[str, str] = {
    "IF": "CASE WHEN condition THEN a ELSE b END", "IIF": "CASE WHEN condition THEN a ELSE b END",
    "DECODE": "CASE value WHEN a THEN b END", "NVL": "COALESCE(a, b)", "ISNULL": "COALESCE(a, b), or a IS NULL",
    "LENGTH": "LEN(text)", "CHAR_LENGTH": "LEN(text)", "STRPOS": "INSTR(text, part)", "LOCATE": "INSTR(text, part)",
    "CHARINDEX": "INSTR(text, part)", "SUBSTR": "SUBSTRING(text, start, length)", "TO_CHAR":
    "FORMAT_TIMESTAMP(time, 'yyyy-MM-dd')", "DATE_FORMAT": "FORMAT_TIMESTAMP(time, 'yyyy-MM-dd')",
    "TO_TIMESTAMP": "PARSE_TIMESTAMP(text, 'yyyy-MM-dd HH:mm:ss')", "TO_DATE": "PARSE_DATE(text, 'yyyy-MM-dd')",
    "STR_TO_DATE": "PARSE_DATE(text, 'yyyy-MM-dd')", "CURRENT_TIMESTAMP": "NOW()", "GETDATE": "NOW()",
    "CURRENT_DATE": "CAST(NOW() AS DATE)", "CURRENT_TIME": "CAST(NOW() AS TIME)", "LOCALTIMESTAMP": "NOW()",
    "SYSDATE": "NOW()", "DATEADD": "TIMESTAMPADD(unit, n, t)",
    "DATE_ADD": "TIMESTAMPADD(unit, n, t)", "STRING_AGG": "COLLECT_LIST(value), joined by ARRAY_JOIN(list, ',')",
    "GROUP_CONCAT": "COLLECT_LIST(value), joined by ARRAY_JOIN(list, ',')", "ARRAY_AGG": "COLLECT_LIST(value)",
    "LISTAGG": "COLLECT_LIST(value), joined by ARRAY_JOIN(list, ',')", "STDDEV": "STDDEV_SAMPLE(value)",
    "VARIANCE": "STDDEV_SAMP(value), which is the variance in spite of its name",
    "MEDIAN": "an aggregate in Python (docs/python-functions.md)", "ANY_VALUE": "LATEST_BY_OFFSET(value)",
    "BOOL_AND": "MIN(CASE WHEN condition THEN 1 ELSE 0 END) = 1", "EVERY":
    "MIN(CASE WHEN condition THEN 1 ELSE 0 END) = 1", "BOOL_OR": "MAX(CASE WHEN condition THEN 1 ELSE 0 END) = 1",
    "ROLLUP": "a query for each grouping: GROUP BY makes one", "CUBE": "a query for each grouping: GROUP BY makes one",
    "ANY": "value IN (SELECT …), or ARRAY_CONTAINS(array, value)", "SOME":
    "value IN (SELECT …), or ARRAY_CONTAINS(array, value)",
    "UNNEST": "EXPLODE(array)", "FLATTEN": "EXPLODE(array)",
    "APPROX_COUNT_DISTINCT": "COUNT_DISTINCT(value)", "FIRST_VALUE": "EARLIEST_BY_OFFSET(value)",
    "LAST_VALUE": "LATEST_BY_OFFSET(value)", "FIRST": "EARLIEST_BY_OFFSET(value)", "LAST": "LATEST_BY_OFFSET(value)",
    "TUMBLE": "WINDOW TUMBLING (SIZE 1 MINUTE), after FROM", "HOP": "WINDOW HOPPING (SIZE …, ADVANCE BY …), after FROM",
    "TO_STRING": "CAST(value AS STRING)", "TO_NUMBER": "CAST(value AS DOUBLE)", "TOSTRING": "CAST(value AS STRING)",
    "JSON_EXTRACT": "EXTRACTJSONFIELD(text, '$.path')", "JSON_VALUE": "EXTRACTJSONFIELD(text, '$.path')",
    "GET_JSON_OBJECT": "EXTRACTJSONFIELD(text, '$.path')", "RAND": "RANDOM()", "POW": "POWER(base, exponent)",
}  # fmt: skip
"""Functions of other systems, and their equivalents here."""


def type_hint(name: str) -> str | None:
    """The hint for a type that only other systems have."""
    found = TYPES_ELSEWHERE.get(name.upper())
    return None if found is None else f"Write {found}."


def function_hint(name: str) -> str | None:
    """The hint for a function that only other systems have."""
    found = FUNCTIONS_ELSEWHERE.get(name.upper())
    return None if found is None else f"Write {found}."
