-- Counts changes between the slot of the store in schema $1 and the table.
-- Index: primary key. Locks: the row.
insert into postrider.switch as known (slot, reading, switches, at)
select $1::text || '_' || base.oid, $2::text, $3::bigint, postrider.clock()
from pg_catalog.pg_database as base
where base.datname = current_database()
on conflict (slot) do update
set reading = excluded.reading, switches = known.switches + excluded.switches, at = excluded.at
