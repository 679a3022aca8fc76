{# What has no meaning here is refused, with what to use instead. #}

{% macro millstream__refuse(what, hint) %}
  {% do exceptions.raise_compiler_error("Millstream has no " ~ what ~ "\nhint: " ~ hint) %}
{% endmacro %}

{% materialization view, adapter='millstream' %}
  {% do millstream__refuse("views (dbt's default materialization)",
    "+materialized: stream or table in dbt_project.yml makes a query that is kept up to date; ephemeral puts the model into those that read it.") %}
{% endmaterialization %}

{% materialization materialized_view, adapter='millstream' %}
  {% do millstream__refuse("materialized views beside tables", "materialized='table' is kept up to date by itself.") %}
{% endmaterialization %}

{% materialization incremental, adapter='millstream' %}
  {% do millstream__refuse("incremental models", "streams and tables are updated with each record: use materialized='stream' or 'table'.") %}
{% endmaterialization %}

{% materialization snapshot, adapter='millstream' %}
  {% do millstream__refuse("snapshots", "the topic of a stream keeps every change: make a stream of it, with a retention that suits.") %}
{% endmaterialization %}

{% materialization unit, adapter='millstream' %}
  {% do millstream__refuse("unit tests of dbt", "millstream test runs SQL with given rows: see docs/sql-tests.md.") %}
{% endmaterialization %}

{# A server has one namespace. Tests have a schema by default, for the failures that they store. #}
{% macro millstream__generate_schema_name(custom_schema_name, node) %}
  {% if custom_schema_name is not none and node is not none and node.resource_type != 'test' %}
    {% do millstream__refuse("schemas, and " ~ node.name ~ " has the config schema: " ~ custom_schema_name,
      "leave it out; use alias, or the macro generate_alias_name, for a prefix of names.") %}
  {% endif %}
  {{ return(target.schema) }}
{% endmacro %}

{% macro millstream__generate_database_name(custom_database_name=none, node=none) %}
  {{ return(target.database) }}
{% endmacro %}
