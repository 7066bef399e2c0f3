-- The last id that was issued, the newest event, and when a position was last written. Index: primary keys. Locks:
-- none, because no session writes meanwhile.
select coalesce(pg_catalog.pg_sequence_last_value('postrider.event_id_seq'::regclass), 0),
    coalesce((select max(id) from postrider.event), 0),
    greatest(
        (select max(at) from postrider.position_a),
        (select max(at) from postrider.position_b)
    ),
    coalesce((select value::bigint from postrider.meta where name = 'adopted_to'), 0)
