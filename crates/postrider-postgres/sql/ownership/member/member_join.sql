-- Registers a process, if the schema still suits programs of its version. Index: primary keys. Locks: none; a migration
-- that would raise the oldest version waits for the transaction.
insert into postrider.member (name, joined_at, beat_at, steady_since, lease, version)
select $1, postrider.clock(), postrider.clock(), postrider.clock(), $2, $3
from postrider.meta
where meta.name = 'oldest_version'
    and meta.value::integer <= $3
returning id
