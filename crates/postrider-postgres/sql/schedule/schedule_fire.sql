-- Moves a schedule on from where it was seen and emits its event for each tick, unless another process has. Index:
-- primary keys of the schedule and of the leaf. Locks: the schedule's row.
select postrider.fire($1, $2, $3, $4)
