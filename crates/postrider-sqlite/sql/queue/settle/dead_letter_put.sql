-- Makes an event of a queue a dead letter.
-- Index: primary key; the row enters the partial indexes of dead and of parking rows. Locks: the writer lock.
insert or replace into postrider_delivery
    (subscription_id, event_id, shard, key, late, turn, parks, state, attempts, edited_payload, died_at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'dead', ?8, ?9, ?10)
