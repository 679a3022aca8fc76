-- What DBeaver sends when it connects and its navigator opens a database, a schema and a table: commit 2428359b, files
-- of plugins/org.jkiss.dbeaver.ext.postgresql/src/org/jkiss/dbeaver/ext/postgresql/model, as its JDBC driver writes
-- them. Each has a name, its file, and what its parameters are.

--@ database: PostgreDataSource.java
SELECT current_database();

--@ databases: PostgreDataSource.java; database
SELECT db.oid,db.* FROM pg_catalog.pg_database db WHERE 1 = 1 AND datallowconn AND NOT datistemplate OR db.datname =$1
ORDER BY db.datname;

--@ version: PostgreDataSource.java
SELECT version();

--@ settings: PostgreDataSource.java; setting
select * from pg_catalog.pg_settings where name=$1;

--@ sizes of databases: PostgreDataSource.java
SELECT db.datname,pg_database_size(db.oid) FROM pg_catalog.pg_database db;

--@ session: PostgreExecutionContext.java
SELECT current_schema(),session_user;

--@ search path: PostgreExecutionContext.java
SHOW search_path;

--@ new search path: PostgreExecutionContext.java
SET search_path = public,"$user";

--@ comment of a database: PostgreDatabase.java; database
select description from pg_shdescription join pg_database on objoid = pg_database.oid where datname = $1;

--@ schemas: PostgreDatabase.java
SELECT n.oid,n.*,d.description FROM pg_catalog.pg_namespace n
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=n.oid AND d.objsubid=0 AND d.classoid='pg_namespace'::regclass
 ORDER BY nspname;

--@ roles: PostgreDatabase.java
SELECT a.oid,a.*,pd.description FROM pg_catalog.pg_roles a 
left join pg_catalog.pg_shdescription pd on a.oid = pd.objoid
ORDER BY a.rolname;

--@ access methods: PostgreDatabase.java
SELECT am.oid,am.* FROM pg_catalog.pg_am am 
ORDER BY am.oid;

--@ encodings: PostgreDatabase.java
SELECT c.contoencoding as encid,pg_catalog.pg_encoding_to_char(c.contoencoding) as encname
FROM pg_catalog.pg_conversion c
GROUP BY c.contoencoding
ORDER BY 2;

--@ languages: PostgreDatabase.java
SELECT l.oid,l.* FROM pg_catalog.pg_language l 
ORDER BY l.oid;

--@ foreign data wrappers: PostgreDatabase.java
SELECT l.oid,l.*,p.pronamespace as handler_schema_id 
FROM pg_catalog.pg_foreign_data_wrapper l
LEFT OUTER JOIN pg_catalog.pg_proc p ON p.oid=l.fdwhandler 
ORDER BY l.fdwname;

--@ tablespaces: PostgreDatabase.java
SELECT t.oid,t.*,pg_tablespace_location(t.oid) loc
FROM pg_catalog.pg_tablespace t 
ORDER BY t.oid;

--@ event triggers: PostgreDatabase.java
SELECT pet.*, d.description FROM pg_catalog.pg_event_trigger pet
LEFT OUTER JOIN pg_catalog.pg_description d ON pet."oid" = d.objoid;

--@ extensions: PostgreDatabase.java
SELECT 
 e.oid,
 cfg.tbls,
  n.nspname as schema_name,
 e.* 
FROM 
 pg_catalog.pg_extension e 
 join pg_namespace n on n.oid =e.extnamespace
 left join  (
         select
            ARRAY_AGG(ns.nspname || '.' ||  cls.relname) tbls, oid_ext
          from
            (
            select
                unnest(e1.extconfig) oid , e1.oid oid_ext
            from
                pg_catalog.pg_extension e1 ) c 
                join    pg_class cls on cls.oid = c.oid 
                join pg_namespace ns on ns.oid = cls.relnamespace
            group by oid_ext        
         ) cfg on cfg.oid_ext = e.oid
ORDER BY e.oid;

