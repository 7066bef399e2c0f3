-- The leaves that have an index by which a transaction's rows are found in the order of their ids.
-- Index: those of the catalogue. Locks: none.
select substr(leaf.relname, length('event_') + 1)::int
from pg_catalog.pg_inherits as inherits
join pg_catalog.pg_class as leaf on leaf.oid = inherits.inhrelid
where inherits.inhparent = 'postrider.event'::regclass
    and exists (
        select
        from pg_catalog.pg_index as index
        join pg_catalog.pg_class as named on named.oid = index.indexrelid
        join pg_catalog.pg_am as method on method.oid = named.relam and method.amname = 'btree'
        join pg_catalog.pg_attribute as xid on xid.attrelid = leaf.oid and xid.attnum = index.indkey[0]
        join pg_catalog.pg_attribute as id on id.attrelid = leaf.oid and id.attnum = index.indkey[1]
        where index.indrelid = leaf.oid
            and index.indisvalid
            and index.indpred is null
            and xid.attname = 'xid'
            and id.attname = 'id'
    )
