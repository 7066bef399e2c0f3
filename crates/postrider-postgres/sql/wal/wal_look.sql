-- What stands in the way of following the write-ahead log: whether the server writes enough into it, whether the
-- publication $1 and the slot $2 are there, and how things stand with the slot.
-- Index: primary key, the catalog's own. Locks: none.
select current_setting('wal_level'),
    current_setting('server_version_num')::integer,
    exists (select from pg_catalog.pg_publication where pubname = $1),
    slot.slot_name is not null,
    exists (select from postrider.new_slot where name = $2),
    coalesce(slot.plugin = 'pgoutput' and slot.database = current_database(), true),
    coalesce(slot.wal_status = 'lost', false),
    slot.active_pid,
    coalesce(sender.application_name, ''),
    coalesce(sender.reply_time::text, ''),
    (select value from postrider.meta where name = 'home')
from (select) as one
left join pg_catalog.pg_replication_slots as slot on slot.slot_name = $2::text
left join pg_catalog.pg_stat_replication as sender on sender.pid = slot.active_pid
