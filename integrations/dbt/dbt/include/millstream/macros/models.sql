{# Streams and tables: persistent queries, and sources with columns. #}

{% materialization stream, adapter='millstream', supported_languages=['sql'] %}
  {{ return(millstream__deploy('stream', adapter.create_as('STREAM', this, sql, model.config))) }}
{% endmaterialization %}

{% materialization table, adapter='millstream', supported_languages=['sql'] %}
  {{ return(millstream__deploy('table', adapter.create_as('TABLE', this, sql, model.config))) }}
{% endmaterialization %}

{% materialization source, adapter='millstream', supported_languages=['sql'] %}
  {% set kind = (config.get('kind') or 'stream') | lower %}
  {{ return(millstream__deploy(kind, adapter.create_source(this, sql, model.config))) }}
{% endmaterialization %}

{% macro millstream__deploy(kind, statement_text) %}
  {% set target_relation = this.incorporate(type=kind) %}
  {% if config.get('grants') %}
    {% do millstream__refuse("grants", "roles in the server's configuration say who may do what: docs/configuration.md.") %}
  {% endif %}
  {% if config.get('contract').enforced %}
    {% do millstream__refuse("contracts of dbt", "CREATE OR REPLACE refuses to change existing columns by itself.") %}
  {% endif %}
  {% do adapter.use_properties(config.get('properties')) %}
  {{ run_hooks(pre_hooks) }}
  {% set plan = adapter.plan(target_relation, statement_text, model.config, should_full_refresh(), millstream__selected()) %}
  {{ millstream__carry_out(plan, statement_text) }}
  {{ run_hooks(post_hooks) }}
  {% do adapter.use_properties({}) %}
  {{ return({'relations': [target_relation]}) }}
{% endmacro %}

{% macro millstream__carry_out(plan, statement_text) %}
  {% if plan['drop'] %}
    {% call statement('drop') %}{{ plan['drop'] }}{% endcall %}
  {% endif %}
  {% if plan['create'] %}
    {% call statement('main') %}{{ plan['create'] }}{% endcall %}
  {% else %}
    {% call noop_statement('main', 'UNCHANGED', 'UNCHANGED') %}{{ statement_text }}{% endcall %}
  {% endif %}
{% endmacro %}

{# The relations that this run makes; true: a full refresh deletes their topics. Those of seeds it always deletes. #}
{% macro millstream__selected() %}
  {% set made = {} %}
  {% for node in graph.nodes.values() if node.unique_id in selected_resources and node.relation_name %}
    {% do made.update({node.relation_name: node.resource_type == 'seed' or node.config.delete_topic is true}) %}
  {% endfor %}
  {{ return(made) }}
{% endmacro %}

{% materialization sink, adapter='millstream', supported_languages=['sql'] %}
  {{ run_hooks(pre_hooks) }}
  {% set plan = adapter.plan_sink(this, sql, should_full_refresh()) %}
  {{ millstream__carry_out(plan, sql) }}
  {{ run_hooks(post_hooks) }}
  {{ return({'relations': []}) }}
{% endmaterialization %}
