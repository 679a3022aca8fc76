{# Seeds are loaded with INSERT; tests are pull queries. #}

{% materialization seed, adapter='millstream' %}
  {% set target_relation = this.incorporate(type='table' if config.get('key') else 'stream') %}
  {% set rows = load_agate_table() %}
  {% do store_result('agate_table', response='OK', agate_table=rows) %}
  {% do adapter.use_properties(config.get('properties')) %}
  {{ run_hooks(pre_hooks) }}
  {% set change = adapter.change_seed(target_relation, rows, model.config, should_full_refresh(), millstream__selected()) %}
  {% for text in change.statements %}
    {% do adapter.add_query(text, abridge_sql_log=True) %}
  {% endfor %}
  {% set message = 'INSERT ' ~ change.rows if change.statements else 'UNCHANGED' %}
  {% call noop_statement('main', message, message, change.rows) %}{{ change.statements | join('\n') }}{% endcall %}
  {{ run_hooks(post_hooks) }}
  {% do adapter.use_properties({}) %}
  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}

{% macro millstream__get_test_sql(main_sql, fail_calc, warn_if, error_if, limit) %}
  {% if should_store_failures() %}
    {% do millstream__refuse("failures of tests as tables", "leave store_failures out; dbt show --inline runs the test's query.") %}
  {% endif %}
  {% do adapter.wait_for_nodes(model.depends_on.nodes, graph) %}
  {{ default__get_test_sql(main_sql, fail_calc, warn_if, error_if, limit) }}
{% endmacro %}

{# A join of any columns: NOT IN takes them, where a LEFT JOIN needs a key. #}
{% macro millstream__test_relationships(model, column_name, to, field) %}
select {{ column_name }} as from_field
from {{ model }}
where {{ column_name }} is not null
  and {{ column_name }} not in (select {{ field }} from {{ to }} where {{ field }} is not null)
{% endmacro %}

{% macro millstream__current_timestamp() %}FROM_UNIXTIME(UNIX_TIMESTAMP()){% endmacro %}
