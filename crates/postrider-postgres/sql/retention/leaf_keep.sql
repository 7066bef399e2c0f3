-- Copies the events that exceptions still need out of a leaf; how many.
-- Index: delivery_event, primary keys. Locks: the new rows; the leaf's lock is held.
select postrider.leaf_keep('postrider.event_leaf'::regclass)
