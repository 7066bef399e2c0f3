-- Sends a dead letter round again. One that holds its lane stays its head; any other goes to the end, behind
-- all that was emitted (?4), or in a late lane behind all that has come due.
-- Index: primary key. Locks: the writer lock.
update postrider_delivery
set state = 'pending',
    attempts = 0,
    due_at = ?3,
    died_at = null,
    turn = case when parks = 1 then turn when late = 1 then ?3 else ?4 end
where subscription_id = ?1
    and event_id = ?2
    and state = 'dead'
