-- Whether a member is known.
-- Index: primary key. Locks: none.
select exists (select from postrider.member where id = $1)
