"""The tables of `pg_catalog` and `information_schema` with PostgreSQL's columns, filled from a catalog of ours.

Streams and tables are ordinary tables there; a TABLE has a primary key with an index. Tables without an equivalent here
exist, but are empty, for clients that join them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import duckdb
import pyarrow as pa

from ...planner.catalog import Catalog
from ...planner.source_info import SourceInfo
from ...sql.types import BIGINT, Decimal, SqlType
from .dialect.known_names import SCHEMA, shown_name
from .pg_settings import PgSettings
from .pg_types import PG_TYPES, PgType, element_type, modifier_of, oid_of, scalar_type, size_of

CATALOG: Final = "pgc"
"""The DuckDB schema for the tables of pg_catalog, because DuckDB has its own pg_catalog."""
INFORMATION: Final = "pgi"

_OWNER: Final = 10
_NAMESPACES: Final = {"pg_catalog": 11, SCHEMA: 2200, "information_schema": 13_000}
_FIRST_OID: Final = 16_384
_OIDS: Final = 1 << 30
_DATABASE: Final = 5
_BTREE: Final = 403
_HEAP: Final = 2

SYSTEM_OIDS: Final = {
    "pg_type": 1247, "pg_attribute": 1249, "pg_proc": 1255, "pg_class": 1259, "pg_authid": 1260, "pg_database": 1262,
    "pg_constraint": 2606, "pg_attrdef": 2604, "pg_namespace": 2615, "pg_index": 2610, "pg_description": 2609,
    "pg_rewrite": 2618, "pg_trigger": 2620, "pg_language": 2612, "pg_am": 2601, "pg_operator": 2617,
    "pg_extension": 3079, "pg_tablespace": 1213, "pg_collation": 3456, "pg_cast": 2605, "pg_opclass": 2616,
    "pg_foreign_server": 1417, "pg_event_trigger": 3466, "pg_policy": 3256, "pg_publication": 6104,
    "pg_statistic_ext": 3381, "pg_sequence": 2224, "pg_enum": 3501, "pg_inherits": 2611, "pg_depend": 2608,
}  # fmt: skip

_COLUMN_TYPES: Final = {"o": "UINTEGER", "t": "VARCHAR", "b": "BOOLEAN", "i": "INTEGER", "f": "DOUBLE",
                        "O": "UINTEGER[]", "T": "VARCHAR[]", "I": "INTEGER[]"}  # fmt: skip

# Columns as `name:letter`; several names before a letter share it.
_PG_CATALOG: Final = {
    "pg_namespace": "oid:o nspname:t nspowner:o nspacl:T",
    "pg_class": "oid:o relname:t relnamespace,reltype,reloftype,relowner,relam,relfilenode,reltablespace:o relpages:i "
    "reltuples:f relallvisible:i reltoastrelid:o relhasindex,relisshared:b relpersistence,relkind:t "
    "relnatts,relchecks:i relhasrules,relhastriggers,relhassubclass,relrowsecurity,"
    "relforcerowsecurity,relispopulated:b relreplident:t "
    "relispartition:b relrewrite,relfrozenxid,relminmxid:o relacl,reloptions:T relpartbound:t relhasoids:b",
    "pg_attribute": "attrelid:o attname:t atttypid:o attstattarget,attlen,attnum,attndims,attcacheoff,atttypmod:i "
    "attbyval:b attalign,attstorage,attcompression:t attnotnull,atthasdef,atthasmissing:b attidentity,attgenerated:t "
    "attisdropped,attislocal:b attinhcount:i attcollation:o attacl,attoptions,attfdwoptions:T attmissingval:t",
    "pg_type": "oid:o typname:t typnamespace,typowner:o typlen:i typbyval:b typtype,typcategory:t "
    "typispreferred,typisdefined:b typdelim:t typrelid:o typsubscript:t typelem,typarray:o "
    "typinput,typoutput,typreceive,typsend,typmodin,typmodout,typanalyze,typalign,typstorage:t typnotnull:b "
    "typbasetype:o typtypmod,typndims:i typcollation:o typdefaultbin,typdefault:t typacl:T",
    "pg_index": "indexrelid,indrelid:o indnatts,indnkeyatts:i "
    "indisunique,indnullsnotdistinct,indisprimary,indisexclusion,indimmediate,indisclustered,indisvalid,indcheckxmin,"
    "indisready,indislive,indisreplident:b indkey:I indcollation,indclass:O indoption:I indexprs,indpred:t",
    "pg_constraint": "oid:o conname:t connamespace:o contype:t condeferrable,condeferred,convalidated:b "
    "conrelid,contypid,conindid,conparentid,confrelid:o confupdtype,confdeltype,confmatchtype:t conislocal:b "
    "coninhcount:i connoinherit:b conkey,confkey:I conpfeqop,conppeqop,conffeqop,confdelsetcols,conexclop:O conbin:t",
    "pg_description": "objoid,classoid:o objsubid:i description:t",
    "pg_shdescription": "objoid,classoid:o description:t",
    "pg_database": "oid:o datname:t datdba:o encoding:i datlocprovider:t datistemplate,datallowconn:b "
    "datconnlimit:i datfrozenxid,datminmxid,dattablespace:o datcollate,datctype,daticulocale,datcollversion:t datacl:T",
    "pg_roles": "oid:o rolname:t rolsuper,rolinherit,rolcreaterole,rolcreatedb,rolcanlogin,rolreplication:b "
    "rolconnlimit:i rolpassword,rolvaliduntil:t rolbypassrls:b rolconfig:T",
    "pg_user": "usename:t usesysid:o usecreatedb,usesuper,userepl,usebypassrls:b passwd,valuntil:t useconfig:T",
    "pg_group": "groname:t grosysid:o grolist:O",
    "pg_am": "oid:o amname,amhandler,amtype:t",
    "pg_tablespace": "oid:o spcname:t spcowner:o spcacl,spcoptions:T",
    "pg_settings": "name,setting,unit,category,short_desc,extra_desc,context,vartype,source,min_val,max_val:t "
    "enumvals:T boot_val,reset_val,sourcefile:t sourceline:i pending_restart:b",
    "pg_tables": "schemaname,tablename,tableowner,tablespace:t hasindexes,hasrules,hastriggers,rowsecurity:b",
    "pg_views": "schemaname,viewname,viewowner,definition:t",
    "pg_matviews": "schemaname,matviewname,matviewowner,tablespace:t hasindexes,ispopulated:b definition:t",
    "pg_indexes": "schemaname,tablename,indexname,tablespace,indexdef:t",
    "pg_attrdef": "oid,adrelid:o adnum:i adbin:t",
    "pg_proc": "oid:o proname:t pronamespace,proowner,prolang:o procost,prorows:f provariadic:o prosupport,prokind:t "
    "prosecdef,proleakproof,proisstrict,proretset:b provolatile,proparallel:t pronargs,pronargdefaults:i prorettype:o "
    "proargtypes,proallargtypes:O proargmodes,proargnames:T proargdefaults:t protrftypes:O prosrc,probin,prosqlbody:t "
    "proconfig,proacl:T",
    "pg_inherits": "inhrelid,inhparent:o inhseqno:i inhdetachpending:b",
    "pg_trigger": "oid,tgrelid,tgparentid:o tgname:t tgfoid:o tgtype:i tgenabled:t tgisinternal:b "
    "tgconstrrelid,tgconstrindid,tgconstraint:o tgdeferrable,tginitdeferred:b tgnargs:i tgattr:I tgargs,tgqual:t "
    "tgoldtable,tgnewtable:t",
    "pg_rewrite": "oid:o rulename:t ev_class:o ev_type,ev_enabled:t is_instead:b ev_qual,ev_action:t",
    "pg_depend": "classid,objid:o objsubid:i refclassid,refobjid:o refobjsubid:i deptype:t",
    "pg_shdepend": "dbid,classid,objid:o objsubid:i refclassid,refobjid:o deptype:t",
    "pg_collation": "oid:o collname:t collnamespace,collowner:o collprovider:t collisdeterministic:b collencoding:i "
    "collcollate,collctype,colliculocale,collversion:t",
    "pg_enum": "oid,enumtypid:o enumsortorder:f enumlabel:t",
    "pg_extension": "oid:o extname:t extowner,extnamespace:o extrelocatable:b extversion:t extconfig:O extcondition:T",
    "pg_available_extensions": "name,default_version,installed_version,comment:t",
    "pg_language": "oid:o lanname:t lanowner:o lanispl,lanpltrusted:b lanplcallfoid,laninline,lanvalidator:o lanacl:T",
    "pg_operator": "oid:o oprname:t oprnamespace,oprowner:o oprkind:t oprcanmerge,oprcanhash:b "
    "oprleft,oprright,oprresult,oprcom,oprnegate:o oprcode,oprrest,oprjoin:t",
    "pg_opclass": "oid,opcmethod:o opcname:t opcnamespace,opcowner,opcfamily,opcintype:o opcdefault:b opckeytype:o",
    "pg_policy": "oid:o polname:t polrelid:o polcmd:t polpermissive:b polroles:O polqual,polwithcheck:t",
    "pg_policies": "schemaname,tablename,policyname,permissive:t roles:T cmd,qual,with_check:t",
    "pg_publication": "oid:o pubname:t pubowner:o puballtables,pubinsert,pubupdate,pubdelete,pubtruncate,pubviaroot:b",
    "pg_publication_rel": "oid,prpubid,prrelid:o prqual:t prattrs:I",
    "pg_publication_namespace": "oid,pnpubid,pnnspid:o",
    "pg_publication_tables": "pubname,schemaname,tablename:t",
    "pg_subscription": "oid,subdbid:o subname:t subowner:o subenabled,subbinary,substream,subtwophasestate,"
    "subdisableonerr:b subconninfo,subslotname,subsynccommit:t subpublications:T subskiplsn:t",
    "pg_opfamily": "oid,opfmethod:o opfname:t opfnamespace,opfowner:o",
    "pg_amop": "oid,amopfamily,amoplefttype,amoprighttype:o amopstrategy:i amoppurpose:t amopopr,amopmethod,"
    "amopsortfamily:o",
    "pg_amproc": "oid,amprocfamily,amproclefttype,amprocrighttype:o amprocnum:i amproc:t",
    "pg_parameter_acl": "oid:o parname:t paracl:T",
    "pg_statistic_ext": "oid,stxrelid:o stxname:t stxnamespace,stxowner:o stxstattarget:i stxkeys:I stxkind:T "
    "stxexprs:t",
    "pg_foreign_table": "ftrelid,ftserver:o ftoptions:T",
    "pg_foreign_server": "oid:o srvname:t srvowner,srvfdw:o srvtype,srvversion:t srvacl,srvoptions:T",
    "pg_foreign_data_wrapper": "oid:o fdwname:t fdwowner,fdwhandler,fdwvalidator:o fdwacl,fdwoptions:T",
    "pg_user_mapping": "oid,umuser,umserver:o umoptions:T",
    "pg_sequence": "seqrelid,seqtypid,seqstart,seqincrement,seqmax,seqmin,seqcache:o seqcycle:b",
    "pg_range": "rngtypid,rngsubtype,rngmultitypid,rngcollation,rngsubopc:o rngcanonical,rngsubdiff:t",
    "pg_cast": "oid,castsource,casttarget,castfunc:o castcontext,castmethod:t",
    "pg_partitioned_table": "partrelid:o partstrat:t partnatts:i partdefid:o partattrs:I partclass,partcollation:O "
    "partexprs:t",
    "pg_auth_members": "roleid,member,grantor:o admin_option:b",
    "pg_authid": "oid:o rolname:t rolsuper,rolcanlogin:b",
    "pg_event_trigger": "oid:o evtname,evtevent:t evtowner,evtfoid:o evtenabled:t evttags:T",
    "pg_conversion": "oid:o conname:t connamespace,conowner:o conforencoding,contoencoding:i conproc:t condefault:b",
    "pg_aggregate": "aggfnoid:o aggkind:t aggnumdirectargs:i",
    "pg_default_acl": "oid,defaclrole,defaclnamespace:o defaclobjtype:t defaclacl:T",
    "pg_db_role_setting": "setdatabase,setrole:o setconfig:T",
    "pg_seclabel": "objoid,classoid:o objsubid:i provider,label:t",
    "pg_locks": "locktype:t database,relation:o pid:i mode:t granted:b",
    "pg_stat_activity": "datid:o datname:t pid:i usesysid:o usename,application_name,client_addr,client_hostname:t "
    "client_port:i backend_start,xact_start,query_start,state_change,wait_event_type,wait_event,state:t "
    "backend_xid,backend_xmin,query_id:o query,backend_type:t",
    "pg_stat_user_tables": "relid:o schemaname,relname:t seq_scan,n_live_tup,n_dead_tup:o",
    "pg_stat_all_tables": "relid:o schemaname,relname:t seq_scan,n_live_tup,n_dead_tup:o",
    "pg_statio_user_tables": "relid:o schemaname,relname:t heap_blks_read,heap_blks_hit:o",
    "pg_timezone_names": "name,abbrev:t utc_offset:t is_dst:b",
    "pg_prepared_statements": "name,statement:t",
    "pg_cursors": "name,statement:t is_holdable,is_binary,is_scrollable:b",
    "pg_ts_config": "oid:o cfgname:t cfgnamespace,cfgowner,cfgparser:o",
    "pg_ts_dict": "oid:o dictname:t dictnamespace:o",
    "pg_ts_parser": "oid:o prsname:t prsnamespace:o",
    "pg_ts_template": "oid:o tmplname:t tmplnamespace:o",
    "pg_largeobject_metadata": "oid,lomowner:o lomacl:T",
}
_INFORMATION: Final = {
    "schemata": "catalog_name,schema_name,schema_owner,default_character_set_catalog,default_character_set_schema,"
    "default_character_set_name,sql_path:t",
    "tables": "table_catalog,table_schema,table_name,table_type,self_referencing_column_name,reference_generation,"
    "user_defined_type_catalog,user_defined_type_schema,user_defined_type_name,is_insertable_into,is_typed,"
    "commit_action:t",
    "columns": "table_catalog,table_schema,table_name,column_name:t ordinal_position:i "
    "column_default,is_nullable,data_type:t character_maximum_length,character_octet_length,numeric_precision,"
    "numeric_precision_radix,numeric_scale,datetime_precision:i interval_type:t interval_precision:i "
    "character_set_catalog,character_set_schema,character_set_name,collation_catalog,collation_schema,collation_name,"
    "domain_catalog,domain_schema,domain_name,udt_catalog,udt_schema,udt_name,scope_catalog,scope_schema,scope_name:t "
    "maximum_cardinality:i dtd_identifier,is_self_referencing,is_identity,identity_generation,identity_start,"
    "identity_increment,identity_maximum,identity_minimum,identity_cycle,is_generated,generation_expression,"
    "is_updatable:t",
    "views": "table_catalog,table_schema,table_name,view_definition,check_option,is_updatable,is_insertable_into,"
    "is_trigger_updatable,is_trigger_deletable,is_trigger_insertable_into:t",
    "table_constraints": "constraint_catalog,constraint_schema,constraint_name,table_catalog,table_schema,table_name,"
    "constraint_type,is_deferrable,initially_deferred,enforced,nulls_distinct:t",
    "key_column_usage": "constraint_catalog,constraint_schema,constraint_name,table_catalog,table_schema,table_name,"
    "column_name:t ordinal_position,position_in_unique_constraint:i",
    "constraint_column_usage": "table_catalog,table_schema,table_name,column_name,constraint_catalog,constraint_schema,"
    "constraint_name:t",
    "referential_constraints": "constraint_catalog,constraint_schema,constraint_name,unique_constraint_catalog,"
    "unique_constraint_schema,unique_constraint_name,match_option,update_rule,delete_rule:t",
    "check_constraints": "constraint_catalog,constraint_schema,constraint_name,check_clause:t",
    "routine_privileges": "grantor,grantee,specific_catalog,specific_schema,specific_name,routine_catalog,"
    "routine_schema,routine_name,privilege_type,is_grantable:t",
    "routines": "specific_catalog,specific_schema,specific_name,routine_catalog,routine_schema,routine_name,"
    "routine_type,data_type,type_udt_name,routine_definition,external_language,is_deterministic:t",
    "parameters": "specific_catalog,specific_schema,specific_name:t ordinal_position:i parameter_mode,parameter_name,"
    "data_type,udt_name:t",
    "sequences": "sequence_catalog,sequence_schema,sequence_name,data_type,start_value,minimum_value,maximum_value,"
    "increment,cycle_option:t",
    "triggers": "trigger_catalog,trigger_schema,trigger_name,event_manipulation,event_object_catalog,"
    "event_object_schema,event_object_table,action_statement,action_orientation,action_timing:t",
    "table_privileges": "grantor,grantee,table_catalog,table_schema,table_name,privilege_type,is_grantable,"
    "with_hierarchy:t",
    "role_table_grants": "grantor,grantee,table_catalog,table_schema,table_name,privilege_type,is_grantable,"
    "with_hierarchy:t",
    "column_privileges": "grantor,grantee,table_catalog,table_schema,table_name,column_name,privilege_type,"
    "is_grantable:t",
    "element_types": "object_catalog,object_schema,object_name,object_type,collection_type_identifier,data_type,"
    "udt_name:t",
    "enabled_roles": "role_name:t",
    "applicable_roles": "grantee,role_name,is_grantable:t",
    "character_sets": "character_set_catalog,character_set_schema,character_set_name,character_repertoire,form_of_use,"
    "default_collate_catalog,default_collate_schema,default_collate_name:t",
}
SYSTEM_NAMES: Final = {CATALOG: frozenset(_PG_CATALOG), INFORMATION: frozenset(_INFORMATION)}


def make_tables(
    connection: duckdb.DuckDBPyConnection, catalog: Catalog, settings: PgSettings, user: str, database: str
) -> None:
    """In: `catalog` as the user sees it."""
    rows = {
        CATALOG: _catalog_rows(catalog, settings, user, database),
        INFORMATION: _information(catalog, user, database),
    }
    for schema, tables in ((CATALOG, _PG_CATALOG), (INFORMATION, _INFORMATION)):
        made = [f"CREATE SCHEMA {schema}"]
        made += [f"CREATE TABLE {schema}.{name} ({_columns_text(columns)})" for name, columns in tables.items()]
        connection.execute(";".join(made))
        for name, found in rows[schema].items():
            _fill(connection, f"{schema}.{name}", dict(_columns(tables[name])), found)


def _columns(text: str) -> Iterator[tuple[str, str]]:
    for part in text.split():
        names, _, letter = part.partition(":")
        yield from ((name, _COLUMN_TYPES[letter]) for name in names.split(","))


def _columns_text(text: str) -> str:
    return ", ".join(f'"{name}" {type_}' for name, type_ in _columns(text))


_ARROW: Final = {
    "UINTEGER": pa.uint32(), "VARCHAR": pa.string(), "BOOLEAN": pa.bool_(), "INTEGER": pa.int32(),
    "DOUBLE": pa.float64(),
    "UINTEGER[]": pa.list_(pa.uint32()), "VARCHAR[]": pa.list_(pa.string()), "INTEGER[]": pa.list_(pa.int32()),
}  # fmt: skip


def _fill(
    connection: duckdb.DuckDBPyConnection, name: str, columns: Mapping[str, str], rows: Iterable[Mapping[str, Any]]
) -> None:
    rows = list(rows)
    if not rows:
        return
    unknown = {key for row in rows for key in row} - columns.keys()
    assert not unknown, f"{name} has no {unknown}"
    arrays = [pa.array([row.get(column) for row in rows], _ARROW[type_]) for column, type_ in columns.items()]
    connection.register("filling", pa.table(arrays, names=list(columns)))
    connection.execute(f"INSERT INTO {name} SELECT * FROM filling")
    connection.unregister("filling")


# OIDs


def relation_oids(catalog: Catalog) -> dict[str, int]:
    """The OIDs by our names. An OID is a hash of the name, so that a stream keeps it when others come and go. The next
    two OIDs belong to its index and its constraint."""
    taken: set[int] = set()
    found: dict[str, int] = {}
    for name in sorted(catalog.sources):
        oid = _FIRST_OID + zlib.crc32(name.encode()) % _OIDS // 4 * 4
        while oid in taken:
            oid += 4
        taken.add(oid)
        found[name] = oid
    return found


def shown_columns(source: SourceInfo) -> list[tuple[str, SqlType]]:
    """Names and types of the columns of SELECT *."""
    columns = [(shown_name(column.name), column.type) for column in source.schema]
    if source.key_window is not None:
        count = len(source.schema.key)
        columns[count:count] = [("windowstart", BIGINT), ("windowend", BIGINT)]
    return columns


def _key_positions(source: SourceInfo) -> list[int]:
    """The positions, from 1, of a table's key columns."""
    if source.kind != "TABLE":
        return []
    names = [name for name, _ in shown_columns(source)]
    keys = [shown_name(column.name) for column in source.schema.key]
    keys += ["windowstart", "windowend"] if source.key_window is not None else []
    return [names.index(name) + 1 for name in keys]


