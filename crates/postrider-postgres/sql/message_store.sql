-- Writes messages into the log and the source's place with them, if it stood where $1 to $3 say.
-- Index: primary key of the leaf. Locks: the row of the source.
select postrider.message_store(
    $1, $2, $3, $4, $5, $6,
    $7::timestamptz[], $8::text[], $9::text[], $10::text[], $11::text[]::json[],
    $12::text[]::json[], $13::bytea[]
)