--@ types: PostgreDatabase.java
SELECT t.oid,t.*,c.relkind,format_type(nullif(t.typbasetype, 0), t.typtypmod) as base_type_name, d.description
FROM pg_catalog.pg_type t
LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid=t.typelem 
LEFT OUTER JOIN pg_catalog.pg_class c ON c.oid=t.typrelid
LEFT OUTER JOIN pg_catalog.pg_description d ON t.oid=d.objoid
WHERE t.typname IS NOT NULL
AND (c.relkind IS NULL OR c.relkind = 'c') AND (et.typcategory IS NULL OR et.typcategory <> 'C');

--@ a type: PostgreDataTypeCache.java; type
SELECT t.oid,t.*,c.relkind,format_type(nullif(t.typbasetype, 0), t.typtypmod) as base_type_name FROM pg_catalog.pg_type t
LEFT OUTER JOIN pg_class c ON c.oid=t.typrelid
LEFT OUTER JOIN pg_catalog.pg_description d ON t.oid=d.objoid
WHERE t.oid=$1 ;

--@ a column that there may be: PostgreUtils.java
SELECT typcategory FROM pg_catalog.pg_type WHERE 1<>1 LIMIT 1;

--@ enums: PostgreDatabase.java
SELECT * FROM pg_catalog.pg_enum;

--@ an object: PostgreNamespace.java; schema, name, schema, name
SELECT oid,relkind,reltype FROM pg_catalog.pg_class WHERE relnamespace=$1 AND relname=$2
UNION ALL
SELECT oid,'c',oid FROM pg_catalog.pg_type WHERE typnamespace=$3 AND typname=$4;

--@ a schema: PostgreSchema.java; name of the schema
SELECT s.oid as schema_id
from pg_catalog.pg_namespace s
WHERE s.nspname =$1;

--@ tables: PostgreSchema.java; schema
SELECT c.oid,c.*,d.description,pg_catalog.pg_get_expr(c.relpartbound, c.oid) as partition_expr,  pg_catalog.pg_get_partkeydef(c.oid) as partition_key 
FROM pg_catalog.pg_class c
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=c.oid AND d.objsubid=0 AND d.classoid='pg_class'::regclass
WHERE c.relnamespace=$1 AND c.relkind not in ('i','I','c');

--@ columns: PostgreSchema.java; table
SELECT c.relname,a.*,pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) as def_value,dsc.description,dep.objid
FROM pg_catalog.pg_attribute a
INNER JOIN pg_catalog.pg_class c ON (a.attrelid=c.oid)
LEFT OUTER JOIN pg_catalog.pg_attrdef ad ON (a.attrelid=ad.adrelid AND a.attnum = ad.adnum)
LEFT OUTER JOIN pg_catalog.pg_description dsc ON (c.oid=dsc.objoid AND a.attnum = dsc.objsubid)
LEFT OUTER JOIN pg_depend dep on dep.refobjid = a.attrelid AND dep.deptype = 'i' and dep.refobjsubid = a.attnum and dep.classid = dep.refclassid
WHERE NOT a.attisdropped AND c.relkind not in ('i','I','c') AND c.oid=$1
ORDER BY a.attnum;

--@ constraints: PostgreSchema.java; schema
SELECT c.oid,c.*,t.relname as tabrelname,rt.relnamespace as refnamespace,d.description, case when c.contype='c' then "substring"(pg_get_constraintdef(c.oid), 7) else null end consrc_copy
FROM pg_catalog.pg_constraint c
INNER JOIN pg_catalog.pg_class t ON t.oid=c.conrelid
LEFT OUTER JOIN pg_catalog.pg_class rt ON rt.oid=c.confrelid
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=c.oid AND d.objsubid=0 AND d.classoid='pg_constraint'::regclass
WHERE t.relnamespace=$1
ORDER BY c.oid;

--@ indexes: PostgreSchema.java; table
SELECT i.*,i.indkey as keys,c.relname,c.relnamespace,c.relam,c.reltablespace,tc.relname as tabrelname,dsc.description,pg_catalog.pg_get_expr(i.indpred, i.indrelid) as pred_expr,pg_catalog.pg_get_expr(i.indexprs, i.indrelid, true) as expr,pg_catalog.pg_relation_size(i.indexrelid) as index_rel_size,pg_catalog.pg_stat_get_numscans(i.indexrelid) as index_num_scans
FROM pg_catalog.pg_index i
INNER JOIN pg_catalog.pg_class c ON c.oid=i.indexrelid
INNER JOIN pg_catalog.pg_class tc ON tc.oid=i.indrelid
LEFT OUTER JOIN pg_catalog.pg_description dsc ON i.indexrelid=dsc.objoid
WHERE  i.indrelid=$1 ORDER BY c.relname;