def type_oids() -> dict[str, int]:
    """The OIDs by name, also of array types."""
    return {type_.name: type_.oid for type_ in PG_TYPES} | {f"_{t.name}": t.array for t in PG_TYPES if t.array}


# pg_catalog

Rows = dict[str, list[dict[str, Any]]]


def _catalog_rows(catalog: Catalog, settings: PgSettings, user: str, database: str) -> Rows:
    oids = relation_oids(catalog)
    role = {"rolname": user, "rolsuper": False, "rolinherit": True, "rolcreaterole": False, "rolcreatedb": False,
            "rolcanlogin": True, "rolreplication": False, "rolconnlimit": -1, "rolbypassrls": False}  # fmt: skip
    rows: Rows = {
        "pg_namespace": [{"oid": oid, "nspname": name, "nspowner": _OWNER} for name, oid in _NAMESPACES.items()],
        "pg_database": [
            {"oid": _DATABASE, "datname": database, "datdba": _OWNER, "encoding": 6, "datlocprovider": "c",
             "datistemplate": False, "datallowconn": True, "datconnlimit": -1, "dattablespace": 1663, "datcollate": "C",
             "datctype": "C"}
        ],
        "pg_roles": [{"oid": _OWNER, **role}],
        "pg_user": [{"usename": user, "usesysid": _OWNER, "usecreatedb": False, "usesuper": False, "userepl": False,
                     "usebypassrls": False}],
        "pg_am": [{"oid": _HEAP, "amname": "heap", "amtype": "t"}, {"oid": _BTREE, "amname": "btree", "amtype": "i"}],
        "pg_tablespace": [{"oid": 1663, "spcname": "pg_default", "spcowner": _OWNER}],
        "pg_collation": [{"oid": 100, "collname": "default", "collnamespace": 11, "collowner": _OWNER,
                          "collprovider": "d", "collisdeterministic": True, "collencoding": -1}],
        "pg_language": [{"oid": 14, "lanname": "sql", "lanowner": _OWNER, "lanispl": False, "lanpltrusted": True}],
        "pg_settings": [
            {"name": name, "setting": value, "category": "", "short_desc": "", "context": "user", "vartype": "string",
             "source": "default", "boot_val": value, "reset_val": value, "pending_restart": False}
            for name, value in settings.all()
        ],
        "pg_timezone_names": [{"name": "UTC", "abbrev": "UTC", "utc_offset": "00:00:00", "is_dst": False}],
        "pg_type": [*map(_type_row, PG_TYPES), *(_array_row(t) for t in PG_TYPES if t.array)],
        "pg_class": [], "pg_attribute": [], "pg_index": [], "pg_constraint": [], "pg_description": [], "pg_tables": [],
        "pg_indexes": [], "pg_stat_user_tables": [],
    }  # fmt: skip
    for source in catalog.sources.values():
        _add_source(rows, source, oids[source.name], user)
    return rows


