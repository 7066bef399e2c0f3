-- What the order of xid before id rests on: the column order, the default of xid, the kind of identity and the
-- sequence's cache.
-- Index: those of the catalogue. Locks: none.
select
    xid.attnum < id.attnum,
    coalesce(pg_get_expr(fallback.adbin, fallback.adrelid), '') in
        ('pg_current_xact_id()', 'pg_catalog.pg_current_xact_id()'),
    id.attidentity = 'a',
    sequence.seqcache = 1 and sequence.seqincrement = 1 and not sequence.seqcycle
from pg_catalog.pg_attribute as xid
join pg_catalog.pg_attribute as id on id.attrelid = xid.attrelid and id.attname = 'id'
left join pg_catalog.pg_attrdef as fallback on fallback.adrelid = xid.attrelid and fallback.adnum = xid.attnum
join pg_catalog.pg_sequence as sequence on sequence.seqrelid = 'postrider.event_id_seq'::regclass
where xid.attrelid = 'postrider.event'::regclass
    and xid.attname = 'xid'
