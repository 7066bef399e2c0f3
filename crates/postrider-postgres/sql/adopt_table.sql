-- Where the class of each event is noted, until the transaction ends.
-- Index: none. Locks: none, nobody else sees it.
create temporary table postrider_class (
    id bigint,
    covered_by text
) on commit drop