# ADBC's driver identifies types by the names of these functions.
_WITH_UNDERSCORE: Final = (
    "date", "interval", "json", "jsonb", "numeric", "time", "timestamp", "timestamptz", "timetz", "uuid",
)  # fmt: skip


def _type_row(type_: PgType) -> dict[str, Any]:
    stem = f"{type_.name}_" if type_.name in _WITH_UNDERSCORE else type_.name
    return {
        "oid": type_.oid, "typname": type_.name, "typnamespace": 11, "typowner": _OWNER, "typlen": type_.size,
        "typbyval": 0 < type_.size <= 8, "typtype": "p" if type_.name == "unknown" else "b",
        "typcategory": type_.category, "typispreferred": type_.name in ("text", "float8", "bool", "timestamptz"),
        "typisdefined": True, "typdelim": ",", "typrelid": 0, "typelem": 0, "typarray": type_.array,
        "typinput": f"{stem}in", "typoutput": f"{stem}out", "typreceive": f"{stem}recv", "typsend": f"{stem}send",
        "typalign": "i", "typstorage": "p", "typnotnull": False, "typbasetype": 0,
        "typtypmod": -1, "typndims": 0, "typcollation": 100 if type_.category == "S" else 0,
    }  # fmt: skip


def _array_row(type_: PgType) -> dict[str, Any]:
    return {
        **_type_row(type_), "oid": type_.array, "typname": f"_{type_.name}", "typlen": -1, "typbyval": False,
        "typtype": "b", "typcategory": "A", "typispreferred": False, "typelem": type_.oid, "typarray": 0,
        "typinput": "array_in", "typoutput": "array_out", "typreceive": "array_recv", "typsend": "array_send",
        "typsubscript": "array_subscript_handler",
    }  # fmt: skip


