-- Forgets how an adoption went, since it is done.
-- Index: primary key. Locks: the row.
delete from postrider.meta
where name = 'adopting'