--@ functions: PostgreSchema.java; schema
SELECT p.oid as poid,p.*,pg_catalog.pg_get_expr(p.proargdefaults, 0) as arg_defaults,d.description
FROM pg_catalog.pg_proc p
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=p.oid and d.classoid='pg_proc'::regclass  AND d.objsubid = 0
WHERE p.pronamespace=$1
ORDER BY p.proname;

--@ aggregates: PostgreSchema.java; schema
SELECT p.oid AS proc_oid,p.proname AS proc_name,a.*
FROM pg_catalog.pg_aggregate a,pg_catalog.pg_proc p
WHERE p.oid=a.aggfnoid AND p.pronamespace=$1
ORDER BY p.proname;

--@ inheritance: PostgreSchema.java; schema
SELECT i.inhrelid relid, pc.relnamespace parent_ns, pc.oid parent_oid, i.inhseqno
FROM pg_catalog.pg_inherits i, pg_class rc, pg_class pc
WHERE rc.oid=i.inhrelid AND rc.relnamespace=$1 AND pc.oid=i.inhparent;

--@ sizes of tables: PostgreSchema.java; schema
select c.oid,pg_catalog.pg_total_relation_size(c.oid) as total_rel_size,pg_catalog.pg_relation_size(c.oid) as rel_size
FROM pg_class c
WHERE c.relnamespace=$1;

--@ triggers: PostgreTableReal.java; table
SELECT x.oid,x.*,p.pronamespace as func_schema_id,d.description
FROM pg_catalog.pg_trigger x
LEFT OUTER JOIN pg_catalog.pg_proc p ON p.oid=x.tgfoid 
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=x.oid AND d.objsubid=0 
WHERE x.tgrelid = $1 AND NOT x.tgisinternal;

--@ rules: PostgreTableReal.java
SELECT r.oid,r.*, pg_get_ruledef(r.oid) AS definition
FROM pg_rewrite r
WHERE r.ev_class=16384 AND r.rulename <> '_RETURN'::name;

--@ policies: PostgreTable.java; name of the schema, name
select * from pg_catalog.pg_policies where schemaname=$1 and tablename=$2;

--@ a constraint's text: PostgreTableConstraintBase.java; constraint
SELECT pg_catalog.pg_get_constraintdef($1);

--@ an index's text: PostgreIndex.java; index
SELECT pg_catalog.pg_get_indexdef($1);

--@ grants: PostgreRole.java; database, user
SELECT * FROM information_schema.table_privileges WHERE table_catalog=$1 AND grantee=$2;

--@ grants of functions: PostgreRole.java; database, user
SELECT * FROM information_schema.routine_privileges WHERE specific_catalog=$1 AND grantee=$2;

--@ tables by mask: PostgreStructureAssistant.java; mask, schema
SELECT pc.oid,pc.relname,pc.relnamespace,pc.relkind FROM pg_catalog.pg_class pc WHERE pc.relkind in('r','v','m','f','p') AND pc.relname ILIKE $1 AND pc.relnamespace IN ($2) ORDER BY pc.relname LIMIT 10;

--@ columns by mask: PostgreStructureAssistant.java; mask of a column, mask of a column, schema
SELECT x.attname,x.attrelid,x.atttypid,c.relnamespace FROM pg_catalog.pg_attribute x, pg_catalog.pg_class c WHERE c.oid=x.attrelid AND (x.attname ILIKE $1 OR col_description(c.oid, x.attnum) ILIKE $2)AND c.relnamespace IN ($3) ORDER BY x.attname LIMIT 10;

--@ sessions: PostgreSessionManager.java
SELECT sa.* FROM pg_catalog.pg_stat_activity sa;

--@ rows: of a table that is opened
SELECT t.* FROM public.totals t LIMIT 200;

--@ number of rows: of a table that is opened
SELECT count(*) FROM public.totals t;