def _add_source(rows: Rows, source: SourceInfo, oid: int, user: str) -> None:
    name, keys, columns = shown_name(source.name), _key_positions(source), shown_columns(source)
    rows["pg_class"].append(_class_row(oid, name, "r", len(columns), has_index=bool(keys)))
    rows["pg_attribute"] += [
        _attribute_row(oid, at, column, type_, not_null=at in keys) for at, (column, type_) in enumerate(columns, 1)
    ]
    described = f"{source.kind} on topic {source.topic}"
    rows["pg_description"].append({"objoid": oid, "classoid": 1259, "objsubid": 0, "description": described})
    rows["pg_tables"].append({"schemaname": SCHEMA, "tablename": name, "tableowner": user, "hasindexes": bool(keys),
                              "hasrules": False, "hastriggers": False, "rowsecurity": False})  # fmt: skip
    rows["pg_stat_user_tables"].append({"relid": oid, "schemaname": SCHEMA, "relname": name})
    if not keys:
        return
    index = f"{name}_pkey"
    rows["pg_class"].append(_class_row(oid + 1, index, "i", len(keys), has_index=False))
    rows["pg_attribute"] += [
        _attribute_row(oid + 1, at, *columns[key - 1], not_null=False) for at, key in enumerate(keys, 1)
    ]
    rows["pg_index"].append(
        {"indexrelid": oid + 1, "indrelid": oid, "indnatts": len(keys), "indnkeyatts": len(keys), "indisunique": True,
         "indnullsnotdistinct": False, "indisprimary": True, "indisexclusion": False, "indimmediate": True,
         "indisclustered": False, "indisvalid": True, "indcheckxmin": False, "indisready": True, "indislive": True,
         "indisreplident": False, "indkey": keys, "indcollation": [0] * len(keys), "indclass": [0] * len(keys),
         "indoption": [0] * len(keys)}
    )  # fmt: skip
    rows["pg_constraint"].append(
        {"oid": oid + 2, "conname": index, "connamespace": _NAMESPACES[SCHEMA], "contype": "p", "condeferrable": False,
         "condeferred": False, "convalidated": True, "conrelid": oid, "contypid": 0, "conindid": oid + 1,
         "conparentid": 0, "confrelid": 0, "confupdtype": " ", "confdeltype": " ", "confmatchtype": " ",
         "conislocal": True, "coninhcount": 0, "connoinherit": True, "conkey": keys}
    )  # fmt: skip
    rows["pg_indexes"].append({"schemaname": SCHEMA, "tablename": name, "indexname": index,
                               "indexdef": index_text(name, [columns[key - 1][0] for key in keys])})  # fmt: skip


