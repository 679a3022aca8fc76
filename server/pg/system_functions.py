"""PostgreSQL's functions that catalog queries call, as macros of DuckDB named `pgf_…`, and the kinds of other
expressions that such queries may contain."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from ...sql.identifiers import RESERVED

_SIMPLE: Final = {
    "pg_table_is_visible": ["o"], "pg_type_is_visible": ["o"], "pg_function_is_visible": ["o"],
    "pg_opclass_is_visible": ["o"],
    "pg_opfamily_is_visible": ["o"], "pg_operator_is_visible": ["o"], "pg_collation_is_visible": ["o"],
    "pg_statistics_obj_is_visible": ["o"], "pg_conversion_is_visible": ["o"], "pg_ts_config_is_visible": ["o"],
    "pg_ts_dict_is_visible": ["o"], "pg_ts_parser_is_visible": ["o"], "pg_ts_template_is_visible": ["o"],
    "has_schema_privilege": ["a, b", "a, b, c"], "has_database_privilege": ["a, b", "a, b, c"],
    "has_function_privilege": ["a, b", "a, b, c"], "has_sequence_privilege": ["a, b", "a, b, c"],
    "pg_has_role": ["a, b", "a, b, c"],
}  # fmt: skip
"""Always true: the catalogs contain nothing that the user may not read."""

_PRIVILEGES: Final = {
    "has_table_privilege": ["a, p", "u, a, p"], "has_column_privilege": ["a, c, p", "u, a, c, p"],
    "has_any_column_privilege": ["a, p", "u, a, p"],
}  # fmt: skip
"""For an existing table: all privileges that have a statement here, but not UPDATE, TRUNCATE, REFERENCES, TRIGGER."""

_NULLS: Final = {
    "pg_get_expr": ["a, b", "a, b, c"], "pg_get_viewdef": ["a", "a, b"], "pg_get_triggerdef": ["a", "a, b"],
    "pg_get_ruledef": ["a", "a, b"], "pg_get_functiondef": ["a"], "pg_get_function_arguments": ["a"],
    "pg_get_function_identity_arguments": ["a"], "pg_get_function_result": ["a"], "pg_get_partkeydef": ["a"],
    "pg_get_statisticsobjdef_columns": ["a"], "pg_get_statisticsobjdef": ["a"], "shobj_description": ["a, b"],
    "pg_tablespace_location": ["a"], "pg_get_serial_sequence": ["a, b"], "inet_server_addr": [""],
    "inet_client_addr": [""], "pg_relation_filenode": ["a"], "pg_stat_get_numscans": ["a"], "txid_current": [""],
    "pg_tablespace_size": ["a"], "pg_get_function_sqlbody": ["a"], "pg_advisory_unlock_all": [""],
}  # fmt: skip

_SIZES: Final = ("pg_relation_size", "pg_total_relation_size", "pg_table_size", "pg_indexes_size", "pg_database_size")

_OTHERS: Final = {
    "pg_get_userbyid": ["(o) AS (SELECT rolname FROM pgc.pg_roles WHERE oid = o)"],
    "format_type": [
        ("(t, m) AS (CASE WHEN t IS NULL THEN NULL ELSE coalesce((SELECT CASE "
        "WHEN e.oid IS NOT NULL THEN pgf_words(e.typname, m) || '[]' ELSE pgf_words(x.typname, m) END "
        "FROM pgc.pg_type x LEFT JOIN pgc.pg_type e ON x.typelem = e.oid AND x.typcategory = 'A' "
        "WHERE x.oid = t), '???') END)")
    ],
    "obj_description": [
        "(o, c) AS (SELECT min(description) FROM pgc.pg_description WHERE objoid = o AND objsubid = 0)",
        "(o) AS (SELECT min(description) FROM pgc.pg_description WHERE objoid = o AND objsubid = 0)",
    ],
    "col_description": [
        "(o, n) AS (SELECT min(description) FROM pgc.pg_description WHERE objoid = o AND objsubid = n AND n > 0)"
    ],
    "pg_get_indexdef": [
        ("(o) AS (SELECT min(x.indexdef) FROM pgc.pg_indexes x JOIN pgc.pg_class c ON c.relname = x.indexname "
        "WHERE c.oid = o)"),
        ("(o, n, p) AS (CASE WHEN n = 0 THEN (SELECT min(x.indexdef) FROM pgc.pg_indexes x JOIN pgc.pg_class c "
        "ON c.relname = x.indexname WHERE c.oid = o) ELSE "
        "(SELECT min(attname) FROM pgc.pg_attribute WHERE attrelid = o AND attnum = n) END)"),
    ],
    "pg_get_constraintdef": [
        ("(o) AS (SELECT 'PRIMARY KEY (' || string_agg(a.attname, ', ' ORDER BY list_position(k.conkey, a.attnum)) "
        "|| ')' FROM pgc.pg_constraint k JOIN pgc.pg_attribute a ON a.attrelid = k.conrelid "
        "AND list_contains(k.conkey, a.attnum) WHERE k.oid = o)"),
        ("(o, p) AS (SELECT 'PRIMARY KEY (' || string_agg(a.attname, ', ' ORDER BY list_position(k.conkey, a.attnum)) "
        "|| ')' FROM pgc.pg_constraint k JOIN pgc.pg_attribute a ON a.attrelid = k.conrelid "
        "AND list_contains(k.conkey, a.attnum) WHERE k.oid = o)"),
    ],
    "getdatabaseencoding": ["() AS ('UTF8')"],
    "current_setting": ["(n) AS (SELECT min(setting) FROM pgc.pg_settings WHERE name = n)"],
    "pg_encoding_to_char": ["(n) AS ('UTF8')"],
    "pg_char_to_encoding": ["(n) AS (6)"],
    "pg_backend_pid": ["() AS (0)"],
    "pg_is_in_recovery": ["() AS (false)"],
    "pg_is_other_temp_schema": ["(o) AS (false)"],
    "pg_my_temp_schema": ["() AS (0)"],
    "pg_relation_is_publishable": ["(o) AS (false)"],
    "pg_relation_is_updatable": ["(o, c) AS (0)"],
    "pg_size_pretty": ["(n) AS (n || ' bytes')"],
    "pg_postmaster_start_time": ["() AS (NULL::timestamp)"],
    "current_schemas": ["(b) AS (CASE WHEN b THEN ['pg_catalog', 'public'] ELSE ['public'] END)"],
    "set_config": ["(a, b, c) AS (b)"],
    "quote_ident": [("(t) AS (CASE WHEN regexp_full_match(t, '[a-z_][a-z0-9_]*') THEN t "
                    "ELSE '\"' || replace(t, '\"', '\"\"') || '\"' END)")],
    "quote_literal": ["(t) AS ('''' || replace(t, '''', '''''') || '''')"],
    "quote_nullable": ["(t) AS (coalesce('''' || replace(t, '''', '''''') || '''', 'NULL'))"],
    "parse_ident": [("(t) AS (list_transform(regexp_extract_all(t, '\"(?:[^\"]|\"\")*\"|[^.]+'), "
                    "lambda p: CASE WHEN p[1] = '\"' THEN replace(p[2:-2], '\"\"', '\"') ELSE lower(trim(p)) END))")],
    "_pg_expandarray": ["(a) AS (unnest(list_transform(a, lambda v, i: {'x': v, 'n': i})))"],
    "pg_get_keywords": [
        f"() AS TABLE (SELECT lower(unnest({sorted(RESERVED)!r})) AS word, 'R' AS catcode, 'reserved' AS catdesc)"
    ],
    "array_position": ["(a, v) AS (nullif(list_position(a, v), 0))"],
    "array_lower": ["(a, n) AS (CASE WHEN len(a) > 0 THEN 1 END)"],
    "array_upper": ["(a, n) AS (nullif(len(a), 0))"],
    "array_length": ["(a, n) AS (nullif(len(a), 0))"],
    "cardinality": ["(a) AS (len(a))"],
    "array_remove": ["(a, v) AS (list_filter(a, lambda x: x <> v))"],
    "timezone": ["(a, b) AS (b)"],
    "btrim": ["(a) AS (trim(a))", "(a, b) AS (trim(a, b))"],
    "to_char": ["(a, b) AS (a::varchar)"],
}  # fmt: skip

_WORDS: Final = (
    "CREATE MACRO pgf_words(n, m) AS (CASE n WHEN 'bool' THEN 'boolean' WHEN 'int4' THEN 'integer' "
    "WHEN 'int8' THEN 'bigint' WHEN 'int2' THEN 'smallint' WHEN 'float8' THEN 'double precision' "
    "WHEN 'float4' THEN 'real' WHEN 'timestamp' THEN 'timestamp without time zone' "
    "WHEN 'timestamptz' THEN 'timestamp with time zone' WHEN 'time' THEN 'time without time zone' "
    "WHEN 'varchar' THEN 'character varying' WHEN 'bpchar' THEN 'character' WHEN 'char' THEN '\"char\"' "
    "WHEN 'numeric' THEN CASE WHEN m IS NULL OR m < 4 THEN 'numeric' ELSE 'numeric(' || ((m - 4) // 65536) || ',' "
    "|| ((m - 4) % 65536) || ')' END ELSE n END)"
)
_NAMES: Final = (
    (
        "CREATE MACRO pgf_regclass_of(t) AS (SELECT min(c.oid) FROM pgc.pg_class c JOIN pgc.pg_namespace n "
        "ON n.oid = c.relnamespace WHERE t IN (c.relname, pgf_quote_ident(c.relname), "
        "n.nspname || '.' || pgf_quote_ident(c.relname)))"
    ),
    "CREATE MACRO pgf_regclass_name(o) AS (SELECT min(relname) FROM pgc.pg_class WHERE oid = o)",
    "CREATE MACRO pgf_regtype_name(o) AS (CASE WHEN o = 0 THEN '-' ELSE pgf_format_type(o, NULL) END)",
    "CREATE MACRO pgf_regnamespace_name(o) AS (SELECT min(nspname) FROM pgc.pg_namespace WHERE oid = o)",
    "CREATE MACRO pgf_regproc_name(o) AS (o::varchar)",
    "CREATE MACRO pgf_regprocedure_name(o) AS (o::varchar)",
    "CREATE MACRO pgf_regrole_name(o) AS (SELECT min(rolname) FROM pgc.pg_roles WHERE oid = o)",
    "CREATE MACRO pgf_regoper_name(o) AS (o::varchar)",
    "CREATE MACRO pgf_regoperator_name(o) AS (o::varchar)",
)


def _macros() -> list[str]:
    bodies = {name: [f"({each}) AS (true)" for each in arguments] for name, arguments in _SIMPLE.items()}
    bodies |= {
        name: [f"({each}) AS (regexp_matches(lower(p), 'select|insert|delete'))" for each in arguments]
        for name, arguments in _PRIVILEGES.items()
    }
    bodies |= {name: [f"({each}) AS (NULL::varchar)" for each in arguments] for name, arguments in _NULLS.items()}
    bodies |= {name: ["(a) AS (0::bigint)"] for name in _SIZES}
    bodies |= _OTHERS
    return [_WORDS, *(f"CREATE MACRO pgf_{name}{', '.join(parts)}" for name, parts in bodies.items()), *_NAMES]


MACROS: Final = _macros()
OURS: Final = frozenset({*_SIMPLE, *_PRIVILEGES, *_NULLS, *_SIZES, *_OTHERS})

RENAMED: Final = {
    "json_build_object": "json_object",
    "json_build_array": "json_array",
    "char_length": "length",
}
"""Functions that have another name in DuckDB."""

ALLOWED: Final = (
    exp.And, exp.Or, exp.Xor, exp.Case, exp.If, exp.Cast, exp.Array, exp.Exists, exp.Coalesce, exp.Nullif, exp.Count,
    exp.Min, exp.Max, exp.Sum, exp.Avg, exp.Upper, exp.Lower, exp.Length, exp.Substring, exp.Concat, exp.ConcatWs,
    exp.ArrayAgg, exp.GroupConcat, exp.ArrayToString, exp.RegexpLike, exp.RegexpILike, exp.RegexpReplace,
    exp.GenerateSeries, exp.Unnest, exp.RowNumber, exp.Trim, exp.Abs, exp.Round, exp.Floor, exp.Ceil, exp.Greatest,
    exp.Least, exp.Left, exp.Right, exp.Replace, exp.StrPosition, exp.SplitPart, exp.StartsWith, exp.Explode,
    exp.LogicalAnd, exp.LogicalOr, exp.ArrayContainsAll, exp.ArrayOverlaps, exp.ArrayContains, exp.Any, exp.MD5,
    exp.ExplodingGenerateSeries, exp.StringToArray, exp.ArrayConcat, exp.Pad, exp.Initcap, exp.Extract, exp.ArraySize,
)  # fmt: skip
