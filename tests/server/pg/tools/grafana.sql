-- What Grafana sends for a data source of PostgreSQL: commit 12f912ab, postgresMetaQuery.ts of
-- public/app/plugins/datasource/grafana-postgresql-datasource, and what the macros of macros.go in
-- pkg/tsdb/grafana-postgresql-datasource expand to. Its server sends them as simple queries; its health check is an
-- empty one. Each has a name, its file, and what its parameters are.

--@ health: pgx/handler_checkhealth.go
;

--@ version: postgresMetaQuery.ts
SELECT current_setting('server_version_num')::int/100 as version;

--@ TimescaleDB: postgresMetaQuery.ts
SELECT extversion FROM pg_extension WHERE extname = 'timescaledb';

--@ schemas: postgresMetaQuery.ts
SELECT schema_name AS "name"
    FROM information_schema.schemata
    WHERE schema_name NOT IN ('information_schema', 'pg_catalog', 'pg_toast', '_timescaledb_cache', '_timescaledb_catalog',
                              '_timescaledb_internal', '_timescaledb_config', 'timescaledb_information',
                              'timescaledb_experimental')
    ORDER BY schema_name;

--@ tables of a schema: postgresMetaQuery.ts
SELECT quote_ident(table_name) AS "table"
      FROM information_schema.tables
      WHERE quote_ident(table_schema) = 'public'
      ORDER BY 1;

--@ tables: postgresMetaQuery.ts
SELECT
    CASE WHEN 
          quote_ident(table_schema) IN (
          SELECT
            CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END
          FROM
            generate_series(
              array_lower(string_to_array(current_setting('search_path'),','),1),
              array_upper(string_to_array(current_setting('search_path'),','),1)
            ) as i,
            string_to_array(current_setting('search_path'),',') s
          )
      THEN quote_ident(table_name)
      ELSE quote_ident(table_schema) || '.' || quote_ident(table_name)
    END AS "table"
    FROM information_schema.tables
    WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog', '_timescaledb_cache')
    ORDER BY CASE WHEN 
          quote_ident(table_schema) IN (
          SELECT
            CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END
          FROM
            generate_series(
              array_lower(string_to_array(current_setting('search_path'),','),1),
              array_upper(string_to_array(current_setting('search_path'),','),1)
            ) as i,
            string_to_array(current_setting('search_path'),',') s
          ) THEN 0 ELSE 1 END, 1;

--@ columns: postgresMetaQuery.ts
SELECT quote_ident(column_name) AS "column", data_type AS "type"
    FROM information_schema.columns
    WHERE
      CASE WHEN array_length(parse_ident('totals'),1) = 2
        THEN quote_ident(table_schema) = (parse_ident('totals'))[1]
          AND quote_ident(table_name) = (parse_ident('totals'))[2]
        ELSE quote_ident(table_name) = 'totals'
          AND 
          quote_ident(table_schema) IN (
          SELECT
            CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END
          FROM
            generate_series(
              array_lower(string_to_array(current_setting('search_path'),','),1),
              array_upper(string_to_array(current_setting('search_path'),','),1)
            ) as i,
            string_to_array(current_setting('search_path'),',') s
          )
      END;

--@ columns of a schema's table: postgresMetaQuery.ts
SELECT quote_ident(column_name) AS "column", data_type AS "type"
    FROM information_schema.columns
    WHERE
      CASE WHEN array_length(parse_ident('public.clicks'),1) = 2
        THEN quote_ident(table_schema) = (parse_ident('public.clicks'))[1]
          AND quote_ident(table_name) = (parse_ident('public.clicks'))[2]
        ELSE quote_ident(table_name) = 'public.clicks'
      END;

--@ a time series: $__time, $__timeFilter
SELECT ts AS "time", n FROM totals WHERE ts BETWEEN '2020-01-01T00:00:00Z' AND '2020-01-03T00:00:00.5Z' ORDER BY 1;

--@ a grouped time series: $__timeGroupAlias
SELECT floor(extract(epoch from ts)/300)*300 AS "time", sum(n) AS value FROM totals WHERE ts BETWEEN '2020-01-01T00:00:00Z' AND '2020-01-03T00:00:00Z' GROUP BY time ORDER BY time;

--@ a series by seconds: $__unixEpochFilter, $__unixEpochGroupAlias
SELECT floor((n)/300)*300 AS "time", count(*) AS value FROM totals WHERE n >= 0 AND n <= 1492750877 GROUP BY 1 ORDER BY 1;

--@ values of a variable: of a dashboard
SELECT DISTINCT user_id FROM clicks ORDER BY 1;