def index_text(table: str, columns: Iterable[str]) -> str:
    return f"CREATE UNIQUE INDEX {table}_pkey ON {SCHEMA}.{table} USING btree ({', '.join(columns)})"


def _class_row(oid: int, name: str, kind: str, columns: int, *, has_index: bool) -> dict[str, Any]:
    return {
        "oid": oid, "relname": name, "relnamespace": _NAMESPACES[SCHEMA], "reltype": 0, "reloftype": 0,
        "relowner": _OWNER, "relam": _BTREE if kind == "i" else _HEAP, "relfilenode": 0, "reltablespace": 0,
        "relpages": 0, "reltuples": -1.0, "relallvisible": 0, "reltoastrelid": 0, "relhasindex": has_index,
        "relisshared": False, "relpersistence": "p", "relkind": kind, "relnatts": columns, "relchecks": 0,
        "relhasrules": False, "relhastriggers": False, "relhassubclass": False, "relrowsecurity": False,
        "relforcerowsecurity": False, "relispopulated": True, "relreplident": "d", "relispartition": False,
        "relrewrite": 0, "relfrozenxid": 0, "relminmxid": 0, "relhasoids": False,
    }  # fmt: skip


def _attribute_row(oid: int, position: int, name: str, type_: SqlType, *, not_null: bool) -> dict[str, Any]:
    return {
        "attrelid": oid, "attname": name, "atttypid": oid_of(type_), "attstattarget": -1, "attlen": size_of(type_),
        "attnum": position, "attndims": int(element_type(type_) is not None), "attcacheoff": -1,
        "atttypmod": modifier_of(type_), "attbyval": 0 < size_of(type_) <= 8, "attalign": "i", "attstorage": "p",
        "attcompression": "", "attnotnull": not_null, "atthasdef": False, "atthasmissing": False, "attidentity": "",
        "attgenerated": "", "attisdropped": False, "attislocal": True, "attinhcount": 0,
        "attcollation": 100 if oid_of(type_) == 25 else 0,
    }  # fmt: skip


