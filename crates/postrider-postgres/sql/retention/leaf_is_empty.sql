-- Whether a leaf holds no event.
-- Index: the leaf's primary key. Locks: none.
select not exists (select from postrider.event_leaf)