# information_schema


def _information(catalog: Catalog, user: str, database: str) -> Rows:
    of_table = {"table_catalog": database, "table_schema": SCHEMA}
    of_constraint = {"constraint_catalog": database, "constraint_schema": SCHEMA}
    rows: Rows = {
        "schemata": [{"catalog_name": database, "schema_name": name, "schema_owner": user} for name in _NAMESPACES],
        "enabled_roles": [{"role_name": user}],
        "tables": [], "columns": [], "table_constraints": [], "key_column_usage": [], "constraint_column_usage": [],
        "table_privileges": [], "role_table_grants": [],
    }  # fmt: skip
    for source in catalog.sources.values():
        name, keys, columns = shown_name(source.name), _key_positions(source), shown_columns(source)
        table = {**of_table, "table_name": name}
        rows["tables"].append({**table, "table_type": "BASE TABLE", "is_insertable_into": "YES", "is_typed": "NO"})
        for at, (column, type_) in enumerate(columns, 1):
            rows["columns"].append({**table, **_column_row(at, column, type_, database, not_null=at in keys)})
        granted = {**table, "grantor": user, "grantee": user, "privilege_type": "SELECT", "is_grantable": "NO"}
        rows["table_privileges"].append(granted)
        rows["role_table_grants"].append(granted)
        if keys:
            constraint = {**of_constraint, "constraint_name": f"{name}_pkey"}
            rows["table_constraints"].append(
                {**constraint, **table, "constraint_type": "PRIMARY KEY", "is_deferrable": "NO",
                 "initially_deferred": "NO", "enforced": "YES"}
            )  # fmt: skip
            for at, key in enumerate(keys, 1):
                used = {**constraint, **table, "column_name": columns[key - 1][0]}
                rows["key_column_usage"].append({**used, "ordinal_position": at})
                rows["constraint_column_usage"].append(used)
    return rows


def _column_row(position: int, name: str, type_: SqlType, database: str, *, not_null: bool) -> dict[str, Any]:
    element = element_type(type_)
    kind = scalar_type(element or type_)
    row: dict[str, Any] = {
        "column_name": name, "ordinal_position": position, "is_nullable": "NO" if not_null else "YES",
        "data_type": "ARRAY" if element is not None else kind.words, "udt_catalog": database,
        "udt_schema": "pg_catalog",
        "udt_name": f"_{kind.name}" if element is not None else kind.name, "dtd_identifier": str(position),
        "is_self_referencing": "NO", "is_identity": "NO", "identity_cycle": "NO", "is_generated": "NEVER",
        "is_updatable": "YES",
    }  # fmt: skip
    bits = {"int4": 32, "int8": 64, "float8": 53}.get(kind.name)
    if bits is not None and element is None:
        scale = None if kind.name == "float8" else 0
        row |= {"numeric_precision": bits, "numeric_precision_radix": 2, "numeric_scale": scale}
    if isinstance(type_, Decimal):
        row |= {"numeric_precision": type_.precision, "numeric_precision_radix": 10, "numeric_scale": type_.scale}
    if kind.name in ("time", "timestamp"):
        row["datetime_precision"] = 6
    return row
